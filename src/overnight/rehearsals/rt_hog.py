"""A real-time process on the victim's core: nothing of normal priority runs beside it.

The kernel leaves the others 5 % of each second (sched_rt_runtime_us, or the fair server since 6.8), so the
host survives, and the victim falls behind by almost a second in each second.
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

THROTTLE = pathlib.Path("/proc/sys/kernel/sched_rt_runtime_us")
# Root of the cpu controller: v2, and v1 by its usual names.
ROOTS = tuple(
    pathlib.Path("/sys/fs/cgroup", name)
    for name in ("cgroup.procs", "cpu/tasks", "cpu,cpuacct/tasks")
)
PERIOD_SECONDS = 0.1


class RealTimeHog:
    name = "rt-hog"
    about = "A real-time process (SCHED_FIFO) takes the victim's core."
    needs: tuple[str, ...] = ("root", "kmsg", "netns", "realtime")
    has_event = True

    def prepare(self, stage: rehearsals.Stage) -> None:
        """Draw name and duty; refuse a host without the kernel's limit for real-time processes."""
        if THROTTLE.read_text().strip() == "-1":
            raise errors.CannotError(
                "a real-time process would block a core completely on this host",
                why="kernel.sched_rt_runtime_us is -1, so the kernel leaves other processes no time",
                todo="sysctl kernel.sched_rt_runtime_us=950000, or choose another rehearsal",
            )
        word = stage.chance.choice(("ptp", "audio", "fieldbus", "dpdk", "servo", "motion"))
        stage.facts["process"] = f"{word}-{stage.chance.choice(('poll', 'loop', 'rt', 'tick'))}"
        stage.facts["priority"] = stage.chance.choice((20, 50, 80, 95))
        stage.facts["duty"] = round(stage.chance.uniform(0.86, 1.0), 3)

    def strike(self, stage: rehearsals.Stage) -> None:
        processes.start_fault(stage, "overnight.rehearsals.rt_hog", core=stage.core, seconds=120)

    def truth(self, stage: rehearsals.Stage) -> Truth:
        return rehearsals.starved_by_process(stage, "cpu.rt_hog")


def main() -> None:
    """Keep the core busy for the duty share of each period."""
    settings = processes.begin()
    become_realtime(settings["priority"])
    block = bytes(64 << 10)
    while True:
        begin = time.monotonic()
        while time.monotonic() - begin < PERIOD_SECONDS * settings["duty"]:
            hashlib.sha256(block).digest()
        if settings["duty"] < 1:
            time.sleep(PERIOD_SECONDS * (1 - settings["duty"]))


def become_realtime(priority: int, roots: Sequence[pathlib.Path] = ROOTS) -> None:
    """Switch to SCHED_FIFO, from the root cgroup if needed: CONFIG_RT_GROUP_SCHED allows it only there."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
        return
    for tasks in filter(pathlib.Path.exists, roots):  # on v1 /sys/fs/cgroup is a tmpfs: no new file
        with contextlib.suppress(OSError):  # read-only in a container
            tasks.write_text(str(os.getpid()))
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
    except PermissionError:
        sys.exit("the kernel refuses real-time priority, also in the root cgroup")


REHEARSALS = (RealTimeHog(),)

if __name__ == "__main__":
    main()
