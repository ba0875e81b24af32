"""The unit of `overnight record --print-unit`, started by a real systemd."""

from __future__ import annotations

import json
import pathlib
import re
import sys

import machines
import pytest
import realmachines

import overnight
from overnight.app import units
from overnight.machines import container

DOCUMENT = (pathlib.Path(__file__).parents[2] / "docs/security.md").read_text()
SOURCE = pathlib.Path(overnight.__file__).parents[1]
HOME = "/var/lib/overnight-recorder"
ENVIRONMENT = "PYTHONPATH=/opt/source PYTHONDONTWRITEBYTECODE=1"
PYTHON = "/opt/overnight/bin/python"
OVERNIGHT = f"cd /; {ENVIRONMENT} {PYTHON} -m overnight --home"
USER = 61235
CAPABILITIES = {"SYS_PTRACE": 19, "SYSLOG": 34, "PERFMON": 38}  # include/uapi/linux/capability.h
# A process of another user, with system calls, that runs before the recorder starts.
BUSY = """[Service]
ExecStart=/usr/bin/python3 -c "for _ in iter(int, 1): __import__('os').getppid()"
"""
# nspawn itself hides what a host shows: kernel log, kernel symbols, and the system calls below.
HOST_LIKE = (
    "--capability=CAP_PERFMON,CAP_SYSLOG",
    "--system-call-filter=perf_event_open adjtimex clock_adjtime",
    "--bind-ro=/dev/kmsg",
    "--bind-ro=/proc/kallsyms",
)


def boot_host(prefix: pathlib.Path, base: tuple[str, ...]):
    accounts = {
        name: pathlib.Path(name).read_text() + f"overnight:x:{USER}:{rest}\n"
        for name, rest in {"/etc/passwd": f"{USER}::/:/bin/false", "/etc/group": ""}.items()
    }
    folder = "/etc/systemd/system"
    files = {
        f"{folder}/overnight.service": units.render("record", python=PYTHON),
        f"{folder}/overnight.service.d/test.conf": f"[Service]\nEnvironment={ENVIRONMENT}\n",
    }
    binds = {str(prefix): "/opt/overnight", str(SOURCE): "/opt/source"}
    return machines.machine(
        {"busy.service": BUSY}, {**accounts, **files}, binds=binds, read_only=base, options=HOST_LIKE
    )  # fmt: skip


def read_status(machine: machines.Machine) -> dict[str, float]:
    try:
        return json.loads(machine.path(f"{HOME}/spool/status.json").read_text())
    except OSError:
        return {"seconds": 0}


def summarize(text: str) -> tuple[str, ...]:
    """Return the number of signals, and what was not available, of a recording's summary."""
    flat = " ".join(text.split())
    signals = re.search(r"\d+ signals and", flat)
    assert signals is not None, text
    return (signals[0], *sorted(re.findall(r"^not available: .*", text, re.MULTILINE)))


@pytest.mark.long
@pytest.mark.needs_nspawn
@pytest.mark.needs_perf
def test_the_unit_records_what_root_would() -> None:
    _, base = container.interpreter()
    with boot_host(pathlib.Path(sys.prefix), base) as machine:
        machine.run("rm", *(f"/etc/systemd/system/dbus.{kind}" for kind in ("service", "socket")))
        machine.run("systemctl", "daemon-reload")
        machine.run("systemctl", "start", "dbus.socket", "busy.service", "overnight.service")
        # Root records at the same time, to compare.
        rooted = machine.run("sh", "-c", f"{OVERNIGHT} /tmp/rooted record --for 4s")
        realmachines.until(lambda: read_status(machine)["seconds"] > 3, 60)
        assert machine.run("systemctl", "is-active", "overnight.service") == "active\n"

        pid = machine.run("systemctl", "show", "-P", "MainPID", "overnight.service").strip()
        status = dict(
            line.split(":\t", 1)
            for line in machine.path(f"/proc/{pid}/status").read_text().splitlines()
            if ":\t" in line
        )
        bits = sum(1 << bit for bit in CAPABILITIES.values())
        assert {status[name] for name in ("CapEff", "CapPrm", "CapBnd")} == {f"{bits:016x}"}
        assert set(status["Uid"].split()) == {str(USER)}
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")

        judged = machine.run("systemd-analyze", "security", "--no-pager", "overnight.service")
        exposure = re.search(r"exposure level for overnight.service: ([\d.]+)", judged)
        stated = re.search(r"^\| `record` \|.*\| ([\d.]+) \|$", DOCUMENT, re.MULTILINE)
        assert exposure is not None
        assert stated is not None
        assert float(exposure[1]) <= float(stated[1])

        machine.run("systemctl", "stop", "overnight.service")
        assert machine.run("systemctl", "show", "-P", "Result", "overnight.service") == "success\n"
        log = machine.run("journalctl", "--no-pager", "-o", "cat", "-u", "overnight.service")
        assert summarize(log) == summarize(rooted), log
        assert "not recorded" not in log
        for home in (HOME, "/tmp/rooted"):
            stacks = machine.run(
                "sh", "-c", f"{OVERNIGHT} {home} flame -O collapsed --process python3"
            )
            # A frame of the kernel ends with _[k], a stack with its count.
            functions = {
                re.sub(r"(_\[k\])?( \d+)?$", "", frame) for frame in re.split("[;\n]", stacks)
            }
            assert {"_PyEval_EvalFrameDefault", "do_syscall_64"} <= functions, stacks
        assert machine.run("stat", "-c", "%U %a", HOME) == "overnight 700\n"

        names = ",".join(f"+{name.lower()}" for name in CAPABILITIES)
        user = f"setpriv --reuid={USER} --regid={USER} --clear-groups --inh-caps={names} --ambient-caps={names}"  # fmt: skip
        for path, opens in {"maps": "", "mem": "! ", "environ": "! "}.items():
            machine.run("sh", "-c", f"{opens}{user} sh -c ': < /proc/1/{path}'")
        found = machine.run("sh", "-c", f"{OVERNIGHT} /tmp/rooted audit -O json || true")
        assert "overnight.service" not in {f["unit"] for f in json.loads(found)["findings"]}
