"""The units of `agent` and `serve`, started by a real systemd; a probe reports what each may do."""

from __future__ import annotations

import json
import pathlib
import re
import sys

import machines
import pytest
import realmachines

from overnight.app import units
from overnight.machines import container

DOCUMENT = (pathlib.Path(__file__).parents[2] / "docs/security.md").read_text()
USERS = {"agent": 61235, "serve": 61236}
FOLDER = {"agent": "/var/lib/overnight-recorder", "serve": "/var/lib/overnight-server"}
SECRETS = {
    "agent": {"--token-file": "/etc/overnight/token"},
    "serve": {"--tls-cert": "overnight.crt", "--tls-key": "overnight.key"},
}
PYTHON = "/opt/overnight/bin/python"
SECRET = "ovn_1_only-for-the-unit"
# In place of the command, which has tests of its own: this one is about the settings.
PROBE = """
import errno, json, os, pathlib, socket, sys, time
def attempt(action):
    try:
        action()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "ok"
def listen():
    with socket.create_server(("127.0.0.1", 8417)):
        pass
credentials = pathlib.Path(os.environ["CREDENTIALS_DIRECTORY"])
named = {key: value for key, value in os.environ.items() if key.startswith("OVERNIGHT_")}
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line)
found = {
    "argv": sys.argv[1:],
    "environment": named,
    "credentials": {path.name: path.read_text() for path in credentials.iterdir()},
    "uid": os.getuid(),
    "capabilities": int(status["CapEff"], 16) | int(status["CapBnd"], 16),
    "locked": [status["NoNewPrivs"].strip(), status["Seccomp"].strip()],
    "listen": attempt(listen),
    "packet socket": attempt(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW)),
    "kernel log": attempt(lambda: os.close(os.open("/dev/kmsg", os.O_RDONLY))),
    "state": attempt(lambda: pathlib.Path(os.environ["STATE_DIRECTORY"], "file").write_text("")),
    "etc": attempt(lambda: pathlib.Path("/etc/overnight/new").write_text("")),
    "store of secrets": attempt(lambda: os.listdir("/etc/credstore")),
    "token of root": attempt(lambda: open("/etc/overnight/token")),
    "another process": attempt(lambda: os.stat("/proc/1/status")),
}
answer = pathlib.Path(os.environ["STATE_DIRECTORY"], "probe.json")
answer.with_suffix(".new").write_text(json.dumps(found))
answer.with_suffix(".new").rename(answer)
while True:
    time.sleep(60)
"""
CAPABILITIES = {"agent": 1 << 19 | 1 << 34 | 1 << 38, "serve": 0}


def files_of(name: str) -> dict[str, str]:
    unit = units.render(name, (), SECRETS[name], python=PYTHON)
    command = re.search(r"^ExecStart=.*$", unit, re.MULTILINE)
    assert command is not None
    words = command[0].partition(" -m overnight ")[2]
    folder = f"/etc/systemd/system/{units.UNITS[name]}"
    return {
        folder: unit,
        f"{folder}.d/probe.conf": f"[Service]\nExecStart=\nExecStart={PYTHON} /opt/probe.py {words}\n",
    }


@pytest.mark.needs_nspawn
def test_agent_and_serve_get_their_secrets_and_nothing_else() -> None:
    names = {"agent": "overnight", "serve": "overnight-server"}
    accounts = {
        "/etc/passwd": [f"{names[n]}:x:{uid}:{uid}::/:/bin/false\n" for n, uid in USERS.items()],
        "/etc/group": [f"{names[n]}:x:{uid}:\n" for n, uid in USERS.items()],
    }
    files = {
        **{path: pathlib.Path(path).read_text() + "".join(rows) for path, rows in accounts.items()},
        **files_of("agent"),
        **files_of("serve"),
        "/opt/probe.py": PROBE,
        "/etc/overnight/token": SECRET,
        "/etc/credstore/overnight.key": SECRET,  # and no certificate
        "/etc/overnight/agent.env": "OVERNIGHT_SERVER=https://overnight.example:8416\n",
        "/etc/overnight/server.env": f"OVERNIGHT_POOLS_DATABASE=postgresql://:{SECRET}@db/fleet\n",
    }
    _, base = container.interpreter()
    options = ("--capability=CAP_PERFMON,CAP_SYSLOG", "--bind-ro=/dev/kmsg")
    with machines.machine(
        {}, files, binds={sys.prefix: "/opt/overnight"}, read_only=base, options=options
    ) as machine:
        machine.run("chmod", "700", "/etc/credstore")
        machine.run("chmod", "600", "/etc/overnight/server.env", "/etc/overnight/token")
        found = {}
        for name, unit in units.UNITS.items():
            if name == "record":
                continue
            machine.run("systemctl", "start", unit)
            path = machine.path(f"{FOLDER[name]}/probe.json")
            realmachines.until(path.exists)
            found[name] = json.loads(path.read_text())
            judged = machine.run("systemd-analyze", "security", "--no-pager", unit)
            exposure = re.search(r"exposure level for \S+: ([\d.]+)", judged)
            stated = re.search(rf"^\| `{name}` \|.*\| ([\d.]+) \|$", DOCUMENT, re.MULTILINE)
            assert exposure is not None
            assert stated is not None
            assert float(exposure[1]) <= float(stated[1])
            machine.run("systemctl", "stop", unit)
            assert machine.run("systemctl", "show", "-P", "Result", unit) == "success\n"
            assert machine.run("stat", "-c", "%u %a", FOLDER[name]) == f"{USERS[name]} 700\n"
    for name, probe in found.items():
        assert SECRET not in " ".join(probe["argv"])
        assert probe["uid"] == USERS[name]
        assert probe["capabilities"] == CAPABILITIES[name]
        assert probe["locked"] == ["1", "2"]
        assert (probe["listen"], probe["state"]) == ("ok", "ok")
        assert probe["packet socket"] == "EAFNOSUPPORT"
        assert probe["etc"] in ("EROFS", "EACCES")
        assert (probe["store of secrets"], probe["token of root"]) == ("EACCES", "EACCES")
    agent, serve = found["agent"], found["serve"]
    assert agent["credentials"] == {"token-file": SECRET}
    assert agent["argv"][-2:] == [
        "--token-file",
        f"/run/credentials/{units.UNITS['agent']}/token-file",
    ]
    assert agent["environment"] == {"OVERNIGHT_SERVER": "https://overnight.example:8416"}
    assert (agent["kernel log"], agent["another process"]) == ("ok", "ok")
    assert serve["credentials"] == {"tls-key": SECRET}
    assert serve["environment"]["OVERNIGHT_POOLS_DATABASE"].startswith("postgresql://")
    assert serve["kernel log"] in ("ENOENT", "EPERM", "EACCES")
    assert serve["another process"] == "ENOENT"
