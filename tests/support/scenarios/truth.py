"""What is true of a made-up night, and whether a verdict says so."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from overnight.store.ring import reader

if TYPE_CHECKING:
    from overnight.model import event, verdict

Part = str | int | frozenset[str]
Expected = tuple[str, Mapping[str, Part]]
EVER = 1 << 62

FOUND, OPEN, NONE = "cause-found", "inconclusive", "no-cause"
# Kinds of causes. A truth forbids those that its night does not have.
CAUSES = frozenset(
    (
        "net.softirq_storm", "cpu.rt_hog", "memory.zombie_cgroups", "unit.crash_loop",
        "unit.hidden_crash_loop", "memory.cgroup_walk", "memory.reclaim", "kernel.lock_contention",
        "memory.oom", "cpu.stall", "storage.fault", "limit.near", "recorder.cost",
    )
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Truth:
    """`chain` is root first: a verdict's chain holds these in this order, others may stand between.

    A part of a subject is the value itself, or a set of values of which one is right. `others` are
    further events of the same home with truths of their own. `facts` has what the seed chose.
    """

    name: str
    home: pathlib.Path
    host: str
    event: event.Event | None
    chain: tuple[Expected, ...]
    absent: frozenset[str]
    status: str
    others: tuple[Truth, ...] = ()
    facts: Mapping[str, object] = dataclasses.field(default_factory=dict)

    def problems(self, said: verdict.Verdict) -> list[str]:
        """Where a verdict differs from the truth, in words; none when it is right."""
        found = []
        if said.status != self.status:
            found.append(f"status {said.status}, not {self.status}")
        steps = list(said.chain.steps) if said.chain else []
        kinds = [step.kind for step in steps]
        found += [f"{kind} is in the chain" for kind in kinds if kind in self.absent]
        if self.status != "cause-found" and not steps:
            return found  # the event alone is no chain
        at = 0
        for kind, parts in self.chain:
            place = next((n for n in range(at, len(steps)) if kinds[n] == kind), None)
            if place is None:
                found.append(f"{kind} is not in the chain {kinds}, or not in its place")
                continue
            subject = steps[place].subject.as_json()
            found += [
                f"{kind}: {name} is {subject.get(name)!r}, not {right!r}"
                for name, right in parts.items()
                if not _is_right(subject.get(name), right)
            ]
            at = place + 1
        return found


def _is_right(said: object, right: Part) -> bool:
    return said in right if isinstance(right, frozenset) else said == right


def forbidden(chain: tuple[Expected, ...]) -> frozenset[str]:
    """Causes that are none here."""
    return CAUSES - {kind for kind, _ in chain}


def find_event(home: pathlib.Path, host: str, kind: str, near_us: int) -> event.Event:
    """The event of a kind that the agent wrote down nearest to a time."""
    told = reader.Reader(home).events(0, EVER, (host,), [kind])
    return min(told, key=lambda one: abs(one.time_us - near_us))
