"""How many memory cgroups the kernel tracks, and how many of them are in use or dying.

A cgroup whose directory was removed stays, dying, while one page is still charged to it. cgroup v1
counts both kinds in /proc/cgroups, the root included; the directories are those in use::

    #subsys_name    hierarchy       num_cgroups     enabled
    memory          4               68680           1

v2 counts the dying ones in `cgroup.stat` (the last two lines from about 6.12)::

    nr_descendants 239
    nr_dying_descendants 68440
    nr_subsys_memory 240
    nr_dying_subsys_memory 68440

On v2, `cgroup.stat` of each directory counts the dying cgroups below it. v1 has no such count, but their
memory is still charged to the directory above them: see `parents.read_parents`.
"""

from __future__ import annotations

import pathlib
import time

from overnight import sources
from overnight.sources.memorycgroups import counts, parents


def open_census(root: pathlib.Path) -> sources.Reader:
    layout = counts.read_layout(root)
    timer = counts.StatTimer(layout, root)

    def read() -> sources.Rows:
        now = counts.read_census(layout, root)
        return {"": (now.tracked, now.in_use, now.dying, timer.read(), timer.reads)}

    return read


def open_parents(root: pathlib.Path) -> sources.Reader:
    """Open a reader of `memory-cgroup-parents`; after a slow read it pauses for an hour."""
    layout = counts.read_layout(root)
    rows: dict[str, tuple[int, ...]] = {}
    paused_until = 0.0

    def read() -> sources.Rows:
        nonlocal rows, paused_until
        began = time.monotonic()
        if began >= paused_until:
            dying = counts.read_census(layout, root).dying
            rows = {
                parent.path: (parent.dying, parent.at_least, parent.at_most, parent.in_use)
                for parent in parents.read_parents(layout, dying, root)
            }
            if time.monotonic() - began > counts.STAT_SLOW_S:
                paused_until = began + counts.STAT_REST
        return rows

    return read


CENSUS = ("tracked", "in_use", "dying", "stat_read", "stat_reads")
PARENTS = ("dying", "at_least", "at_most", "in_use")
SIGNALS = (
    sources.Signal("memory-cgroups", 60.0, "", CENSUS, open_census),
    sources.Signal("memory-cgroup-parents", 600.0, "cgroup", PARENTS, open_parents),
)
