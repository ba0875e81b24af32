"""Candidate chains that end in the event, and which of them is best.

A link is a rule of the knowledge between two findings that meet its conditions. Its strength is

    base x sum(weight x fit) / sum(weight)

where a condition that is not known counts `UNKNOWN_FIT`, and one that has nothing to compare with
(recurrence, the culprit) does not count at all. A step is as credible as its link's strength times the root
of its finding's confidence: two findings that agree in magnitude support each other, so confidences are
not simply multiplied along the chain. The score of a chain is

    explains(root) x sqrt(weakest step x geometric mean of the steps) x PARSIMONY ^ (links - 1)

A chain is as good as its weakest step, but not every weak step of a long chain counts again. One that goes
back further explains more, and wins when its additional steps are not weaker than that is worth; with equal
support the shorter one wins.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from overnight.diagnosis import conditions, fleet_evidence, knowledge
from overnight.model.verdict import Chain, Link

if TYPE_CHECKING:
    from overnight.model.finding import Finding

__all__ = ["Candidates", "build", "link", "rank", "score_chain", "why_not"]

UNKNOWN_FIT = 0.35  # less than even: what is not known does not speak for a cause
LEAST_STRENGTH = 0.4  # a weaker link is no line to go along
PARSIMONY = 0.99
# A finding of background cannot be told from what is always there at a lower confidence.
LEAST_CONFIDENCE = 0.2
SLACK_US = 3_000_000  # nothing that is first seen later than this after the event caused it
MOST_STEPS = 8
MOST_CAUSES = 6  # of one kind for one effect; the strongest
UNEXPLAINED = 0.4  # what a root explains that no [[kind]] tells of
SPARE = (
    "recurrence",
    "same_culprit",
    "waited",
)  # these count only where there is something to compare with


@dataclasses.dataclass(frozen=True)
class Candidates:
    """All chains, the best first, and why each finding that is in none of them is not."""

    chains: tuple[Chain, ...]
    refused: Mapping[str, str]  # by finding id


def link(
    rule: knowledge.Rule,
    cause: Finding,
    effect: Finding,
    around: conditions.Surroundings,
) -> Link | str:
    """The link with its arguments, or in words why there is none."""
    earned = possible = 0.0
    reasons, against, holding = [rule.why], [], set()
    for condition in rule.conditions:
        outcome = conditions.judge(condition, cause, effect, around)
        if outcome.fit is None:
            if condition.need == "holds":
                return outcome.text
            if condition.holds in SPARE:
                continue
            against.append(f"not checked: {outcome.text}")
            earned += condition.weight * UNKNOWN_FIT
        else:
            if outcome.fit <= 0 and condition.need != "soft":
                return outcome.text
            (reasons if outcome.fit > 0.5 else against).append(outcome.text)
            if outcome.fit > 0.5:
                holding.add(condition.holds)
            earned += condition.weight * outcome.fit
        possible += condition.weight
    if rule.one_of and not holding & set(rule.one_of):
        return "nothing ties them together: " + "; ".join(against)
    strength = rule.base * (earned / possible if possible else 1.0)
    if strength < LEAST_STRENGTH:
        return f"too little agrees (strength {strength:.2f}): " + "; ".join(against)
    return Link(cause.id, effect.id, round(strength, 6), tuple(reasons), tuple(against))


def build(
    findings: Iterable[Finding],
    event: Finding,
    told: knowledge.Knowledge | None = None,
) -> Candidates:
    """Every unbroken line of links that ends in the event; the order of the findings does not matter."""
    told = told or knowledge.known()
    every = _distinct(findings, event)
    around = conditions.Surroundings.of(every)
    usable, refused = [], {}
    for one in every:
        if one.window.begin_us > event.window.begin_us + SLACK_US:
            refused[one.id] = "it begins after the event"
        elif one.confidence < LEAST_CONFIDENCE:
            refused[one.id] = f"it is too unsure by itself (confidence {one.confidence:.2f})"
        else:
            usable.append(one)
    incoming: dict[str, list[tuple[Finding, Link]]] = {}
    why: dict[str, list[str]] = {}
    for effect in (event, *usable):
        rules = _by_cause(
            one for one in told.rules if one.reaches(effect.kind, event=effect is event)
        )
        found = []
        for cause in usable:
            if cause is effect:
                continue
            best = _best_link(rules.get(cause.kind, ()), cause, effect, around)
            if isinstance(best, Link):
                found.append((cause, best))
            elif best:
                why.setdefault(cause.id, []).append(f"{told.name(effect.kind)}: {best}")
        incoming[effect.id] = _strongest(found)
    lines = _lines(event, incoming, lambda steps, links: score_chain(steps, links, told))
    of_fleet = [one for one in every if one.kind in {rule.says for rule in told.fleet}]
    chains = [fleet_evidence.weigh(one, of_fleet, told) for one in lines]
    used = {step.id for one in chains for step in one.steps}
    for one in usable:
        if one.id not in used and one not in of_fleet:  # those argue, and are no cause themselves
            refused[one.id] = _why_unused(one, why.get(one.id, []), told)
    return Candidates(rank(chains), refused)


def _by_cause(rules: Iterable[knowledge.Rule]) -> dict[str, list[knowledge.Rule]]:
    grouped: dict[str, list[knowledge.Rule]] = {}
    for rule in rules:
        grouped.setdefault(rule.cause, []).append(rule)
    return grouped


def _distinct(findings: Iterable[Finding], event: Finding) -> tuple[Finding, ...]:
    """One of each id, in an order that does not depend on how they came."""
    by_id: dict[str, Finding] = {}
    for one in sorted(findings, key=lambda one: (one.id, one.confidence, repr(one))):
        if one.id != event.id:
            by_id[one.id] = one
    return tuple(by_id.values())


def _best_link(
    rules: Sequence[knowledge.Rule],
    cause: Finding,
    effect: Finding,
    around: conditions.Surroundings,
) -> Link | str:
    """The strongest that any rule gives; else why the first rule gives none."""
    best: Link | None = None
    why = ""
    for rule in rules:
        made = link(rule, cause, effect, around)
        if isinstance(made, str):
            why = why or made
        elif best is None or made.strength > best.strength:
            best = made
    return best or why


def _strongest(
    found: Sequence[tuple[Finding, Link]],
) -> list[tuple[Finding, Link]]:
    kept: dict[str, int] = {}
    strongest = []
    for cause, made in sorted(
        found, key=lambda one: (-one[1].strength * one[0].confidence, one[0].id)
    ):
        kept[cause.kind] = kept.get(cause.kind, 0) + 1
        if kept[cause.kind] <= MOST_CAUSES:
            strongest.append((cause, made))
    return strongest


def _lines(
    event: Finding,
    incoming: Mapping[str, Sequence[tuple[Finding, Link]]],
    score: Callable[[Sequence[Finding], Sequence[Link]], float],
) -> Iterable[Chain]:
    """Backwards from the event; a finding, and a kind on the way, comes once: no circles."""
    waiting: list[tuple[tuple[Finding, ...], tuple[Link, ...]]] = [((event,), ())]
    while waiting:
        steps, links = waiting.pop()
        if links:
            yield Chain(steps, links, score(steps, links))
        if len(steps) == MOST_STEPS:
            continue
        there = {one.id for one in steps}
        kinds = {one.kind for one in steps[:-1]}
        waiting.extend(
            ((cause, *steps), (made, *links))
            for cause, made in incoming.get(steps[0].id, ())
            if cause.id not in there and cause.kind not in kinds
        )


def score_chain(
    steps: Sequence[Finding],
    links: Sequence[Link],
    told: knowledge.Knowledge,
) -> float:
    """The formula at the head of this module."""
    credible = [
        made.strength * math.sqrt(min(max(step.confidence, 0.0), 1.0))
        for step, made in zip(steps, links, strict=False)
    ]
    if min(credible) <= 0:
        return 0.0
    mean = math.exp(sum(math.log(one) for one in credible) / len(credible))
    root = told.kinds.get(steps[0].kind)
    explains = root.explains if root else UNEXPLAINED
    return explains * math.sqrt(min(credible) * mean) * PARSIMONY ** (len(links) - 1)


def rank(chains: Iterable[Chain]) -> tuple[Chain, ...]:
    """The best first; of equals the shorter, then by name, so that the order is always the same."""
    return tuple(
        sorted(
            chains,
            key=lambda one: (
                -round(one.score, 9),
                len(one.steps),
                tuple(step.id for step in one.steps),
            ),
        )
    )


def why_not(loser: Chain, winner: Chain, told: knowledge.Knowledge) -> str:
    """In words, why a chain is not the one that was chosen."""
    says = [f"it scores {loser.score:.2f} against {winner.score:.2f}"]
    root, better = loser.steps[0], winner.steps[0]
    actors = {
        (one.subject.process, one.subject.core) for one in winner.steps if one.subject.process
    }
    if (root.subject.process, root.subject.core) in actors:
        says.append(
            f"it is about the same {root.subject.process}, and says who, but not why: {told.name(better.kind)} does"
        )
    weakest = min(loser.links, key=lambda one: (one.strength, one.cause))
    names = {one.id: told.name(one.kind) for one in loser.steps}
    if weakest.against:
        says.append(
            f"weakest is {names[weakest.cause]} -> {names[weakest.effect]} ({weakest.strength:.2f}): "
            + "; ".join(weakest.against)
        )
    explained = {one.id for one in winner.steps}
    left = [one for one in loser.steps if one.id not in explained]
    if not weakest.against and len(says) == 1:
        says.append(
            f"{told.name(left[0].kind if left else root.kind)} explains less of what was seen"
        )
    return ", and ".join(says[:1]) + "".join(f"; {one}" for one in says[1:])


def _why_unused(one: Finding, reasons: Sequence[str], told: knowledge.Knowledge) -> str:
    if reasons:
        return "; ".join(sorted(dict.fromkeys(reasons))[:3])
    effects = sorted(
        {told.name(kind) for rule in told.rules if rule.cause == one.kind for kind in rule.effects}
    )
    if not effects:
        return "nothing is known that it could have caused"
    return f"nothing was found that it could have caused ({', '.join(effects)}), or that leads to the event"
