"""What is true of an incident that was made on purpose, and whether a verdict says so."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from overnight.model.finding import Finding
    from overnight.model.verdict import Verdict

__all__ = ["CAUSES", "FOUND", "NONE", "OPEN", "Expected", "Part", "Truth", "forbidden"]

Part = str | int | frozenset[str]
Expected = tuple[str, Mapping[str, Part]]

FOUND, OPEN, NONE = "cause-found", "inconclusive", "no-cause"
# Kinds of causes. A truth forbids those that its incident does not have.
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

    A part of a subject is the value itself, or a set of values of which one is right. `absent` are
    kinds that must not be in the chain that is claimed.
    """

    status: str
    chain: tuple[Expected, ...] = ()
    absent: frozenset[str] = frozenset()

    def problems(self, said: Verdict) -> list[str]:
        """Where a verdict differs from the truth, in words; none when it is right."""
        found = []
        if said.status != self.status:
            found.append(f"status {said.status}, not {self.status}")
        steps = list(said.chain.steps) if said.chain else []
        found += [f"{step.kind} is in the chain" for step in steps if step.kind in self.absent]
        if self.status != FOUND and not steps:
            return found  # the event alone is no chain
        return found + self._missing(steps)

    def rank(self, said: Verdict) -> int:
        """The place of the right chain: 1 is the one claimed, 2 the runner-up; 0 where it is nowhere."""
        if not self.problems(said):
            return 1
        chains = [one for one in (said.chain, *said.alternatives) if one is not None]
        for place, one in enumerate(chains, 1):
            kinds = {step.kind for step in one.steps}
            if self.chain and not self._missing(one.steps) and not kinds & self.absent:
                return max(place, 2)
        return 0

    def as_json(self) -> dict[str, object]:
        """The form in which a recorded rehearsal keeps it."""
        return {
            "status": self.status,
            "chain": [
                {
                    "kind": kind,
                    "subject": {
                        name: sorted(part) if isinstance(part, frozenset) else part
                        for name, part in parts.items()
                    },
                }
                for kind, parts in self.chain
            ],
            "absent": sorted(self.absent),
        }

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Self:
        """What `as_json` wrote."""
        chain = tuple(
            (
                str(one["kind"]),
                {
                    str(name): frozenset(part) if isinstance(part, list) else part
                    for name, part in one["subject"].items()
                },
            )
            for one in said["chain"]
        )
        return cls(str(said["status"]), chain, frozenset(map(str, said["absent"])))

    def _missing(self, steps: Sequence[Finding]) -> list[str]:
        found = []
        kinds = [step.kind for step in steps]
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
