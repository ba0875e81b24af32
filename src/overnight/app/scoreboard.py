"""How rehearsals ended: one outcome each, and the scoreboard of many."""

from __future__ import annotations

import collections
import dataclasses
import pathlib
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from overnight.reports.diagnosis import json as documents

if TYPE_CHECKING:
    from overnight.model.truth import Truth
    from overnight.model.verdict import Verdict
    from overnight.rehearsals import victim as victims
    from overnight.reports import diagnosis

__all__ = ["SCHEMA", "Outcome", "Score", "score"]

SCHEMA = "overnight.rehearsal/1"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One rehearsal, as it ended."""

    scenario: str
    seed: int
    brief: bool
    run: str
    correct: bool
    rank: int  # of the right chain: 1 is the one claimed, 0 where it is nowhere
    event_to_verdict_s: float | None
    seconds: float
    verdict: Verdict | None
    problems: tuple[str, ...]  # where the verdict differs from the truth, and what was not undone
    missed: tuple[str, ...]  # kinds of the true chain that the claimed one does not have
    expected: Truth
    facts: dict[str, object]
    victim: victims.Status
    events: int
    leftovers: tuple[str, ...]
    others: tuple[str, ...]  # new on this host meanwhile, and not by name the run's
    home: pathlib.Path
    report: pathlib.Path | None
    replayed: bool = False
    material: diagnosis.Material | None = None  # for whoever shows the verdict

    def as_json(self) -> dict[str, object]:
        """Schema rehearsal-1."""
        said = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name != "material"
        }
        return {
            "schema": SCHEMA,
            **said,
            "verdict": documents.document(self.verdict) if self.verdict else None,
            "expected": self.expected.as_json(),
            "victim": self.victim.as_json(),
            "problems": list(self.problems),
            "missed": list(self.missed),
            "leftovers": list(self.leftovers),
            "others": list(self.others),
            "home": str(self.home),
            "report": str(self.report) if self.report else None,
        }


@dataclasses.dataclass(frozen=True)
class Score:
    """All runs of one scenario."""

    scenario: str
    runs: int
    right: int  # the true chain was the one claimed
    ranks: tuple[int, ...]
    event_to_verdict_s: float | None  # median of those with an event
    missed: tuple[tuple[str, int], ...]  # kinds of the true chain that were not claimed, how often
    wrong: tuple[str, ...]  # what was said instead, each once
    left: int  # runs that left something behind


def score(outcomes: Sequence[Outcome]) -> tuple[Score, ...]:
    """By scenario, in the order in which they first came."""
    by_name: dict[str, list[Outcome]] = {}
    for one in outcomes:
        by_name.setdefault(one.scenario, []).append(one)
    made = []
    for name, runs in by_name.items():
        took = [one.event_to_verdict_s for one in runs if one.event_to_verdict_s is not None]
        missed = collections.Counter(kind for one in runs for kind in one.missed)
        wrong = [text for one in runs if not one.correct for text in one.problems]
        made.append(
            Score(
                scenario=name,
                runs=len(runs),
                right=sum(one.correct for one in runs),
                ranks=tuple(one.rank for one in runs),
                event_to_verdict_s=statistics.median(took) if took else None,
                missed=tuple(missed.most_common()),
                wrong=tuple(dict.fromkeys(wrong)),
                left=sum(bool(one.leftovers) for one in runs),
            )
        )
    return tuple(made)
