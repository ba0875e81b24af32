"""The verdict as people read it, built once from the chain and the knowledge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from overnight.diagnosis import chain as chains
from overnight.diagnosis import conditions, knowledge, remedies
from overnight.model import times
from overnight.model.event import is_outcome
from overnight.model.finding import Status
from overnight.model.suspect import SuspectOutcome
from overnight.model.verdict import (
    ArgumentOutcome,
    Chain,
    Gap,
    GapKind,
    GapWindow,
    Narrative,
    Step,
    Verdict,
    VerdictStatus,
)

if TYPE_CHECKING:
    from overnight.model.event import Event
    from overnight.model.finding import Finding

RECORD = "overnight record --for 12h"
CHECK = "overnight doctor"
MAX_NEEDS = MAX_MISSING = 3
MAX_PATH = 6
ACTOR_ONLY = 0.6  # a root that explains no more names the process, not the reason
AGREES = ArgumentOutcome.AGREES
DETECTORS = (GapKind.DETECTOR_NO_DATA, GapKind.DETECTOR_FAILED)
# What to do about a gap, and the command for it.
NEEDS = {
    (GapKind.STACKS, None): ("Record stacks without interruption", RECORD),
    (GapKind.STACKS, GapWindow.INCIDENT): ("Record stacks around the event", RECORD),
    (GapKind.STACKS, GapWindow.BASELINE): (
        "Record stacks for ten minutes before the event",
        RECORD,
    ),
    (GapKind.LOST_SAMPLES, None): ("Record without losing samples", RECORD),
    (GapKind.SIGNALS, None): ("Keep the flight recorder running", RECORD),
    (GapKind.LATE_START, None): ("Start recording well before the event", RECORD),
    (GapKind.SHORT_BASELINE, None): ("Start recording ten minutes before the event", RECORD),
    (GapKind.DISTURBED_BASELINE, None): ("Record a time without these events", RECORD),
    (GapKind.KERNEL_LOG, None): ("Make the kernel log readable", CHECK),
    (GapKind.NOT_IMPORTED, None): ("Run the recorder on the host", RECORD),
    (GapKind.PERMISSION, None): ("Give the recorder {what}", CHECK),
    (GapKind.RECORDER, None): ("Give the recorder more open files and memory", CHECK),
    (GapKind.DETECTOR_NO_DATA, None): ("Check why {what}", CHECK),
    (GapKind.DETECTOR_FAILED, None): ("Check why {what}", CHECK),
    (GapKind.CLOCK, None): ("Keep the wall clock steady", ""),
    (GapKind.LOAD, None): ("Keep the load constant", ""),
    (GapKind.RIVAL, None): ("Rule out the other explanation", ""),
}


def narrate(
    verdict: Verdict, known: knowledge.Knowledge, *, end: Finding, leading: Chain | None
) -> Narrative:
    """Narrate a verdict; `end` is the event, `leading` the best chain, claimed or not."""
    claimed = verdict.status is VerdictStatus.CAUSE_FOUND
    chain = leading if claimed else verdict.chain
    first = _first_effect(chain, known) if chain else 0
    fix = remedies.title(leading, known.fixes) if claimed and leading else ""
    todo = "" if claimed else _first_need(verdict.gaps)
    return Narrative(
        headline=_headline(verdict, leading, known),
        event=_describe_event(end, verdict.event),
        root_cause=_root_cause(verdict, end, leading, known),
        mechanism=_mechanism(leading, known) if claimed and leading else "",
        effect=" ".join(_effects(chain, first, known)) if chain else "",
        fix=_sentence(_capitalize(fix)),
        fix_command=_first_command(verdict.fix) if fix else "",
        link=_explain_link(verdict, leading, known) if leading and is_outcome(end.kind) else "",
        proof=_proof(leading, known) if claimed and leading else "",
        todo=todo,
        todo_command=_first_command(verdict.next) if todo else "",
        cleared=_cleared(verdict, known),
        missing=_missing(
            verdict.gaps, _list_unseen(verdict, leading.root, known) if claimed and leading else ()
        ),
    )


def _list_unseen(verdict: Verdict, root: Finding, known: knowledge.Knowledge) -> Iterable[str]:
    """List what may be behind the root, but could not be seen."""
    silent = {each.detector: each.why for each in verdict.answers if each.status is Status.NO_DATA}
    for rule in known.rules:
        kind = known.kind(rule.cause)
        if root.kind in rule.effects and kind.detector in silent:
            yield f"evidence of {kind.name} behind it ({silent[kind.detector]})"


def _first_command(steps: Iterable[Step]) -> str:
    return next((step.command for step in steps if step.command), "")


def without_event(gaps: Sequence[Gap]) -> Narrative:
    return Narrative(
        headline="No cause found: no event of severity warning or critical was recorded",
        root_cause="There is nothing to explain. For a less serious event, name its ID: `overnight events` lists them.",
        todo="Keep the recorder running until an event occurs.",
        todo_command=RECORD,
        missing=_missing(gaps) if gaps else "",
    )


def _headline(verdict: Verdict, leading: Chain | None, known: knowledge.Knowledge) -> str:
    if verdict.status is VerdictStatus.NO_CAUSE:
        return "No cause found"
    if leading is None:
        return "Inconclusive: too little evidence was recorded"
    clause = _clause(leading, known)
    if verdict.status is VerdictStatus.CAUSE_FOUND:
        return f"Cause found: {clause}"
    if known.is_effect(leading.root.kind):
        return f"Inconclusive: {clause}, cause not known"
    return f"Suspected: {clause}"


def _clause(chain: Chain, known: knowledge.Knowledge) -> str:
    """Return the headline of the first link, else that of the root."""
    root = chain.root
    rule = known.find_rule(root.kind, chain.steps[1].kind, event=len(chain.steps) == 2)
    templates = (rule.headline if rule else "", known.kind(root.kind).headline)
    filled = (remedies.fill(template, remedies.values(root)) for template in templates)
    return next(filter(None, filled), known.name(root.kind))


def _root_cause(
    verdict: Verdict, end: Finding, leading: Chain | None, known: knowledge.Knowledge
) -> str:
    if leading is None:
        checked = sum(
            answer.status in (Status.CLEAR, Status.FOUND) and answer.detector != "event"
            for answer in verdict.answers
        )
        if verdict.status is VerdictStatus.NO_CAUSE:
            text = f"Not found: {checked} detectors checked the evidence, and nothing in it leads to this event."
            return " ".join((text, *_explain_direct(verdict, end, known)))
        return "Not known: what was recorded leads to no cause, and too much is missing to rule one out."
    if known.is_effect(leading.root.kind):
        return f"Not known: the evidence does not show why {_clause(leading, known)}."
    text = _describe(leading.root, known)
    if _is_actor_only(leading.root, known):
        text += (
            f" Why {leading.root.subject.process or 'it'} did so is not known: unknown mechanism"
        )
        text += f"{_top_path(leading.root)}."
    if verdict.status is VerdictStatus.CAUSE_FOUND:
        return text
    if twin := chains.find_twin(leading, verdict.alternatives):
        text += (
            f" Equally likely: {_describe(twin.root, known)} Nothing shows which of the two it is."
        )
    return f"Not established. Suspected: {text}"


def _is_actor_only(root: Finding, known: knowledge.Knowledge) -> bool:
    return known.kind(root.kind).explains <= ACTOR_ONLY


def show_stacks(chain: Chain, known: knowledge.Knowledge) -> tuple[Step, ...]:
    """Return the command that shows what the process does, where no mechanism is known."""
    look = remedies.find_look(chain.root)
    if not look or not _is_actor_only(chain.root, known):
        return ()
    what = f"See what {conditions.plain(chain.root.subject.process) or 'it'} does there"
    return (Step(what, look, "the code path that uses the core"),)


def _top_path(finding: Finding) -> str:
    paths = (str(each.values["path"]) for each in finding.evidence if "path" in each.values)
    # The first is the process itself.
    path = [conditions.plain(name) for name in next(paths, "").split(";")[1:]]
    return f", top call path {' > '.join(path[-MAX_PATH:])}" if path else ""


def _first_effect(chain: Chain, known: knowledge.Knowledge) -> int:
    """Return the index of the first step that blames nobody; at the latest that of the event."""
    last = len(chain.steps) - 1
    return next((n for n in range(last) if known.is_effect(chain.steps[n].kind)), last)


def _mechanism(chain: Chain, known: knowledge.Knowledge) -> str:
    """Return the steps between root and effects; if there are none, why the root has this effect."""
    between = range(1, _first_effect(chain, known))
    if between:
        return " ".join(_describe(chain.steps[n], known, chain.steps[n - 1]) for n in between)
    arguments = chain.links[0].arguments if chain.links else ()
    why = next((each.text for each in arguments if each.condition == "rule"), "")
    return _sentence(_capitalize(why))


def _effects(chain: Chain, first: int, known: knowledge.Knowledge) -> Iterable[str]:
    for step in chain.steps[first:-1]:
        yield _describe(step, known)
    end = chain.steps[-1]
    template = known.events[end.kind].says if end.kind in known.events else ""
    yield _sentence(remedies.fill(template, remedies.values(end)) or f"Then: {end.kind}")


def _explain_link(verdict: Verdict, leading: Chain, known: knowledge.Knowledge) -> str:
    """Say what links an outcome with its incident, or that only the time does."""
    link = leading.links[-1]
    shared = [each for each in link.arguments if each.condition == "shared"]
    text = "; ".join(each.text for each in shared or link.arguments if each.outcome is AGREES)
    if not text:
        text = f"Only the time. Not known: {shared[0].text}"
    other = chains.find_other_incident(leading, verdict.alternatives)
    if other:
        text += f". Another incident is linked as well: {_clause(other, known)}. Nothing shows which of the two it was"
    return _sentence(text)


def _describe(finding: Finding, known: knowledge.Knowledge, cause: Finding | None = None) -> str:
    """Describe a finding in one sentence; the link from `cause` may have one of its own."""
    rule = known.find_rule(cause.kind, finding.kind, event=False) if cause else None
    kind = known.kind(finding.kind)
    child = kind.says_of_child if known.contains_others(kind.kind, finding.subject.unit) else ""
    templates = (rule.says if rule else "", child, kind.says)
    filled = (remedies.fill(template, remedies.values(finding)) for template in templates)
    return _sentence(next(filter(None, filled), known.title(finding.kind)))


def _proof(chain: Chain, known: knowledge.Knowledge) -> str:
    title = remedies.title(chain, known.experiments)
    return f"{_sentence(_capitalize(title))} See the experiment below." if title else ""


def _describe_event(end: Finding, event: Event | None) -> str:
    names = remedies.values(end)
    place = remedies.fill("[{interface}][ queue {queue}][, core {core}]", names).strip(" ,")
    instant = times.format_instant(end.window.begin_us)
    later = event.fields.get("uncertain_seconds") if event else None
    if isinstance(later, int | float):  # a host that died lived on after its last reading
        instant += f", or up to {times.format_duration(later)} later"
    origin = f"({event.origin})" if event and event.origin else ""
    return "  ".join(filter(None, (end.kind, names.get("host", ""), place, instant, origin)))


def _cleared(verdict: Verdict, known: knowledge.Knowledge) -> str:
    """List what is cleared, suspects first; the section below has the numbers."""
    clear = {answer.detector for answer in verdict.answers if answer.status is Status.CLEAR}
    labels = dict.fromkeys(
        kind.cleared for kind in known.kinds.values() if kind.cleared and kind.detector in clear
    )
    names = dict.fromkeys(known.name(each.kind) for each in verdict.ruled_out)
    cleared = [*_titles(verdict, SuspectOutcome.CLEARED), *labels]
    parts = {
        "{} (details below).": cleared,
        "Not cleared: {}.": _titles(verdict, SuspectOutcome.NOT_CLEARED),
        "Not checked: {}.": _titles(verdict, SuspectOutcome.NOT_CHECKED),
        "Also found, not linked to this event: {}.": list(names),
    }
    return " ".join(text.format(", ".join(each)) for text, each in parts.items() if each)


def _titles(verdict: Verdict, outcome: SuspectOutcome) -> list[str]:
    return [suspect.title for suspect in verdict.suspects if suspect.outcome is outcome]


def _explain_direct(verdict: Verdict, end: Finding, known: knowledge.Knowledge) -> Iterable[str]:
    """Explain why a finding that could have caused the event directly did not."""
    for each in verdict.ruled_out:
        if each.effect == end.kind:
            yield _sentence(f"{_capitalize(known.name(each.kind))} was found, but {each.why}")
            return


def _missing(gaps: Sequence[Gap], unseen: Iterable[str] = ()) -> str:
    # What no imported file contains is never among the "more".
    worst = sorted(_select_worst(gaps), key=lambda gap: gap.kind is not GapKind.NOT_IMPORTED)
    names = list(dict.fromkeys((*unseen, *(gap.what for gap in worst))))
    if not names:
        return "nothing"
    more = len(names) - MAX_MISSING
    return "; ".join(names[:MAX_MISSING]) + (f"; and {more} more" if more > 0 else "")


def _select_worst(gaps: Iterable[Gap]) -> list[Gap]:
    """Leave detectors out unless there is nothing else: they mostly lack what another gap names."""
    gaps = list(gaps)
    return [gap for gap in gaps if gap.kind not in DETECTORS] or gaps


def _capitalize(text: str) -> str:
    return text[:1].upper() + text[1:]


def _sentence(text: str) -> str:
    return text if not text or text.endswith((".", "!", "?")) else f"{text}."


def list_needs(gaps: Sequence[Gap], leading: Chain | None) -> tuple[Step, ...]:
    """List what would have to be recorded or checked for a verdict."""
    steps = _list_needs(gap for gap in gaps if gap.kind is not GapKind.RIVAL)
    if leading is not None:
        steps.extend(
            Step(f"Check what is not known: {text}")
            for link in leading.links
            for text in link.texts(ArgumentOutcome.NOT_CHECKED)
        )
    return tuple(dict.fromkeys(steps)) or keep_recording(gaps)


def _list_needs(gaps: Iterable[Gap]) -> list[Step]:
    return [
        Step(f"{text}: {gap.why}", command, "the next diagnosis does not list it as missing")
        for gap in _select_worst(gaps)[:MAX_NEEDS]
        for text, command in [_need(gap)]
    ]


def _need(gap: Gap) -> tuple[str, str]:
    text, command = NEEDS.get((gap.kind, gap.window)) or NEEDS[gap.kind, None]
    return text.format(what=gap.what), command


def keep_recording(gaps: Sequence[Gap]) -> tuple[Step, ...]:
    what = "Keep the recorder running until the next event"
    again = Step(what, RECORD, "an event with stacks and signals around it")
    return (*_list_needs(gaps), again)


def _first_need(gaps: Sequence[Gap]) -> str:
    for gap in gaps:
        if gap.kind is not GapKind.RIVAL:
            return f"{_need(gap)[0]}, and wait for the next event."
    return "Keep the recorder running: a second event would show more."
