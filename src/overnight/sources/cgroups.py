"""Where the memory controller lives: cgroup v1, v2, or a hybrid of both.

Probes mounts, never kernel versions: a 6.18 host may run v1 (measured), and distributions
switched at different times. /proc/self/mountinfo, one mount a line::

    31 24 0:27 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
    39 24 0:35 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""

from __future__ import annotations

import dataclasses
import pathlib

from overnight import sources

__all__ = ["CgroupLayout", "parse_layout", "read_layout"]


@dataclasses.dataclass(frozen=True)
class CgroupLayout:
    """Which cgroup hierarchies are mounted, and where the memory controller is."""

    version: str  # "v1", "v2", "hybrid" or "none"
    memory: pathlib.PurePosixPath | None
    unified: pathlib.PurePosixPath | None


def parse_layout(mountinfo: str) -> CgroupLayout:
    """The layout that a mountinfo text describes.

    >>> parse_layout("30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw").version
    'v2'
    """
    memory = unified = None
    v1 = False
    for line in mountinfo.splitlines():
        left, dash, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if not dash or len(fields) < 5 or len(kind) < 3:
            continue
        if kind[0] == "cgroup2":
            unified = unified or pathlib.PurePosixPath(fields[4])
        elif kind[0] == "cgroup":
            v1 = True
            if "memory" in kind[2].split(","):
                memory = memory or pathlib.PurePosixPath(fields[4])
    version = ("hybrid" if unified else "v1") if v1 else "v2" if unified else "none"
    return CgroupLayout(version, memory or unified, unified)


def read_layout(root: pathlib.Path = sources.ROOT) -> CgroupLayout:
    """The layout of this host."""
    return parse_layout((root / "proc/self/mountinfo").read_text())
