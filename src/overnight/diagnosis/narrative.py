"""A verdict in three sentences: what happened and who did it, why, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from overnight.diagnosis import knowledge, remedies
from overnight.model import times
from overnight.model.verdict import Chain, Gap, RuledOut, Step

if TYPE_CHECKING:
    from overnight.model.finding import Finding

__all__ = ["cause_found", "inconclusive", "keep_recording", "needed", "no_cause", "no_event"]

PLACES = ("cpu.core_saturated", "net.queue_starved")  # said in the first sentence
RECORD = "overnight record --for 12h"
MOST_CLOSED = 3


def cause_found(chain: Chain, confidence: float, known: knowledge.Knowledge) -> str:
    """The summary of a claimed cause."""
    who = _actor(chain)
    first = _happened(chain.steps[-1])
    places = [_says(one, known) for one in chain.steps[:-1] if one.kind in PLACES]
    if places and who:
        places[0] += f" with {who}"
    if places:
        first += ": " + ", and ".join(places)
    elif who:
        first += f": {who} is behind it"
    root = chain.steps[0]
    reasons = [_says(one, known) for one in chain.steps[:-1] if one.kind not in PLACES]
    second = "Why: " + ", so ".join(reasons) if reasons else "Who filled the core is not known"
    kind = known.kinds.get(root.kind)
    if reasons and kind is not None and kind.explains <= 0.6:
        second += "; why it did so is not known, this says who"
    todo = remedies.title(chain, known) or "carry out the experiment, no fix is known for this"
    third = f"To do: {todo}; confidence {confidence:.2f} of 1, and the experiment below would confirm or refute it"
    return f"{first}. {second}. {third}."


def no_event() -> str:
    """There is nothing to explain."""
    return (
        "No event was recorded or given. Without one there is nothing to explain. "
        "To do: leave overnight on, or name the instant that matters."
    )


def no_cause(
    end: Finding,
    unusual: Sequence[Finding],
    looked: int,
    gaps: Sequence[Gap],
    known: knowledge.Knowledge,
    ruled_out: Sequence[RuledOut] = (),
) -> str:
    """The event is there, and nothing around it that could have caused it."""
    whole = "the evidence is complete" if not gaps else _missing(gaps)
    first = (
        "nothing that was recorded explains it"
        if unusual
        else "nothing unusual was found around it"
    )
    second = f"{looked} detectors looked; {whole}"
    if unusual:
        second = f"Found were {_names(unusual, known)}, and none of it leads to the event{_because(end, ruled_out, known)}; {looked} detectors looked, {whole}"
    return (
        f"{_happened(end)}: {first}. {second}. "
        "To do: nothing from this evidence; leave overnight on, a second event would say more."
    )


def inconclusive(
    end: Finding,
    unusual: Sequence[Finding],
    gaps: Sequence[Gap],
    leading: Chain | None,
    known: knowledge.Knowledge,
) -> str:
    """No cause can be claimed; what is suspected, and what is missing."""
    if leading is not None:
        root = leading.steps[0]
        second = f"Suspected is {known.name(root.kind)} ({_says(root, known)}), but too little supports it"
    elif unusual:
        second = f"Found were {_names(unusual, known)}, but nothing ties them to it"
    else:
        second = "Nothing that could explain it was found"
    missing = _missing(gaps) if gaps else "the evidence is complete, so more events are needed"
    return (
        f"{_happened(end)}, and its cause cannot be told from this evidence. {second}; {missing}. "
        f"To do: {_first_need(gaps)}."
    )


def needed(gaps: Sequence[Gap], leading: Chain | None) -> tuple[Step, ...]:
    """What would have to be recorded for a verdict."""
    steps = _closing(one for one in gaps if not one.what.startswith("another explanation"))
    if leading is not None:
        steps.extend(
            Step(f"Find out: {argument.removeprefix('not checked: ')}")
            for made in leading.links
            for argument in made.against
            if argument.startswith("not checked: ")
        )
    if not steps:
        steps = list(keep_recording(gaps))
    return tuple(dict.fromkeys(steps))


def _closing(gaps: Iterable[Gap]) -> list[Step]:
    """The gaps that cost most; what a detector lacks mostly follows from these."""
    costly = [one for one in gaps if one.factor < 1]
    return [
        Step(f"Close the gap: {one.what} ({one.why})", _command(one.what), "the gap is gone")
        for one in costly[:MOST_CLOSED]
    ]


def keep_recording(gaps: Sequence[Gap]) -> tuple[Step, ...]:
    """What to do while there is nothing to do."""
    closing = _closing(gaps)
    again = Step(
        "Leave the recorder on until the event comes again",
        RECORD,
        "a second event, with stacks and signals around it",
    )
    return (*closing, again)


def _command(what: str) -> str:
    if "permission" in what or "detector" in what or "kernel log" in what:
        return "overnight doctor"
    return RECORD if "stacks" in what or "signals" in what else ""


def _first_need(gaps: Sequence[Gap]) -> str:
    for one in gaps:
        if one.factor < 1 and not one.what.startswith("another explanation"):
            return f"close the gap in {one.what}, and wait for the next event"
    return "leave overnight on, a second event would say more"


def _missing(gaps: Sequence[Gap]) -> str:
    costly = [one.what for one in gaps if one.factor < 1]
    # What a detector lacks is mostly one of the others.
    worst = [one for one in costly if not one.startswith("detector ")] or costly
    return f"what is missing: {', '.join(worst[:3])}" if worst else "no gap matters"


def _because(end: Finding, ruled_out: Sequence[RuledOut], known: knowledge.Knowledge) -> str:
    """Why the one that could have caused the event itself did not."""
    to_event = f"{known.name(end.kind)}: "
    for one in ruled_out:
        if one.why.startswith(to_event):
            return f" ({known.name(one.kind)}: {one.why.removeprefix(to_event)})"
    return ""


def _names(findings: Sequence[Finding], known: knowledge.Knowledge) -> str:
    return ", ".join(sorted({known.name(one.kind) for one in findings}))


def _happened(end: Finding) -> str:
    told = remedies.values(end)
    where = remedies.fill("[ on {host}]", told)
    place = remedies.fill("[, {interface}][ queue {queue}][, core {core}]", told).strip(" ,")
    instant = times.format_instant(end.window.begin_us)
    return f"At {instant} {end.kind}{where}{f' ({place})' if place else ''}"


def _actor(chain: Chain) -> str:
    """Who was on the core: the last one with a name before the places."""
    for step in reversed(chain.steps[:-1]):
        if step.kind not in PLACES and step.subject.process:
            return remedies.fill("{process}[ ({unit})]", remedies.values(step))
    return ""


def _says(one: Finding, known: knowledge.Knowledge) -> str:
    kind = known.kinds.get(one.kind)
    said = remedies.fill(kind.says, remedies.values(one)) if kind else ""
    return said or known.name(one.kind)
