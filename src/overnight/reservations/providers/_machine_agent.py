"""The agent inside a machine of this host: the flight recorder as a unit, and the uplink beside it.

It needs the standard library alone, so a machine needs nothing but the host's /usr. All files are unpacked by a program
inside the machine: a link in there cannot lead out of it.
"""

from __future__ import annotations

import io
import json
import pathlib
import subprocess
import tarfile
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import overnight
from overnight import reservations
from overnight.machines import container
from overnight.model import process_identity, times
from overnight.model.times import SECOND_US
from overnight.reservations.providers import _local_recorder
from overnight.store.ring import layout

if TYPE_CHECKING:
    from overnight.model.reservation import Lease

# Paths inside the machine.
PROGRAM, HOME = "/opt/overnight-agent", "/var/lib/overnight-agent"
LEASE = f"{PROGRAM}/lease"
UNITS = ("overnight-reserved-agent.service", "overnight-reserved-uplink.service")
UNIT_FOLDER = "/run/systemd/system"
PARTS = ("__init__.py", "errors.py", "http_client.py", "http_listener.py", "agent", "model", "sources", "store")  # fmt: skip
COMMAND_SECONDS = 60
NO_TASKS = "an agent that is started there runs no tasks of a server, such as load"
UNIT = """\
[Unit]
Description=overnight: the {what} of reservation {lease}
[Service]
Environment=PYTHONPATH={program}
ExecStart=/bin/sh -c '{run}'
RuntimeMaxSec={seconds}
Restart=on-failure
RestartSec=5
"""


def hear(leader: int) -> reservations.Heard:
    """Say whether the recorder runs inside."""
    active = leader and run_inside(leader, "systemctl", "is-active", UNITS[0], check=False)
    return _local_recorder.hear(runs=active == "active")


def start(leader: int, lease: Lease, setup: reservations.AgentSetup) -> None:
    """Start the recorder, and the uplink if there is a server, until the cap of the lease; repeatable."""
    if hear(leader).agent_us is not None:
        return
    host = run_inside(leader, "uname", "-n")
    files = dict(_list_files(lease, setup, host))
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name.lstrip("/"))
            entry.size, entry.mtime = len(content), int(time.time())
            entry.mode = 0o600 if name.endswith(".json") else 0o644
            archive.addfile(entry, io.BytesIO(content))
    run_inside(leader, "tar", "-x", "-C", "/", given=packed.getvalue())
    run_inside(leader, "systemctl", "daemon-reload")
    units = UNITS if setup.server else UNITS[:1]
    run_inside(leader, "systemctl", "start", *units)


def stop(leader: int, lease_id: str) -> None:
    """Stop the agent of this lease and remove everything of it; nothing to do in a machine that has ended."""
    if not leader or run_inside(leader, "cat", LEASE, check=False) != lease_id:
        return
    run_inside(leader, "systemctl", "stop", *UNITS, check=False)
    run_inside(leader, "rm", "-rf", *(f"{UNIT_FOLDER}/{unit}" for unit in UNITS), HOME, PROGRAM)
    run_inside(leader, "systemctl", "daemon-reload")


def _list_files(
    lease: Lease, setup: reservations.AgentSetup, host: str
) -> Iterator[tuple[str, bytes]]:
    """Yield every file of the agent: its path inside, and its content."""
    yield LEASE, lease.id.encode()  # the first, so that whatever follows is removed
    package = pathlib.Path(overnight.__file__).parent
    for part in PARTS:
        found = package / part
        for path in sorted(found.rglob("*.[ps]*")) if found.is_dir() else [found]:
            if path.is_file() and "__pycache__" not in path.parts:
                yield f"{PROGRAM}/overnight/{path.relative_to(package)}", path.read_bytes()
    python = f"exec {container.interpreter()[0]} -S -P -m overnight.agent"
    seconds = max(60, (lease.cap_us - times.now_us()) // SECOND_US)
    values = {"lease": lease.id, "program": PROGRAM, "seconds": seconds}
    runs = {"recorder": f"{python} --home {HOME}"}
    if setup.server:
        options = {
            "home": HOME,
            "ring": str(layout.host_folder(pathlib.Path(HOME), host)),
            "host": host,
            "boot": process_identity.read_boot(),
            "server": setup.server,
            "token": setup.token,
        }
        yield f"{PROGRAM}/uplink.json", json.dumps(options).encode() + b"\n"
        # The uplink ends with its standard input.
        feed = f"cat {PROGRAM}/uplink.json; exec sleep infinity"
        runs["uplink"] = f"mkdir -p {HOME}/uplink; ({feed}) | {python}.uplink"
    for unit, (what, command) in zip(UNITS, runs.items(), strict=False):
        text = UNIT.format(what=what, run=command, **values)
        yield f"{UNIT_FOLDER}/{unit}", text.encode()


def run_inside(leader: int, *command: str, given: bytes = b"", check: bool = True) -> str:
    """Run a command in the machine with this PID 1 and return its output; raises PlatformError."""
    try:
        done = subprocess.run(
            ["nsenter", "--target", str(leader), "--all", "--", *command],
            input=given, capture_output=True, timeout=COMMAND_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise reservations.PlatformError(
            f"{command[0]} does not end in the machine", why=str(error), todo="overnight doctor"
        ) from error
    if check and done.returncode:
        raise reservations.PlatformError(
            f"{' '.join(command)} failed in the machine",
            why=done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}",
            todo="see its journal: nsenter --all --target PID journalctl",
        )
    return done.stdout.decode(errors="replace").strip()
