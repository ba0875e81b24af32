"""Counts memory cgroups, and measures how long the kernel takes to sum their statistics."""

from __future__ import annotations

import dataclasses
import pathlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from overnight import sources

if TYPE_CHECKING:
    from overnight.model import cgroups

STAT_EVERY = 600.0
STAT_SLOW_S = 0.1
STAT_REST = 3600.0  # on an affected host the read itself saturates a core: pause after one
MAX_DIRECTORIES = 200_000
ROOM = 65536  # numa_stat is long where there are many nodes


@dataclasses.dataclass(frozen=True)
class Census:
    """One count. `tracked` is the sum of those in use and those dying."""

    tracked: int
    in_use: int
    dying: int


def parse_tracked(proc_cgroups: bytes) -> int | None:
    """Parse the memory controller's count; None where it is off, or left out as on some v2 kernels.

    >>> parse_tracked(b"#subsys_name\\thierarchy\\tnum_cgroups\\tenabled\\nmemory\\t4\\t68680\\t1\\n")
    68680
    """
    for line in proc_cgroups.splitlines():
        fields = line.split()
        if len(fields) == 4 and fields[0] == b"memory":
            return int(fields[2]) if fields[3] == b"1" else None
    return None


def parse_cgroup_stat(text: bytes) -> dict[str, int]:
    """Parse a v2 `cgroup.stat`, or any other file with a name and a number per line."""
    counts = {}
    for line in text.splitlines():
        name, _, number = line.partition(b" ")
        if number.isdigit():
            counts[name.decode("ascii", "replace")] = int(number)
    return counts


def count_directories(top: str) -> int:
    """Count the cgroups in use from `top` down, itself included."""
    count = 0
    waiting = [top]
    while waiting and count < MAX_DIRECTORIES:
        count += 1
        waiting.extend(child.path for child in sources.child_directories(waiting.pop()))
    return count


def read_layout(root: pathlib.Path) -> cgroups.Layout:
    """Read the layout; raise NoDataError where the host's memory controller is not visible."""
    layout = sources.read_cgroup_layout(root)
    if layout.memory is None:
        raise sources.NoDataError("no memory controller is mounted")
    if not layout.whole:
        raise sources.NoDataError("only a part of the memory controller's hierarchy is mounted")
    return layout


def folder_of(layout: cgroups.Layout, root: pathlib.Path) -> str:
    """Return the path of the memory hierarchy's root directory."""
    assert layout.memory is not None
    return str(root / layout.memory.relative_to("/"))


def read_census(layout: cgroups.Layout, root: pathlib.Path = sources.ROOT) -> Census:
    top = folder_of(layout, root)
    if layout.memory_version == 2:
        stat = parse_cgroup_stat(sources.read_once(f"{top}/cgroup.stat") or b"")
        if "nr_dying_descendants" not in stat:
            raise sources.NoDataError(f"{top}/cgroup.stat does not count dying cgroups")
        # Not every cgroup has the memory controller: prefer the kernel's own count of those.
        in_use = stat.get("nr_subsys_memory", stat.get("nr_descendants", 0) + 1)
        dying = stat.get("nr_dying_subsys_memory", stat["nr_dying_descendants"])
        return Census(in_use + dying, in_use, dying)
    before = _tracked(root)
    for _ in range(3):
        in_use = count_directories(top)
        tracked = _tracked(root)
        if before == tracked:
            break  # else cgroups were created or removed meanwhile: count again
        before = tracked
    return Census(tracked, in_use, max(0, tracked - in_use))


def _tracked(root: pathlib.Path) -> int:
    tracked = parse_tracked(sources.read_once(root / "proc/cgroups") or b"")
    if tracked is None:
        raise sources.NoDataError("/proc/cgroups does not count memory cgroups")
    return tracked


class StatTimer:
    """Measures how long a read of the root's statistics takes; it grows with every dying cgroup.

    Reads at most every ten minutes, and not for an hour after a read of more than 100 ms.
    """

    def __init__(
        self,
        layout: cgroups.Layout,
        root: pathlib.Path = sources.ROOT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        names = ("memory.stat", "memory.numa_stat") if layout.memory_version == 1 else ("memory.stat",)  # fmt: skip
        top = folder_of(layout, root)
        self._paths = [f"{top}/{name}" for name in names]
        self._clock = clock
        self._next = 0.0
        self.reads = 0
        self.slowest_us = 0

    def read(self) -> int:
        """Return the microseconds of the slower file at the last read; 0 when none could be read."""
        now = self._clock()
        if self.reads and now < self._next:
            return self.slowest_us
        slowest = 0.0
        for path in self._paths:
            began = self._clock()
            if sources.read_once(path, ROOM) is None:
                continue
            slowest = max(slowest, self._clock() - began)
            if slowest > STAT_SLOW_S:
                break
        self.reads += 1
        self.slowest_us = round(slowest * 1e6)
        self._next = now + (STAT_REST if slowest > STAT_SLOW_S else STAT_EVERY)
        return self.slowest_us
