"""From the detectors' answers to the verdict: what was the cause, how sure, and what next.

Pure: the same answers give the same verdict, in whatever order they come. A cause is claimed only with an
unbroken line of links from it to the event, and only when score times gaps reaches `CLAIMED`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from overnight.diagnosis import chain, completeness, knowledge, narrative, remedies
from overnight.model.finding import Answer, Evidence, Finding, Status, Subject, finding_id
from overnight.model.selection import Window
from overnight.model.verdict import Chain, RuledOut, Verdict

if TYPE_CHECKING:
    from overnight.model.event import Event

__all__ = ["CLAIMED", "decide", "end_of_chains"]

CLAIMED = 0.35  # below this a chain is a suspicion: said, not claimed
COMPLETE = 0.6  # evidence that is worth less than this cannot show that there was nothing
UNUSUAL = 0.3  # the confidence from which a finding is something unusual
MOST_ALTERNATIVES = 5
LEAST_ALTERNATIVE = 0.1


def decide(
    told: Event | None,
    answers: Sequence[Answer],
    recorded: completeness.Recorded | None = None,
    known: knowledge.Knowledge | None = None,
    fleet: Mapping[str, object] | None = None,
) -> Verdict:
    """The verdict on one event; `fleet` is passed on as it is."""
    known = known or knowledge.known()
    answers = tuple(sorted(answers, key=lambda one: (one.detector, repr(one))))
    findings = tuple(
        sorted(
            (one for answer in answers for one in answer.findings),
            key=lambda one: (one.id, repr(one)),
        )
    )
    gaps = completeness.find_gaps(recorded, answers)
    end = end_of_chains(told, findings)
    base = Verdict(
        told, "no-cause", 0.0, "", None, (), gaps, (), (), answers, findings, dict(fleet or {})
    )
    if end is None:
        return dataclasses.replace(
            base, summary=narrative.no_event(), next=narrative.keep_recording(gaps)
        )
    candidates = chain.build(findings, end, known)
    unusual = [
        one
        for one in findings
        if one.detector != "event" and one.confidence >= UNUSUAL and not _background(one, known)
    ]
    base = dataclasses.replace(base, ruled_out=_ruled_out(unusual, candidates))
    if not candidates.chains:
        return _nothing(base, end, unusual, known)
    winner = candidates.chains[0]
    others = _alternatives(winner, candidates.chains, known)
    root = known.kinds.get(winner.steps[0].kind)
    own = completeness.of_chain(gaps, winner, counted=root is not None and root.counted)
    gaps = (*completeness.rivalry(winner, others), *own)
    confidence = winner.score * completeness.factor(gaps)
    base = dataclasses.replace(base, gaps=gaps, confidence=confidence)
    if confidence < CLAIMED:
        return _suspicion(base, winner, others, known)
    return dataclasses.replace(
        base,
        status="cause-found",
        summary=narrative.cause_found(winner, confidence, known),
        chain=winner,
        alternatives=others,
        next=remedies.experiment(winner, known),
        fix=remedies.fix(winner, known),
    )


def end_of_chains(told: Event | None, findings: Sequence[Finding]) -> Finding | None:
    """The event as a finding: the detector's where there is one, else made of the event itself.

    It begins at the event's instant, whatever window the detector looked at: time order is judged by it.
    """
    mine = [one for one in findings if one.detector == "event"]
    if told is None:
        return min(mine, key=lambda one: (one.window.begin_us, one.id), default=None)
    window = Window(told.time_us, max(told.until_us, told.time_us + 1))
    mine = [one for one in mine if one.kind == told.kind and one.subject.host in ("", told.host)]
    if mine:
        nearest = min(mine, key=lambda one: (abs(one.window.begin_us - told.time_us), one.id))
        return dataclasses.replace(nearest, window=window, subject=_filled(nearest.subject, told))
    subject = _filled(Subject(), told)
    return Finding(
        finding_id("event", told.kind, subject, told.time_us),
        "event",
        told.kind,
        subject,
        window,
        1.0,
        told.text or told.kind,
        (Evidence(told.text or told.kind, told.source or "event"),),
    )


def _filled(subject: Subject, told: Event) -> Subject:
    """What the detector left open, and the event itself says."""
    interface, queue = told.fields.get("interface", ""), told.fields.get("queue")
    return Subject(
        host=subject.host or told.host,
        core=told.known_core if subject.core is None else subject.core,
        unit=subject.unit or told.unit,
        process=subject.process or told.process,
        function=subject.function,
        cgroup=subject.cgroup,
        interface=subject.interface or (interface if isinstance(interface, str) else ""),
        queue=queue if subject.queue is None and type(queue) is int else subject.queue,
    )


def _background(one: Finding, known: knowledge.Knowledge) -> bool:
    kind = known.kinds.get(one.kind)
    return kind is not None and kind.background


def _ruled_out(unusual: Sequence[Finding], candidates: chain.Candidates) -> tuple[RuledOut, ...]:
    return tuple(
        RuledOut(one.id, one.kind, candidates.refused[one.id])
        for one in {one.id: one for one in unusual}.values()
        if one.id in candidates.refused
    )


def _alternatives(
    winner: Chain, ranked: Sequence[Chain], known: knowledge.Knowledge
) -> tuple[Chain, ...]:
    """The best chain of every other root; a part of the winner is no alternative to it."""
    seen = {one.id for one in winner.steps}
    others = []
    for one in ranked:
        root = one.steps[0].id
        if root in seen or one.score < LEAST_ALTERNATIVE:
            continue
        seen.add(root)
        others.append(dataclasses.replace(one, why_not=chain.why_not(one, winner, known)))
    return tuple(others[:MOST_ALTERNATIVES])


def _nothing(
    base: Verdict,
    end: Finding,
    unusual: Sequence[Finding],
    known: knowledge.Knowledge,
) -> Verdict:
    """No line leads to the event: there was nothing, or it was not recorded.

    What else was found and has no tie to the event is ruled out with its reason, and is no cause.
    """
    asked = [one for one in base.answers if one.detector != "event"]
    looked = [one for one in asked if one.status in (Status.CLEAR, Status.FOUND)]
    enough = looked and 2 * len(looked) >= len(asked)
    if enough and completeness.factor(completeness.around_event(base.gaps)) >= COMPLETE:
        return dataclasses.replace(
            base,
            summary=narrative.no_cause(end, unusual, len(looked), base.gaps, known, base.ruled_out),
            next=narrative.keep_recording(base.gaps),
        )
    return dataclasses.replace(
        base,
        status="inconclusive",
        summary=narrative.inconclusive(end, unusual, base.gaps, None, known),
        next=narrative.needed(base.gaps, None),
    )


def _suspicion(
    base: Verdict,
    leading: Chain,
    others: tuple[Chain, ...],
    known: knowledge.Knowledge,
) -> Verdict:
    """The best chain is too unsure to be claimed.

    It comes first among the alternatives; the verdict's chain is that part of it which blames nobody:
    the full core and the queue that starved.
    """
    not_claimed = dataclasses.replace(
        leading,
        why_not=f"it is a suspicion: its confidence is {base.confidence:.2f}, and a cause is claimed from {CLAIMED:.2f} on",
    )
    first = next(
        n
        for n in range(len(leading.steps))
        if all(step.kind in narrative.PLACES for step in leading.steps[n:-1])
    )
    seen = leading.steps[first:], leading.links[first:]
    place = Chain(*seen, chain.score_chain(*seen, known)) if seen[1] else None
    return dataclasses.replace(
        base,
        status="inconclusive",
        summary=narrative.inconclusive(leading.steps[-1], (), base.gaps, leading, known),
        chain=place,
        alternatives=((not_claimed,) if first else ()) + others[: MOST_ALTERNATIVES - 1],
        next=(*narrative.needed(base.gaps, leading), *remedies.experiment(leading, known)),
    )
