"""Outcomes of rehearsals, and the scoreboard of many."""

from __future__ import annotations

import collections
import dataclasses
import pathlib
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from overnight.reports.diagnosis import json as documents

if TYPE_CHECKING:
    from overnight.app import diagnose
    from overnight.model.truth import Truth
    from overnight.rehearsals import victim as victims

SCHEMA = "overnight.rehearsal/1"


@dataclasses.dataclass(frozen=True)
class Outcome:
    scenario: str
    seed: int
    brief: bool
    run: str
    correct: bool
    rank: int  # of the right chain: 1 is the claimed one, 0: not found
    event_to_verdict_s: float | None
    seconds: float
    diagnosis: diagnose.Diagnosis | None
    problems: tuple[str, ...]  # differences from the truth, and changes that were not undone
    missed: tuple[str, ...]  # kinds of the true chain that were not claimed
    expected: Truth
    facts: dict[str, object]
    victim: victims.Status
    events: int
    leftovers: tuple[str, ...]
    others: tuple[str, ...]  # appeared meanwhile, but not by this run
    home: pathlib.Path
    report: pathlib.Path | None
    replayed: bool = False
    disturbances: tuple[str, ...] = ()  # use of this host by others that may have changed the fault

    def as_json(self) -> dict[str, object]:
        """Schema rehearsal-1."""
        values = vars(self).copy()
        del values["diagnosis"]
        return {
            "schema": SCHEMA,
            **{name: list(v) if isinstance(v, tuple) else v for name, v in values.items()},
            "verdict": documents.document(self.diagnosis.verdict) if self.diagnosis else None,
            "expected": self.expected.as_json(),
            "victim": dataclasses.asdict(self.victim),
            "home": str(self.home),
            "report": str(self.report) if self.report else None,
        }


@dataclasses.dataclass(frozen=True)
class Score:
    scenario: str
    runs: int
    right: int  # the true chain was claimed
    ranks: tuple[int, ...]
    event_to_verdict_s: float | None  # median over runs with an event
    missed: tuple[tuple[str, int], ...]  # kinds that were not claimed, and how often
    wrong: tuple[str, ...]  # distinct problems of wrong verdicts
    left: int  # runs that were not completely undone


def score(outcomes: Sequence[Outcome]) -> tuple[Score, ...]:
    """Score by scenario, in order of first appearance."""
    by_name: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_name.setdefault(outcome.scenario, []).append(outcome)
    scores = []
    for name, runs in by_name.items():
        took = [run.event_to_verdict_s for run in runs if run.event_to_verdict_s is not None]
        missed = collections.Counter(kind for run in runs for kind in run.missed)
        wrong = [text for run in runs if not run.correct for text in run.problems]
        scores.append(
            Score(
                scenario=name,
                runs=len(runs),
                right=sum(run.correct for run in runs),
                ranks=tuple(run.rank for run in runs),
                event_to_verdict_s=statistics.median(took) if took else None,
                missed=tuple(missed.most_common()),
                wrong=tuple(dict.fromkeys(wrong)),
                left=sum(bool(run.leftovers) for run in runs),
            )
        )
    return tuple(scores)
