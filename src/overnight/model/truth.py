"""The truth about an incident caused on purpose, and the comparison of a verdict with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from overnight.model.verdict import VerdictStatus

if TYPE_CHECKING:
    from overnight.model.finding import Finding
    from overnight.model.verdict import Verdict

Part = str | int | frozenset[str]
Expected = tuple[str, Mapping[str, Part]]

# All kinds of causes. A truth forbids those that its incident does not have.
CAUSES = frozenset(
    (
        "net.softirq_storm", "cpu.rt_hog", "memory.zombie_cgroups", "unit.crash_loop",
        "unit.hidden_crash_loop", "memory.cgroup_walk", "memory.reclaim", "kernel.lock_contention",
        "memory.oom", "cpu.stall", "process.spawn_storm", "storage.fault", "limit.near", "recorder.cost",
    )
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Truth:
    """`chain` is root first: a verdict's chain must hold these in this order, possibly with others between.

    A part of a subject is the value itself, or a set of accepted values. `absent` are kinds that must not be in
    the claimed chain.
    """

    status: VerdictStatus
    chain: tuple[Expected, ...] = ()
    absent: frozenset[str] = frozenset()

    def problems(self, verdict: Verdict) -> list[str]:
        """Describe where a verdict differs from the truth; empty when it is right."""
        problems = []
        if verdict.status != self.status:
            problems.append(f"status {verdict.status}, not {self.status}")
        steps = list(verdict.chain.steps) if verdict.chain else []
        problems += [f"{step.kind} is in the chain" for step in steps if step.kind in self.absent]
        if self.status is not VerdictStatus.CAUSE_FOUND and not steps:
            return problems  # the event alone is not a chain
        return problems + self._missing(steps)

    def rank(self, verdict: Verdict) -> int:
        """Return the rank of the right chain: 1 is the claimed one, 2 the runner-up, 0 not found."""
        if not self.problems(verdict):
            return 1
        chains = [chain for chain in (verdict.chain, *verdict.alternatives) if chain is not None]
        for place, chain in enumerate(chains, 1):
            kinds = {step.kind for step in chain.steps}
            if self.chain and not self._missing(chain.steps) and not kinds & self.absent:
                return max(place, 2)
        return 0

    def missed(self, verdict: Verdict) -> tuple[str, ...]:
        """Return the kinds of the true chain that were not claimed."""
        claimed = {step.kind for step in verdict.chain.steps} if verdict.chain else set()
        return tuple(kind for kind, _ in self.chain if kind not in claimed)

    def as_json(self) -> dict[str, object]:
        """Return the form stored with a recorded rehearsal."""
        chain = [
            {"kind": kind, "subject": {name: _as_json(part) for name, part in parts.items()}}
            for kind, parts in self.chain
        ]
        return {"status": self.status, "chain": chain, "absent": sorted(self.absent)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        chain = tuple(
            (str(step["kind"]), {name: _from_json(part) for name, part in step["subject"].items()})
            for step in document["chain"]
        )
        absent = frozenset(map(str, document["absent"]))
        return cls(VerdictStatus(document["status"]), chain, absent)

    def _missing(self, steps: Sequence[Finding]) -> list[str]:
        problems = []
        kinds = [step.kind for step in steps]
        at = 0
        for kind, parts in self.chain:
            place = next((n for n in range(at, len(steps)) if kinds[n] == kind), None)
            if place is None:
                problems.append(f"{kind} is missing from the chain {kinds}, or out of order")
                continue
            subject = steps[place].subject.as_json()
            problems += [
                f"{kind}: {name} is {subject.get(name)!r}, not {right!r}"
                for name, right in parts.items()
                if not _is_right(subject.get(name), right)
            ]
            at = place + 1
        return problems


def _as_json(part: Part) -> str | int | list[str]:
    return sorted(part) if isinstance(part, frozenset) else part


def _from_json(part: str | int | list[str]) -> Part:
    return frozenset(part) if isinstance(part, list) else part


def _is_right(value: object, right: Part) -> bool:
    return value in right if isinstance(right, frozenset) else value == right


def forbidden(chain: tuple[Expected, ...]) -> frozenset[str]:
    """Return the causes that are not in this chain."""
    return CAUSES - {kind for kind, _ in chain}
