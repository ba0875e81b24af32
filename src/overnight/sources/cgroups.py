"""Where the memory controller is mounted: cgroup v1, v2, or a hybrid of both.

Reads the mounts, never the kernel version: a 6.18 host may run v1 (measured), and distributions
switched at different times. /proc/self/mountinfo, one mount a line::

    31 24 0:27 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
    39 24 0:35 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""

from __future__ import annotations

import pathlib

from overnight import sources
from overnight.model import cgroups


def read_layout(root: pathlib.Path = sources.ROOT) -> cgroups.Layout:
    """Read the layout of this host."""
    return cgroups.parse_layout((root / "proc/self/mountinfo").read_text())
