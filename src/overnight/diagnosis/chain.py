"""Build the chains that end in the event, and rank them; docs/diagnosis.md explains strengths and scores."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from overnight.diagnosis import conditions, fleet_evidence, knowledge
from overnight.model.times import SECOND_US
from overnight.model.verdict import Argument, ArgumentOutcome, Chain, Link, RuledOutReason

if TYPE_CHECKING:
    from overnight.model.finding import Finding

UNKNOWN_FIT = 0.35  # less than even: what is not known does not speak for a cause
MIN_STRENGTH = 0.4  # weaker links are not followed
PARSIMONY = 0.99
# At a lower confidence a finding cannot be distinguished from the background.
MIN_CONFIDENCE = 0.2
SLACK_US = 3 * SECOND_US  # a finding that begins later than this after the event did not cause it
MAX_STEPS = 8
MAX_CAUSES = 6  # of one kind for one effect; the strongest
MAX_REASONS = 3
AS_WELL = 0.85  # of the strength of the winner's link
TWIN, LIKELY = 0.9, 0.6  # the same between two roots; what many units share is less sure to be one
# These count only where there is something to compare with.
SPARE = ("recurrence", "same_culprit", "waited")


@dataclasses.dataclass(frozen=True)
class Refusal:
    """Why a finding is not linked; `effect` is the kind it was compared with, '' for none."""

    reason: RuledOutReason
    text: str
    effect: str = ""


@dataclasses.dataclass(frozen=True)
class Candidates:
    """All chains, the best first, and why each finding that is in none of them is not."""

    chains: tuple[Chain, ...]
    refused: Mapping[str, Refusal]  # by finding id


def link(
    rule: knowledge.Rule, cause: Finding, effect: Finding, around: conditions.Surroundings
) -> Link | Refusal:
    earned = possible = 0.0
    arguments = [Argument("rule", ArgumentOutcome.AGREES, rule.why)]
    for condition in rule.conditions:
        judgement = conditions.judge(condition, cause, effect, around)
        if judgement.fit is None:
            if condition.need == "holds":
                return Refusal(RuledOutReason.NOT_KNOWN, judgement.text, effect.kind)
            if condition.holds in SPARE:
                continue
            outcome, fit = ArgumentOutcome.NOT_CHECKED, UNKNOWN_FIT
        else:
            fit = judgement.fit
            if fit <= 0 and condition.need != "soft":
                return Refusal(RuledOutReason.CONTRADICTED, judgement.text, effect.kind)
            outcome = ArgumentOutcome.AGREES if fit > 0.5 else ArgumentOutcome.AGAINST
        arguments.append(Argument(condition.holds, outcome, judgement.text))
        earned += condition.weight * fit
        possible += condition.weight
    strength = rule.base * (earned / possible if possible else 1.0)
    linked = Link(cause.id, effect.id, round(strength, 6), tuple(arguments))
    agreeing = {each.condition for each in arguments if each.outcome is ArgumentOutcome.AGREES}
    if rule.one_of and not agreeing & set(rule.one_of):
        text = "nothing ties them together: " + "; ".join(linked.against)
        return Refusal(RuledOutReason.NOT_TIED, text, effect.kind)
    if strength < MIN_STRENGTH:
        text = f"too little agrees (strength {strength:.2f}): " + "; ".join(linked.against)
        return Refusal(RuledOutReason.WEAK, text, effect.kind)
    return linked


def build(
    findings: Iterable[Finding], event: Finding, known: knowledge.Knowledge | None = None
) -> Candidates:
    """Build every unbroken chain that ends in the event; the order of the findings does not matter."""
    known = known or knowledge.known()
    every = _deduplicate(findings, event)
    around = conditions.Surroundings.of(every, known)
    usable: list[Finding] = []
    refused: dict[str, Refusal] = {}
    for finding in every:
        if finding.window.begin_us > event.window.begin_us + SLACK_US:
            refused[finding.id] = Refusal(RuledOutReason.AFTER_EVENT, "it begins after the event")
        elif finding.confidence < MIN_CONFIDENCE:
            text = f"the detector's weight of it is only {finding.confidence:.2f}"
            refused[finding.id] = Refusal(RuledOutReason.LOW_CONFIDENCE, text)
        else:
            usable.append(finding)
    usable = [finding for finding in usable if not _is_stated(finding, usable, known)]
    # An outcome falls into an incident: the incident's own event leads to it, and only to it.
    incidents = {
        each.id for each in usable if each.detector == "event" and each.kind not in known.kinds
    }
    incoming: dict[str, list[tuple[Finding, Link]]] = {}
    refusals: dict[str, list[Refusal]] = collections.defaultdict(list)
    for effect in (event, *usable):
        is_event = effect is event or effect.id in incidents
        rules = [rule for rule in known.rules if rule.reaches(effect.kind, event=is_event)]
        linked = []
        for cause in usable:
            if cause is effect or (cause.id in incidents and effect is not event):
                continue
            names = (cause.kind, knowledge.INCIDENT) if cause.id in incidents else (cause.kind,)
            own = [rule for rule in rules if rule.cause in names]
            results = [link(rule, cause, effect, around) for rule in own]
            links = [each for each in results if isinstance(each, Link)]
            if links:
                linked.append((cause, max(links, key=lambda each: each.strength)))
            else:
                refusals[cause.id] += [each for each in results[:1] if isinstance(each, Refusal)]
        incoming[effect.id] = _select_strongest(linked)
    lines = _walk_back(event, incoming, known)
    fleet_kinds = {rule.says for rule in known.fleet}
    of_fleet = [finding for finding in every if finding.kind in fleet_kinds]
    chains = [fleet_evidence.weigh(line, of_fleet, known) for line in lines]
    used = {step.id for chain in chains for step in chain.steps}
    unused = (effect for effect in usable if effect.id not in used)
    leads = {cause.id: effect.kind for effect in unused for cause, _ in incoming[effect.id]}
    for finding in usable:
        # Findings of the fleet are arguments, never causes.
        if finding.id not in used and finding not in of_fleet:
            lead = leads.get(finding.id)
            refused[finding.id] = _explain_unused(finding, refusals[finding.id], lead, event, known)
    return Candidates(rank(chains), refused)


def _is_stated(finding: Finding, others: Sequence[Finding], known: knowledge.Knowledge) -> bool:
    """Return whether a finding of the kind it yields to is about the same process, or the same core."""
    kind, own = known.kinds.get(finding.kind), finding.subject
    return any(
        other.subject.process == own.process
        if other.subject.process
        else other.subject.core in (own.core, None)
        for other in others
        if kind and other.kind == kind.yields_to and other.subject.host == own.host
    )


def _deduplicate(findings: Iterable[Finding], event: Finding) -> tuple[Finding, ...]:
    """Return one finding of each id, in an order that does not depend on the input's."""
    by_id: dict[str, Finding] = {}
    for finding in sorted(findings, key=lambda each: (each.id, each.confidence, repr(each))):
        if finding.id != event.id:
            by_id[finding.id] = finding
    return tuple(by_id.values())


def _select_strongest(linked: Sequence[tuple[Finding, Link]]) -> list[tuple[Finding, Link]]:
    ordered = sorted(linked, key=lambda pair: (-pair[1].strength * pair[0].confidence, pair[0].id))
    kept: collections.Counter[str] = collections.Counter()
    strongest = []
    for cause, each in ordered:
        kept[cause.kind] += 1
        if kept[cause.kind] <= MAX_CAUSES:
            strongest.append((cause, each))
    return strongest


def _walk_back(
    event: Finding, incoming: Mapping[str, list[tuple[Finding, Link]]], known: knowledge.Knowledge
) -> Iterable[Chain]:
    """Walk back from the event; no finding and no kind occurs twice on the way, so there are no cycles."""
    waiting: list[tuple[tuple[Finding, ...], tuple[Link, ...]]] = [((event,), ())]
    while waiting:
        steps, links = waiting.pop()
        if links:
            yield Chain(steps, links, score_chain(steps, links, known))
        if len(steps) == MAX_STEPS:
            continue
        ids = {step.id for step in steps}
        kinds = {step.kind for step in steps[:-1]}
        waiting.extend(
            ((cause, *steps), (each, *links))
            for cause, each in incoming.get(steps[0].id, ())
            if cause.id not in ids and cause.kind not in kinds
        )


def score_chain(
    steps: Sequence[Finding], links: Sequence[Link], known: knowledge.Knowledge
) -> float:
    """Return explains(root) x sqrt(weakest step x geometric mean of the steps) x PARSIMONY ^ (links - 1)."""
    credible = [
        each.strength * math.sqrt(min(max(step.confidence, 0.0), 1.0))
        for step, each in zip(steps, links, strict=False)
    ]
    if min(credible) <= 0:
        return 0.0
    mean = math.exp(sum(math.log(value) for value in credible) / len(credible))
    explains = known.kind(steps[0].kind).explains
    return explains * math.sqrt(min(credible) * mean) * PARSIMONY ** (len(links) - 1)


def rank(chains: Iterable[Chain]) -> tuple[Chain, ...]:
    """Sort the best first; of equals the shorter, then by ids, so that the order is stable."""

    def key(chain: Chain) -> tuple[float, int, list[str]]:
        return -round(chain.score, 9), len(chain.steps), [step.id for step in chain.steps]

    return tuple(sorted(chains, key=key))


def find_other_incident(winner: Chain, others: Sequence[Chain]) -> Chain | None:
    """Return a chain through another incident, by another program, that is linked to the outcome as well."""

    def places(chain: Chain) -> set[int | None]:
        return {step.subject.core for step in chain.steps[:-1]} - {None}

    root = winner.root.subject
    # Also what the program did elsewhere, whose chain may begin with that: a core that it saturated, too.
    own = (each for each in others if root.process and each.root.subject.actor == root.actor)
    same = {step.id for each in own for step in each.steps}
    return next(
        (
            other
            for other in others
            if not places(winner) & places(other)
            and other.root.id not in same
            and other.links[-1].strength >= AS_WELL * winner.links[-1].strength
        ),
        None,
    )


def find_twin(winner: Chain, others: Sequence[Chain]) -> Chain | None:
    """Return a chain with another unit or container that leads to the same effect as strongly: either may be the cause.

    Processes are none: those that share a core saturate it together. Containers without a name may be the winner's.
    """
    link = winner.links[0]

    def is_twin(other: Chain) -> bool:
        root = other.root.subject
        is_other = bool(root.unit or root.container or root.cgroup)
        is_other &= not (root.process or winner.root.subject.process)
        strong = other.root.confidence >= LIKELY and other.links[0].strength >= TWIN * link.strength
        own_name = other.root.id != winner.root.id and not root.container.endswith("?")
        return is_other and strong and own_name and other.links[0].effect == link.effect

    return next(filter(is_twin, others), None)


def explain_loss(loser: Chain, winner: Chain, known: knowledge.Knowledge) -> str:
    parts = [f"it scores {loser.score:.2f} against {winner.score:.2f}"]
    root = loser.root
    actors = {
        (step.subject.process, step.subject.core) for step in winner.steps if step.subject.process
    }
    same_actor = (root.subject.process, root.subject.core) in actors
    if same_actor:
        parts.append(
            f"it names the same process, {root.subject.process}, but not the reason: {known.name(winner.root.kind)}"
        )
    weakest = min(loser.links, key=lambda each: (each.strength, each.cause))
    names = {step.id: known.name(step.kind) for step in loser.steps}
    if weakest.against:
        parts.append(
            f"its weakest link is {names[weakest.cause]} -> {names[weakest.effect]} ({weakest.strength:.2f}): "
            + "; ".join(weakest.against)
        )
    doubts = [
        argument.text
        for each in loser.links
        for argument in each.arguments
        if argument.condition == fleet_evidence.CONDITION
        and argument.outcome is ArgumentOutcome.AGAINST
        and each is not weakest
    ]
    parts += doubts
    if not (doubts or weakest.against or same_actor):
        parts.append("it explains less of the incident")
    return "; ".join(parts)


def _explain_unused(
    finding: Finding,
    refusals: Sequence[Refusal],
    lead: str | None,
    event: Finding,
    known: knowledge.Knowledge,
) -> Refusal:
    """Sum up why a finding leads nowhere; the event's own refusal, where there is one, comes first."""
    if refusals:
        first = next((each for each in refusals if each.effect == event.kind), refusals[0])
        ordered = (first, *(each for each in refusals if each is not first))
        texts = dict.fromkeys(
            each.text
            if each.effect == event.kind
            else f"not linked to {known.name(each.effect)} ({each.text})"
            for each in ordered
        )
        return dataclasses.replace(first, text="; ".join(list(texts)[:MAX_REASONS]))
    if lead:
        text = f"its effect, {known.name(lead)}, does not lead to the event"
        return Refusal(RuledOutReason.NO_EFFECT_FOUND, text, lead)
    reached = (kind for rule in known.rules if rule.cause == finding.kind for kind in rule.effects)
    kinds = {kind for kind in reached if "*" not in kind}
    if not kinds:
        return Refusal(RuledOutReason.NO_EFFECT_KNOWN, "it has no known effects")
    # An event of its own kind, which only reports it, is not an effect to a reader.
    effects = ", ".join(sorted(map(known.name, kinds - {finding.kind}))) or "none but its own event"
    text = f"none of its known effects ({effects}) was found, or none leads to the event"
    return Refusal(RuledOutReason.NO_EFFECT_FOUND, text)
