"""How findings over many hosts change the score of a chain: the `[[fleet]]` rules of the knowledge."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING

from overnight.diagnosis import conditions, knowledge
from overnight.model.verdict import Argument, ArgumentOutcome

if TYPE_CHECKING:
    from overnight.model.finding import Finding
    from overnight.model.verdict import Chain

CONDITION = "fleet"  # of the arguments that come from other hosts


def weigh(chain: Chain, findings: Iterable[Finding], known: knowledge.Knowledge) -> Chain:
    """Return the chain with the fleet's findings added to its score and its arguments."""
    most = known.kind(chain.root.kind).explains
    score, links = chain.score, list(chain.links)
    for finding in findings:
        for rule in known.fleet:
            at = _find_step(chain, rule, finding) if rule.says == finding.kind else None
            agrees = _agrees(rule, finding, chain.steps[at]) if at is not None else None
            if at is None or agrees is None or not (agrees or rule.doubt):
                continue
            part = rule.weight * min(max(finding.confidence, 0.0), 1.0)
            score = score + part * max(0.0, most - score) if agrees else score * (1 - part)
            why = rule.why if agrees else rule.doubt
            argument = Argument(
                CONDITION,
                ArgumentOutcome.AGREES if agrees else ArgumentOutcome.AGAINST,
                conditions.plain(f"fleet: {why}: {finding.summary}", 400),
            )
            links[at] = dataclasses.replace(links[at], arguments=(*links[at].arguments, argument))
    return dataclasses.replace(chain, score=score, links=tuple(links))


def _find_step(chain: Chain, rule: knowledge.FleetRule, finding: Finding) -> int | None:
    """Return the step nearest to the root that the rule is about; never the event itself."""
    for at, step in enumerate(chain.steps[:-1]):
        if step.kind in rule.of and (not rule.same_unit or _is_same_unit(finding, step)):
            return at
    return None


def _is_same_unit(finding: Finding, step: Finding) -> bool:
    return bool(step.subject.unit) and step.subject.unit == finding.subject.unit


def _agrees(rule: knowledge.FleetRule, finding: Finding, step: Finding) -> bool | None:
    if not rule.number:
        return True if _is_same_unit(finding, step) else None
    value = conditions.measured(finding, rule.number)
    return None if value is None else rule.fits[0] <= value <= rule.fits[1]
