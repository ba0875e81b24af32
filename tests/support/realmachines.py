"""Shared helpers for tests of pools with real machines."""

from __future__ import annotations

import contextlib
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from overnight import pools

if TYPE_CHECKING:
    from overnight.pools import control

SERVE = [sys.executable, "-m", "overnight", "--home"]


def until(true: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def left_of(member: str) -> list[str]:
    """Return all remaining cgroups, processes and mounts of a member, in any namespace."""
    leftovers = [str(path) for path in pathlib.Path("/sys/fs/cgroup").glob(f"*/*{member}*")]
    leftovers += [str(path) for path in pathlib.Path("/sys/fs/cgroup").glob(f"*{member}*")]
    leftovers += [str(path) for path in pathlib.Path("/run/systemd/nspawn").glob(f"*/*{member}*")]
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "cgroup", "mountinfo"):
            # A zombie has no command line and no mounts, and its cgroup is shown as deleted.
            with contextlib.suppress(OSError):
                text = (process / name).read_text(errors="replace")
                leftovers += [
                    f"{process}/{name}: {line}"
                    for line in text.splitlines()
                    if member in line and "(deleted)" not in line
                ]
    return leftovers


def leader_of(machine: pools.Machine) -> int:
    return int(machine.address.partition("#")[2])


def inside(address: str, *command: str) -> str:
    leader = address.partition("#")[2]
    result = subprocess.run(
        ["nsenter", "--target", leader, "--all", "--", *command],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    return result.stdout.strip()


def order(member: str, **fields: str) -> pools.Order:
    # Nothing listens on port 9: the agent retries forever.
    defaults = {"owner": "me", "pool": "ci", "template": "plain", **fields}
    return pools.Order(
        member_id=member, endpoint="http://127.0.0.1:9", token="5" * 64, **defaults
    )  # fmt: skip


def drained(plane: control.ControlPlane) -> bool:
    plane.drain("ci")
    for member in plane.show("ci").members:
        plane.terminate(member.id)
    return not plane.show("ci").members


@contextlib.contextmanager
def served(home: pathlib.Path) -> Iterator[subprocess.Popen[str]]:
    command = [*SERVE, str(home), "pool", "serve", "--interval", "1s"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as serving:
        try:
            serving.stderr.readline()
            yield serving
        finally:
            serving.kill()
