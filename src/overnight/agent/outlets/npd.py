"""The counters that node-problem-detector's users already have on their dashboards.

`problem_counter{reason}` and `problem_gauge{type,reason}` keep its names and its meaning: a counter of
each temporary problem, and 1 while a permanent one holds. Our kinds are mapped to its reasons where it
has one; the others are told in the same way, PascalCase.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from overnight.agent import outlets

__all__ = ["condition_of", "counters", "reason_of"]

REASONS = {
    "memory.oom_kill": "OOMKilling",
    "task.hung": "TaskHung",
    "storage.readonly": "FilesystemIsReadOnly",
    "cpu.soft_lockup": "SoftLockup",
    "cpu.hard_lockup": "HardLockup",
}
# What lasts: it is a condition of the node while it holds, not one more event.
CONDITIONS = {
    "memory.zombie_cgroups": "ZombieMemoryCgroups",
    "unit.crash_loop": "UnitCrashLoop",
    "unit.hidden_crash_loop": "UnitCrashLoop",
    "limit.near": "KernelLimitNear",
    "storage.readonly": "ReadonlyFilesystem",
    "clock.unsynchronised": "ClockUnsynchronised",
}


def reason_of(kind: str) -> str:
    """The reason of a kind.

    >>> reason_of("net.driver_reset"), reason_of("memory.oom_kill")
    ('NetDriverReset', 'OOMKilling')
    """
    known = REASONS.get(kind)
    words = kind.replace(".", "_").replace("-", "_").split("_")
    return known or "".join(word[:1].upper() + word[1:] for word in words)


def condition_of(kind: str) -> str:
    """The NodeCondition of a kind that lasts; '' for one that is over when it happened."""
    return CONDITIONS.get(kind, "")


def counters(
    family: Callable[[str, str, str, Iterable[tuple[Mapping[str, object], float]]], None],
    standing: outlets.Standing,
) -> None:
    """Both families, told to `family`."""
    by_reason: dict[str, int] = {}
    for (kind, _), count in standing.counts.items():
        by_reason[reason_of(kind)] = by_reason.get(reason_of(kind), 0) + count
    family(
        "problem_counter",
        "unknown",  # its name has no _total: a counter by OpenMetrics' own rule could not have it
        "Number of times a specific type of problem have occurred.",
        [({"reason": reason}, count) for reason, count in sorted(by_reason.items())],
    )
    holding = {
        (condition_of(one.kind), reason_of(one.kind))
        for one in standing.open
        if condition_of(one.kind)
    }
    known = {
        (condition_of(kind), reason_of(kind)) for kind, _ in standing.counts if condition_of(kind)
    }
    family(
        "problem_gauge",
        "gauge",
        "Whether a specific type of problem is affecting the node or not.",
        [
            ({"type": condition, "reason": reason}, float((condition, reason) in holding))
            for condition, reason in sorted(known | holding)
        ],
    )
