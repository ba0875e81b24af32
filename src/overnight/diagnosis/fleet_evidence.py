"""What many hosts say of a chain: they agree with one of its steps, or contradict it.

Where they agree the score rises by a part of what the root leaves to be explained, never beyond it; where
they contradict it falls by that part. Rules are the knowledge's `[[fleet]]`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING

from overnight.diagnosis import conditions, knowledge

if TYPE_CHECKING:
    from overnight.model.finding import Finding
    from overnight.model.verdict import Chain

__all__ = ["weigh"]


def weigh(one: Chain, findings: Iterable[Finding], told: knowledge.Knowledge) -> Chain:
    """The chain with what the findings of the fleet say for it and against it."""
    root = told.kinds.get(one.steps[0].kind)
    most = root.explains if root else one.score
    score, links = one.score, list(one.links)
    for said in findings:
        for rule in told.fleet:
            at = _step(one, rule) if rule.says == said.kind else -1
            agrees = _agrees(rule, said, one.steps[at]) if at >= 0 else None
            part = rule.weight * min(max(said.confidence, 0.0), 1.0)
            if agrees:
                score += part * max(0.0, most - score)
                more = conditions.plain(f"many hosts: {rule.why}: {said.summary}", 400)
                links[at] = dataclasses.replace(links[at], reasons=(*links[at].reasons, more))
            elif agrees is False and rule.doubt:
                score *= 1 - part
                more = conditions.plain(f"many hosts: {rule.doubt}: {said.summary}", 400)
                links[at] = dataclasses.replace(links[at], against=(*links[at].against, more))
    return dataclasses.replace(one, score=score, links=tuple(links))


def _step(one: Chain, rule: knowledge.FleetRule) -> int:
    """The step nearest to the root that the rule speaks of; the event itself is none. -1: none."""
    return next((n for n, step in enumerate(one.steps[:-1]) if step.kind in rule.of), -1)


def _agrees(rule: knowledge.FleetRule, said: Finding, step: Finding) -> bool | None:
    if not rule.number:
        return True if step.subject.unit and step.subject.unit == said.subject.unit else None
    value = conditions.measured(said, rule.number)
    return None if value is None else rule.fits[0] <= value <= rule.fits[1]
