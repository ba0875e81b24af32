"""The metrics of node-problem-detector, which users already have on their dashboards.

`problem_counter{reason}` and `problem_gauge{type,reason}` keep its names and its meaning: a counter of
each temporary problem, and 1 while a permanent one holds. Event kinds are mapped to its reasons where it
has one; for the others the reason is the kind in PascalCase.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from overnight.agent import outlets
    from overnight.model.openmetrics import Page

REASONS = {
    "memory.oom_kill": "OOMKilling",
    "task.hung": "TaskHung",
    "storage.readonly": "FilesystemIsReadOnly",
    "cpu.soft_lockup": "SoftLockup",
    "cpu.hard_lockup": "HardLockup",
}
# Kinds that last: a condition of the node while they hold.
CONDITIONS = {
    "memory.zombie_cgroups": "ZombieMemoryCgroups",
    "unit.crash_loop": "UnitCrashLoop",
    "unit.hidden_crash_loop": "UnitCrashLoop",
    "limit.near": "KernelLimitNear",
    "storage.readonly": "ReadonlyFilesystem",
    "clock.unsynchronised": "ClockUnsynchronised",
}


def reason_of(kind: str) -> str:
    """Return the reason of an event kind.

    >>> reason_of("net.driver_reset"), reason_of("memory.oom_kill")
    ('NetDriverReset', 'OOMKilling')
    """
    known = REASONS.get(kind)
    words = kind.replace(".", "_").replace("-", "_").split("_")
    return known or "".join(word[:1].upper() + word[1:] for word in words)


def add_families(page: Page, status: outlets.HostStatus) -> None:
    by_reason: collections.Counter[str] = collections.Counter()
    for (kind, _), count in status.counts.items():
        by_reason[reason_of(kind)] += count
    page.family(
        "problem_counter",
        "unknown",  # its name has no _total, which an OpenMetrics counter must have
        "Number of times a specific type of problem have occurred.",
        [({"reason": reason}, count) for reason, count in sorted(by_reason.items())],
    )
    holding, known = (
        {(CONDITIONS[kind], reason_of(kind)) for kind in kinds if kind in CONDITIONS}
        for kinds in ([event.kind for event in status.open], [kind for kind, _ in status.counts])
    )
    page.family(
        "problem_gauge",
        "gauge",
        "Whether a specific type of problem is affecting the node or not.",
        [
            ({"type": condition, "reason": reason}, float((condition, reason) in holding))
            for condition, reason in sorted(known | holding)
        ],
    )
