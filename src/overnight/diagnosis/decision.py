"""From the detectors' answers to the verdict. Pure: the order of the answers does not matter.

A cause needs an unbroken chain to the event. It is claimed if its score, with missing evidence, was right often
enough (`calibration`), else suspected.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from overnight.diagnosis import calibration, completeness, knowledge, narrative, remedies
from overnight.diagnosis import chain as chains
from overnight.model.event import is_outcome
from overnight.model.finding import Answer, Evidence, Finding, Status, Subject, finding_id
from overnight.model.selection import Window
from overnight.model.verdict import Chain, GapKind, RuledOut, Verdict, VerdictStatus

if TYPE_CHECKING:
    from overnight.model.event import Event
    from overnight.model.suspect import Suspect

COMPLETE = 0.6  # evidence that counts less cannot show that nothing happened
UNUSUAL = 0.3  # the confidence from which a finding is reported
MAX_ALTERNATIVES = 5
MIN_ALTERNATIVE = 0.1
EITHER = 0.5  # where two roots, or two incidents of an outcome, are linked as well


def decide(
    event: Event | None,
    answers: Sequence[Answer],
    recording: completeness.Recording | None = None,
    known: knowledge.Knowledge | None = None,
    fleet: Mapping[str, object] | None = None,
    suspects: tuple[Suspect, ...] = (),
) -> Verdict:
    """Diagnose one event; `fleet` and `suspects` are passed on unchanged."""
    known = known or knowledge.known()
    answers = tuple(sorted(answers, key=lambda answer: (answer.detector, repr(answer))))
    findings = tuple(
        sorted(
            (finding for answer in answers for finding in answer.findings),
            key=lambda finding: (finding.id, repr(finding)),
        )
    )
    gaps = completeness.find_gaps(recording, answers)
    base = Verdict(
        event,
        VerdictStatus.NO_CAUSE,
        gaps=gaps,
        answers=answers,
        findings=findings,
        fleet=dict(fleet or {}),
        notes=completeness.list_notes(recording),
        suspects=suspects,
    )
    end = find_end(event, findings)
    if end is None:
        verdict = dataclasses.replace(base, next=narrative.keep_recording(gaps))
        return dataclasses.replace(verdict, narrative=narrative.without_event(gaps))
    verdict, leading = _conclude(base, end, known)
    return dataclasses.replace(
        verdict, narrative=narrative.narrate(verdict, known, end=end, leading=leading)
    )


def _conclude(
    base: Verdict, end: Finding, known: knowledge.Knowledge
) -> tuple[Verdict, Chain | None]:
    """Return the verdict without its narrative, and the best chain."""
    candidates = chains.build(base.findings, end, known)
    base = dataclasses.replace(base, ruled_out=_rule_out(base.findings, candidates, known))
    if not candidates.chains:
        return _without_chain(base), None
    winner = candidates.chains[0]
    others = _select_alternatives(winner, candidates.chains, known)
    counted = known.kind(winner.root.kind).counted
    gaps = (
        *completeness.find_rival(winner, others),
        *completeness.weigh_for_chain(base.gaps, winner, counted=counted),
    )
    score = winner.score * completeness.multiply(gaps)
    blames = not known.is_effect(winner.root.kind)
    confidence = calibration.known().probability(score) if blames else 0.0
    # The probability of the incident's cause, and that the incident led to the outcome.
    if is_outcome(end.kind):
        confidence *= winner.links[-1].strength
        if chains.find_other_incident(winner, others):
            confidence *= EITHER
    if chains.find_twin(winner, others):
        confidence *= EITHER
    base = dataclasses.replace(base, gaps=gaps, score=score, confidence=confidence)
    if confidence < calibration.CLAIMED:
        return _suspect(base, winner, others, known), winner
    verdict = dataclasses.replace(
        base,
        status=VerdictStatus.CAUSE_FOUND,
        chain=winner,
        alternatives=others,
        next=(*narrative.show_stacks(winner, known), *remedies.experiment(winner, known)),
        fix=remedies.fix(winner, known),
    )
    return verdict, winner


def find_end(event: Event | None, findings: Sequence[Finding]) -> Finding | None:
    """Return the event as a finding: the detector's, or, where that failed, one built from the event itself.

    It begins at the event's instant, whatever window the detector reports: time order is judged by it.
    """
    if event is None:
        return None
    window = Window(event.time_us, max(event.until_us, event.time_us + 1))
    own = [each for each in findings if each.detector == "event" and each.kind == event.kind]
    if own:
        return dataclasses.replace(own[0], window=window)
    interface, queue = event.fields.get("interface", ""), event.fields.get("queue")
    subject = Subject(
        host=event.host,
        core=event.known_core,
        unit=event.unit,
        process=event.process,
        interface=interface if isinstance(interface, str) else "",
        queue=queue if type(queue) is int else None,
    )
    text = event.text or event.kind
    return Finding(
        finding_id("event", event.kind, subject, event.time_us),
        "event",
        event.kind,
        subject,
        window,
        1.0,
        text,
        (Evidence(text, event.source or "event"),),
    )


def _rule_out(
    findings: Sequence[Finding], candidates: chains.Candidates, known: knowledge.Knowledge
) -> tuple[RuledOut, ...]:
    """Return the unusual findings that are in no chain, each once."""
    unusual = {
        finding.id: finding
        for finding in findings
        if finding.detector != "event"
        and finding.confidence >= UNUSUAL
        and not ((kind := known.kinds.get(finding.kind)) and kind.background)
    }
    return tuple(
        RuledOut(finding.id, finding.kind, refusal.text, refusal.reason, refusal.effect)
        for finding in unusual.values()
        if (refusal := candidates.refused.get(finding.id))
    )


def _select_alternatives(
    winner: Chain, ranked: Sequence[Chain], known: knowledge.Knowledge
) -> tuple[Chain, ...]:
    """Return the best chain of every other root; a part of the winner is not an alternative to it."""
    seen = {step.id for step in winner.steps}
    others = []
    for each in ranked:
        if each.root.id in seen or each.score < MIN_ALTERNATIVE:
            continue
        seen.add(each.root.id)
        others.append(dataclasses.replace(each, why_not=chains.explain_loss(each, winner, known)))
    return tuple(others[:MAX_ALTERNATIVES])


def merge_answers(cases: Iterable[Sequence[Answer]]) -> tuple[Answer, ...]:
    """Return one answer of each detector about several events, the main one first; what two of them see is one finding.

    A detector that could not look at one of them has cleared nothing; why it could not at the last one, the outcome, counts.
    """
    merged: dict[str, Answer] = {}
    for answer in itertools.chain.from_iterable(cases):
        first = merged.setdefault(answer.detector, answer)
        added = [each for each in answer.findings if not any(map(each.is_same, first.findings))]
        if added:
            leading = first if first.findings else answer
            findings = (*first.findings, *added)
            merged[answer.detector] = dataclasses.replace(leading, findings=findings)
        elif not first.findings and answer.status is not Status.CLEAR:
            merged[answer.detector] = answer
    return tuple(merged.values())


def _without_chain(base: Verdict) -> Verdict:
    """Nothing leads to the event: decide whether nothing happened, or too little was recorded."""
    answers = [answer for answer in base.answers if answer.detector != "event"]
    checked = [answer for answer in answers if answer.status in (Status.CLEAR, Status.FOUND)]
    enough = checked and 2 * len(checked) >= len(answers)
    around = completeness.select_around_event(base.gaps)
    enough = enough and GapKind.NOT_IMPORTED not in {gap.kind for gap in around}
    if enough and completeness.multiply(around) >= COMPLETE:
        return dataclasses.replace(base, next=narrative.keep_recording(base.gaps))
    return dataclasses.replace(
        base, status=VerdictStatus.INCONCLUSIVE, next=narrative.list_needs(base.gaps, None)
    )


def _suspect(
    base: Verdict, leading: Chain, others: tuple[Chain, ...], known: knowledge.Knowledge
) -> Verdict:
    """The best chain is not sure enough to be claimed, and comes first among the alternatives.

    The verdict's chain keeps the part that blames nobody: the saturated core and the starved queue.
    """
    not_claimed = dataclasses.replace(
        leading,
        why_not=f"a suspicion only: its confidence is {base.confidence:.2f}, and {calibration.CLAIMED:.2f} is needed to claim a cause",
    )
    first = next(
        n
        for n in range(len(leading.steps))
        if all(known.is_effect(step.kind) for step in leading.steps[n:-1])
    )
    seen = leading.steps[first:], leading.links[first:]
    return dataclasses.replace(
        base,
        status=VerdictStatus.INCONCLUSIVE,
        chain=Chain(*seen, chains.score_chain(*seen, known)) if seen[1] else None,
        alternatives=((not_claimed,) if first else ()) + others[: MAX_ALTERNATIVES - 1],
        next=(
            *narrative.list_needs(base.gaps, leading),
            *narrative.show_stacks(leading, known),
            *remedies.experiment(leading, known),
        ),
    )
