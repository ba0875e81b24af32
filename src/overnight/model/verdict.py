"""What is said in the morning: the chain from the cause to the event, how sure, and what next."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from overnight.model.event import Event
    from overnight.model.finding import Answer, Finding

__all__ = ["SCHEMA", "Chain", "Gap", "Link", "RuledOut", "Step", "Verdict"]

SCHEMA = "overnight.diagnosis/1"


@dataclasses.dataclass(frozen=True)
class Link:
    """Why one finding is held to cause the next: arguments for and against, each in words.

    `strength` is from 0 to 1 and follows from these: time order, place, magnitude, recurrence.
    """

    cause: str  # finding ids
    effect: str
    strength: float
    reasons: tuple[str, ...]
    against: tuple[str, ...] = ()

    def as_json(self) -> dict[str, object]:
        """The stable form."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Chain:
    """Findings in causal order, the root first, the event last; `score` ranks chains."""

    steps: tuple[Finding, ...]
    links: tuple[Link, ...]
    score: float
    why_not: str = ""  # for a runner-up: why it lost

    def as_json(self) -> dict[str, object]:
        """The stable form."""
        return {
            "score": round(self.score, 3),
            "why_not": self.why_not,
            "chain": [one.as_json() for one in self.steps],
            "links": [one.as_json() for one in self.links],
        }


@dataclasses.dataclass(frozen=True)
class Gap:
    """Evidence that is missing, and by how much that lowers the confidence (a factor from 0 to 1)."""

    what: str
    why: str
    factor: float = 1.0

    def as_json(self) -> dict[str, object]:
        """The stable form."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Step:
    """One step of an experiment or a fix: what to do, the command, and what to expect then."""

    what: str
    command: str = ""
    expect: str = ""

    def as_json(self) -> dict[str, object]:
        """The stable form."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class RuledOut:
    """A finding that is in no chain, and in words why no line of links leads from it to the event."""

    finding: str  # its id
    kind: str
    why: str

    def as_json(self) -> dict[str, object]:
        """The stable form."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The diagnosis of one event. `status`: cause-found, inconclusive or no-cause."""

    event: Event | None
    status: str
    confidence: float
    summary: str
    chain: Chain | None
    alternatives: tuple[Chain, ...]
    gaps: tuple[Gap, ...]
    next: tuple[Step, ...]  # the experiment that confirms or refutes
    fix: tuple[Step, ...]
    answers: tuple[Answer, ...]
    findings: tuple[Finding, ...]
    fleet: Mapping[str, object] = dataclasses.field(default_factory=dict)
    ruled_out: tuple[RuledOut, ...] = ()

    def as_json(self) -> dict[str, object]:
        """Schema diagnosis-1."""
        chain = self.chain.as_json() if self.chain else {"chain": [], "links": []}
        return {
            "schema": SCHEMA,
            "event": self.event.as_json() if self.event else None,
            "verdict": {
                "status": self.status,
                "confidence": round(self.confidence, 3),
                "summary": self.summary,
                "chain": chain["chain"],
                "links": chain["links"],
            },
            "alternatives": [one.as_json() for one in self.alternatives],
            "gaps": [one.as_json() for one in self.gaps],
            "next": [one.as_json() for one in self.next],
            "fix": [one.as_json() for one in self.fix],
            "findings": [one.as_json() for one in self.findings],
            "detectors": [one.as_json() for one in self.answers],
            "fleet": dict(self.fleet),
            "ruled_out": [one.as_json() for one in self.ruled_out],
        }
