"""Blank every sentence at construction, to prove that no decision reads one."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from overnight.diagnosis import chain, conditions
from overnight.model.finding import Answer, Evidence, Finding
from overnight.model.suspect import Suspect
from overnight.model.verdict import Argument, Chain, Gap, RuledOut, Verdict

PROSE: dict[type, tuple[str, ...]] = {
    Gap: ("what", "why"),
    Argument: ("text",),
    Chain: ("why_not",),
    RuledOut: ("why",),
    Answer: ("why",),
    Finding: ("summary",),
    Evidence: ("text",),
    Suspect: ("text",),
    chain.Refusal: ("text",),
    conditions.Judgement: ("text",),
}


@contextlib.contextmanager
def blanked() -> Iterator[None]:
    """Make values of these types with '' in all of their prose fields."""
    originals: dict[type, Callable[..., None]] = {cls: cls.__init__ for cls in PROSE}  # type: ignore[misc]
    for cls, fields in PROSE.items():
        cls.__init__ = _blanking(originals[cls], fields)  # type: ignore[misc]
    try:
        yield
    finally:
        for cls, original in originals.items():
            cls.__init__ = original  # type: ignore[misc]


def _blanking(original: Callable[..., None], fields: tuple[str, ...]) -> Callable[..., None]:
    @functools.wraps(original)
    def initialize(self: Any, *args: Any, **named: Any) -> None:
        original(self, *args, **named)
        for field in fields:
            object.__setattr__(self, field, "")

    return initialize


def decisions(verdict: Verdict) -> tuple[object, ...]:
    """Return all of a verdict that is not prose: status, score, ranking, gaps, ruled out."""
    chains = ((verdict.chain,) if verdict.chain else ()) + verdict.alternatives
    return (
        verdict.status,
        round(verdict.score, 9),
        [([step.id for step in each.steps], round(each.score, 9)) for each in chains],
        sorted((gap.kind, gap.window or "", gap.detector, gap.factor) for gap in verdict.gaps),
        sorted((each.finding, each.reason, each.effect) for each in verdict.ruled_out),
        [step.command for step in verdict.fix],
        sorted(step.command for step in verdict.next),
        [(each.name, each.outcome, each.look, dict(each.values)) for each in verdict.suspects],
    )
