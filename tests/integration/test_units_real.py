"""`overnight serve` and `overnight agent` as units, printed and started in a machine with systemd."""

from __future__ import annotations

import datetime
import json
import pathlib
import sys
from typing import Any

import machines
import pytest
import realmachines

import overnight
from overnight import errors
from overnight.machines import container

SOURCE = pathlib.Path(overnight.__file__).parents[1]
ENVIRONMENT = "PYTHONPATH=/opt/source PYTHONDONTWRITEBYTECODE=1"
PROGRAM = f"{ENVIRONMENT} /opt/overnight/bin/python -P -m overnight"
USERS = {"overnight": 61235, "overnight-server": 61236}
SERVER, AGENT = "overnight-server.service", "overnight-agent.service"
URL = "http://127.0.0.1:8416"
# Names that systemd must not read as several words, or as specifiers.
TOKEN_FILE = "/etc/overnight/token of 100%h"
BLOBS = "/srv/windows of 100%h"
# What a host shows and nspawn hides, as in test_recorder_unit.py.
HOST_LIKE = (
    "--capability=CAP_PERFMON,CAP_SYSLOG",
    "--system-call-filter=perf_event_open adjtimex clock_adjtime",
    "--bind-ro=/dev/kmsg",
    "--bind-ro=/proc/kallsyms",
)


class World:
    """A machine with the units of a server and of an agent."""

    def __init__(self, machine: machines.Machine) -> None:
        self.machine = machine

    def shell(self, command: str) -> str:
        return self.machine.run("sh", "-c", f"cd /; {command}")

    def as_user(self, user: str, home: str, words: str) -> str:
        who = f"setpriv --reuid={USERS[user]} --regid={USERS[user]} --clear-groups"
        return self.shell(f"{who} env {PROGRAM} --home /var/lib/{home} {words}")

    def ask(self, words: str) -> dict[str, Any]:
        """Ask the server what people ask it, without its data home."""
        answer = self.shell(
            f"{PROGRAM} --server {URL} --token-file /root/token {words} -O json || test $? = 1"
        )
        return json.loads(answer)

    def online(self) -> list[str]:
        try:
            text = self.shell(f"{PROGRAM} --server {URL} --token-file /root/token hosts")
        except errors.CannotError:  # it does not answer yet
            return []
        rows = [line.split() for line in text.splitlines()[1:]]
        return [row[0] for row in rows if row[1:2] == ["online"]]

    def kinds(self) -> list[str]:
        return [event["kind"] for event in self.ask("events")["events"]]

    def show(self, unit: str, name: str) -> str:
        return self.machine.run("systemctl", "show", "-P", name, unit).strip()

    def log(self, unit: str) -> str:
        return self.machine.run("journalctl", "--no-pager", "-o", "cat", "-u", unit)

    def add_event(self, kind: str) -> None:
        words = f"event add --kind {kind} --host {self.machine.name} --severity info"
        self.as_user("overnight", "overnight-recorder", words)


def now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


def boot():
    accounts = {
        path: pathlib.Path(path).read_text()
        + "".join(f"{name}:x:{number}:{rest.format(number)}\n" for name, number in USERS.items())
        for path, rest in {"/etc/passwd": "{}::/:/bin/false", "/etc/group": ""}.items()
    }
    drop_in = f"[Service]\nEnvironment={ENVIRONMENT}\n"
    files = {f"/etc/systemd/system/{unit}.d/test.conf": drop_in for unit in (SERVER, AGENT)}
    binds = {sys.prefix: "/opt/overnight", str(SOURCE): "/opt/source"}
    _, base = container.interpreter()
    return machines.machine(
        {}, {**accounts, **files}, binds=binds, read_only=base, options=HOST_LIKE
    )


@pytest.mark.long  # 24 s
@pytest.mark.needs_nspawn
@pytest.mark.together
def test_serve_and_agent_run_as_units() -> None:
    with boot() as machine:
        world = World(machine)
        units = "/etc/systemd/system"
        world.shell(f"install -d -o overnight-server '{BLOBS}'; install -d /etc/overnight")
        world.shell(f"{PROGRAM} serve --blobs '{BLOBS}' --print-unit > {units}/{SERVER}")
        agent = f"agent --server {URL} --frequency 19 --token-file '{TOKEN_FILE}'"
        world.shell(f"{PROGRAM} {agent} --print-unit > {units}/{AGENT}")
        world.shell("install -D -m 755 /bin/true /root/bin/tool")
        machine.path(f"{units}/tool.service").write_text(
            "[Service]\nExecStart=/root/bin/tool\n[Install]\nWantedBy=multi-user.target\n"
        )
        machine.run("systemctl", "enable", "tool.service")
        machine.run("systemctl", "daemon-reload")

        # The first start creates the data home, with its owner.
        machine.run("systemctl", "start", SERVER)
        create = "token create --role"
        for role, path in {"operator": "/root/token", "agent": TOKEN_FILE}.items():
            text = world.as_user("overnight-server", "overnight-server", f"{create} {role}")
            machine.path(path).write_text(text)
            machine.path(path).chmod(0o600)
        machine.run("systemctl", "start", AGENT)
        realmachines.until(lambda: world.online() == [machine.name])
        assert "enrolled as" in world.log(AGENT)
        begin = now()

        # A restart of either loses nothing, and an event of the time between comes later.
        world.add_event("test.before")
        realmachines.until(lambda: "test.before" in world.kinds())
        machine.run("systemctl", "stop", SERVER)
        assert world.show(SERVER, "Result") == "success"
        world.add_event("test.between")
        machine.run("systemctl", "start", SERVER)
        realmachines.until(lambda: world.online() == [machine.name])
        realmachines.until(lambda: {"test.before", "test.between"} <= set(world.kinds()))
        machine.run("systemctl", "restart", SERVER)
        realmachines.until(lambda: world.online() == [machine.name])
        kinds = world.kinds()
        assert [kinds.count(kind) for kind in ("test.before", "test.between")] == [1, 1]

        # Its used token is still in LoadCredential=. Stopping stores the stacks.
        end = now()
        machine.run("systemctl", "restart", AGENT)
        world.add_event("test.after")
        realmachines.until(lambda: "test.after" in world.kinds())

        # A window comes from the agent by a task, and the server stores it in the folder that it may write to.
        cores = world.ask(f"cpu --host {machine.name} -b {begin} -e {end}")
        assert cores["readings"]
        assert world.shell(f"find '{BLOBS}' -type f ! -name '.*' -size +1k")

        # The unit hides /root from the agent: its audit accuses nobody that the audit of root does not.
        audited = machine.path("/var/lib/overnight-recorder/uplink/audit.json")
        realmachines.until(audited.exists)
        world.add_event("test.audited")
        realmachines.until(lambda: "test.audited" in world.kinds())
        there = world.ask(f"audit --host {machine.name}")
        here = json.loads(world.shell(f"{PROGRAM} audit -O json || test $? = 1"))
        assert there["units"] == here["units"]
        assert [finding for finding in there["findings"] if finding not in here["findings"]] == []
        assert {gap["what"] for gap in there["gaps"]} == {"what only root may read", "running units", "journal"}  # fmt: skip

        for unit in (AGENT, SERVER):
            machine.run("systemctl", "stop", unit)
            log = world.log(unit)
            assert world.show(unit, "Result") == "success", log
            assert world.show(unit, "NRestarts") == "0", log
            for problem in ("error", "Traceback", "Permission", "not permitted", "Read-only"):
                assert problem not in log
        assert not world.shell("pgrep -u overnight,overnight-server || true")
