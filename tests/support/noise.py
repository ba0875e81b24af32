"""Other work on the machine: get a share of the cores for a test, and measure how long it waited.

A test that says "within a second" means a second in which the process could run. The kernel counts how
long each thread was runnable and had to wait for a core (/proc/PID/task/TID/schedstat, second field).
"""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Iterable, Iterator

from overnight.app import rehearsal_host

__all__ = [
    "HANG_SECONDS",
    "find_quietest_core",
    "prefer_this_process",
    "read_waited",
]

# For waits that only guard against a hang: nothing is proven by how short they are.
HANG_SECONDS = 60.0
CPU_HIERARCHY = pathlib.Path("/sys/fs/cgroup/cpu")  # cgroup v1
# A process outside counts 1,024, and with autogroup a whole session does.
PREFERRED_SHARES = 64 * 1024


@contextlib.contextmanager
def prefer_this_process() -> Iterator[None]:
    """Give this process, and all that it starts, most of every core, even if others use it.

    Only cgroup v1 has a hierarchy for the CPU alone: on v2 a rehearsal's machine is in another cgroup than its
    victim, and would no longer compete with it.
    """
    for left in CPU_HIERARCHY.glob("overnight-test-*"):  # of a run that was killed
        if not pathlib.Path("/proc", left.name.rpartition("-")[2]).exists():
            _remove(left)
    group = CPU_HIERARCHY / f"overnight-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "cpu.shares").write_text(str(PREFERRED_SHARES))
    except OSError:
        yield
        return
    parent = find_cpu_cgroup(pathlib.Path("/proc/self/cgroup").read_text())
    (group / "cgroup.procs").write_text("0")
    try:
        yield
    finally:
        _remove(group, CPU_HIERARCHY / parent)


def find_cpu_cgroup(text: str) -> str:
    """Return a process's cgroup in the v1 hierarchy of the CPU, relative to its root.

    >>> find_cpu_cgroup("4:cpu,cpuacct:/user.slice\\n3:cpuset:/")
    'user.slice'
    """
    lines = (line.split(":", 2) for line in text.splitlines())
    return next(path for _, names, path in lines if "cpu" in names.split(",")).lstrip("/")


def _remove(group: pathlib.Path, parent: pathlib.Path = CPU_HIERARCHY) -> None:
    while pids := (group / "cgroup.procs").read_text().split():
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                (parent / "cgroup.procs").write_text(pid)
    group.rmdir()


def read_waited(pids: Iterable[int]) -> float:
    """Return the seconds that threads of these processes have waited for a core; ended threads count as 0."""
    total = 0
    for pid in pids:
        for path in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):
                total += int(path.read_text().split()[1])
    return total / 1e9


def find_quietest_core() -> int:
    """Return the allowed core that is least busy now."""
    used = rehearsal_host.measure_busy()
    return min(os.sched_getaffinity(0), key=lambda core: used[core])
