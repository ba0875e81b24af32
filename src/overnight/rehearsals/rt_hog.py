"""A real-time process on the victim's core: nothing of ordinary priority runs beside it.

The kernel leaves the others 5 % of each second (sched_rt_runtime_us, or the fair server since 6.8), so
the host goes on, and the victim falls behind by almost a second in each.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from overnight import errors, rehearsals
from overnight.rehearsals import processes

if TYPE_CHECKING:
    from overnight.model.truth import Truth

__all__ = ["REHEARSALS", "RealTimeHog", "become_realtime", "main"]

THROTTLE = pathlib.Path("/proc/sys/kernel/sched_rt_runtime_us")
# Of the hierarchy that shares processor time: v2, and v1 by its usual names.
ROOTS = tuple(
    pathlib.Path("/sys/fs/cgroup", name)
    for name in ("cgroup.procs", "cpu/tasks", "cpu,cpuacct/tasks")
)
PERIOD_SECONDS = 0.1


class RealTimeHog:
    """A `Rehearsal`."""

    name = "rt-hog"
    about = "A real-time process (SCHED_FIFO) takes the victim's core."
    needs = ("root", "kmsg", "netns", "realtime")
    has_event = True

    def prepare(self, stage: rehearsals.Stage) -> None:
        """Draw its name; a host without the kernel's limit for real-time processes is left alone."""
        if THROTTLE.read_text().strip() == "-1":
            raise errors.CannotError(
                "a real-time process would take a core for good here",
                why="kernel.sched_rt_runtime_us is -1: the kernel leaves others no time beside it",
                todo="choose another rehearsal, or set it to 950000 first",
            )
        word = stage.chance.choice(("ptp", "audio", "fieldbus", "dpdk", "servo", "motion"))
        stage.facts["process"] = f"{word}-{stage.chance.choice(('poll', 'loop', 'rt', 'tick'))}"
        stage.facts["priority"] = stage.chance.choice((20, 50, 80, 95))
        stage.facts["duty"] = round(stage.chance.uniform(0.86, 1.0), 3)

    def strike(self, stage: rehearsals.Stage) -> None:
        """It polls on the victim's core."""
        hog = processes.start(
            stage,
            "overnight.rehearsals.rt_hog",
            name=str(stage.facts["process"]),
            core=stage.core,
            seconds=120,
            priority=stage.facts["priority"],
            duty=stage.facts["duty"],
        )
        processes.ends_with_fault(stage, hog)

    def truth(self, stage: rehearsals.Stage) -> Truth:
        """The real-time process, the full core, the reset."""
        process = str(stage.facts["process"])
        return rehearsals.starved(stage, ("cpu.rt_hog", {"core": stage.core, "process": process}))


def main() -> None:
    """The process: takes the core for its duty of each tenth of a second."""
    told = processes.begin()
    become_realtime(told["priority"])
    block = bytes(64 << 10)
    while True:
        begin = time.monotonic()
        while time.monotonic() - begin < PERIOD_SECONDS * told["duty"]:
            hashlib.sha256(block).digest()
        if told["duty"] < 1:
            time.sleep(PERIOD_SECONDS * (1 - told["duty"]))


def become_realtime(priority: int, roots: Sequence[pathlib.Path] = ROOTS) -> None:
    """SCHED_FIFO; a kernel with CONFIG_RT_GROUP_SCHED grants it to the root cgroup alone: then from there."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
        return
    for one in roots:
        with contextlib.suppress(OSError):
            one.write_text(str(os.getpid()))
            break
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
    except PermissionError:
        sys.exit("the kernel refuses real-time priority here, in the root cgroup, too")


REHEARSALS = (RealTimeHog(),)

if __name__ == "__main__":
    main()
