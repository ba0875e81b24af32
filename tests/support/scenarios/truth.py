"""The truth about a simulated night, and whether a verdict matches it."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from overnight.model import truth
from overnight.model.truth import CAUSES, Expected, Part, forbidden
from overnight.model.verdict import VerdictStatus
from overnight.store.ring import reader

if TYPE_CHECKING:
    from overnight.model.event import Event
    from overnight.model.verdict import Verdict

__all__ = [
    "CAUSES",
    "FOUND",
    "NONE",
    "OPEN",
    "Expected",
    "Part",
    "Truth",
    "VerdictStatus",
    "find_event",
    "forbidden",
]

EVER = 1 << 62
FOUND, OPEN, NONE = VerdictStatus.CAUSE_FOUND, VerdictStatus.INCONCLUSIVE, VerdictStatus.NO_CAUSE


@dataclasses.dataclass(frozen=True)
class Truth:
    """A truth with its night. `others` are further events of the same home with truths of their own;
    `facts` has what the seed chose.
    """

    name: str
    home: pathlib.Path
    host: str
    event: Event | None
    chain: tuple[Expected, ...]
    absent: frozenset[str]
    status: VerdictStatus
    others: tuple[Truth, ...] = ()
    facts: Mapping[str, object] = dataclasses.field(default_factory=dict)

    def problems(self, verdict: Verdict) -> list[str]:
        """Return the differences between a verdict and the truth; empty when it is right."""
        return truth.Truth(self.status, self.chain, self.absent).problems(verdict)


def find_event(home: pathlib.Path, host: str, kind: str, near_us: int) -> Event:
    """Return the recorded event of a kind that is nearest to a time."""
    events = reader.Reader(home).events(0, EVER, (host,), [kind])
    return min(events, key=lambda event: abs(event.time_us - near_us))
