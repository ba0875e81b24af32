"""Texts of all report formats: subjects, numbers, times and confidence."""

from __future__ import annotations

import collections
import itertools
import math
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from overnight.diagnosis import calibration, knowledge
from overnight.model import text as texts
from overnight.model import times
from overnight.model.event import is_outcome
from overnight.model.suspect import Suspect, SuspectOutcome
from overnight.model.times import SECOND_US
from overnight.model.verdict import VerdictStatus
from overnight.reports.pictures import layout

if TYPE_CHECKING:
    from overnight.model.finding import Answer, Evidence, Finding, Subject
    from overnight.model.verdict import Chain, Gap, Verdict
    from overnight.reports import diagnosis

QUOTED = re.compile(r"`((?:sudo )?overnight [^`]*)`")
percent = texts.percent
clock = layout.clock
DENOMINATORS = (
    ("share of samples", "of the samples in which the selected cores were busy"),
    ("share of capacity", "of all the time of the selected cores, idle or not"),
    ("cores", "cores used, on average over the window"),
)
# Steps of an experiment that only say how to read the outcome expect nothing else.
OUTCOMES = ("confirmed", "refuted")
SUSPECTS = "Checked and not the cause"
NOTHING_MISSING = "Nothing that this verdict rests on is missing."
FACTORS = "Each multiplies the score by its factor"
INSTANT_S = 0.05  # the lines of one incident come within milliseconds: such a length means nothing
MAX_READINGS = 4  # of each kind
MAX_TEXT = 400  # characters of a text from a host
ACT = 0.9  # the confidence from which the fix comes before the experiment
NO_LESS = 0.995  # a factor that reads 1.00
MEASURED = (
    "in which work on a core delays something else, or only seems to; causes in hardware are hardly"
    " measured"
)


def knowledge_of(material: diagnosis.Material) -> knowledge.Knowledge:
    return material.known or knowledge.known()


def chain_heading(verdict: Verdict) -> str:
    return "Chain, root first" if is_claimed(verdict) else "What is known; no cause is claimed"


def next_heading(verdict: Verdict) -> str:
    return "Experiment" if is_claimed(verdict) else "Next steps"


def consumers_heading(material: diagnosis.Material) -> str:
    return f"Top consumers of {name_cores(material)} in the incident window"


def name_cores(material: diagnosis.Material) -> str:
    return f"core {material.core}" if material.core >= 0 else "all cores"


def is_claimed(verdict: Verdict) -> bool:
    """Return whether the first step of the chain is claimed to be the cause."""
    return verdict.status == VerdictStatus.CAUSE_FOUND


def clean(text: object, longest: int = MAX_TEXT) -> str:
    r"""Return text from a host on one line, with control characters escaped.

    >>> clean("a\x1b[31mb\u202ec\n")
    'a\\x1b[31mb\\u202ec\\n'
    """
    return texts.printable(str(text), limit=longest)


def command(text: str) -> str:
    """Return a command as it can be copied: its lines stay lines, and nothing in it is hidden."""
    return "\n".join(clean(line, 4000) for line in text.strip("\n").split("\n"))


def format_length(seconds: float) -> str:
    """Format `4.5 s` or `29 min 20 s`; '' for an instant."""
    return times.format_duration(seconds, exact=True) if seconds >= INSTANT_S else ""


def title(verdict: Verdict, known: knowledge.Knowledge) -> str:
    if verdict.event is None:
        return "Diagnosis without an event"
    where = f" on {clean(verdict.event.host, 80)}" if verdict.event.host else ""
    kind = clean(known.title(verdict.event.kind))
    return f"{kind}{where}, {times.format_instant(verdict.event.time_us)}"


def format_window(begin_us: int, end_us: int) -> str:
    return f"{clock(begin_us)} for {times.format_duration(max(0, end_us - begin_us) / SECOND_US)}"


def order_suspects(verdict: Verdict) -> list[Suspect]:
    """Return the cleared suspects first, then those that changed, then those without data."""
    order = list(SuspectOutcome)
    return sorted(verdict.suspects, key=lambda suspect: order.index(suspect.outcome))


def format_outcome(suspect: Suspect) -> str:
    return str(suspect.outcome).replace("-", " ")


def describe_subject(subject: Subject) -> str:
    """Return process, unit and function of a finding; '' if it names none."""
    actor = clean(subject.actor if subject.process else subject.unit, 160)
    function = f"{clean(subject.function, 80)}()" if subject.function else ""
    return " in ".join(filter(None, (actor, function)))


def name_finding(finding: Finding, known: knowledge.Knowledge) -> str:
    """Return the title of a finding with its process, unit and function."""
    return ": ".join(filter(None, (clean(known.title(finding.kind)), describe_subject(finding.subject))))  # fmt: skip


def format_chain(chain: Chain, known: knowledge.Knowledge) -> str:
    return " → ".join(name_finding(step, known) for step in chain.steps)


def format_place(subject: Subject, *, host: bool = True) -> str:
    """Return core, queue, cgroup and host of a finding."""
    parts = []
    if subject.core is not None:
        parts.append(f"core {subject.core}")
    if subject.interface:
        queue = f" queue {subject.queue}" if subject.queue is not None else ""
        parts.append(f"{clean(subject.interface, 40)}{queue}")
    if subject.cgroup:
        parts.append(f"cgroup {clean(subject.cgroup, 120)}")
    if subject.host and host:
        parts.append(clean(subject.host, 80))
    return ", ".join(parts)


def list_numbers(finding: Finding, known: knowledge.Knowledge) -> Iterator[str]:
    """Yield the magnitudes of a finding with what they are of, the most telling first."""
    magnitude = finding.magnitude
    named = (
        *(name for name in known.numbers if name in magnitude),
        *(name for name in magnitude if name not in known.numbers),
    )
    # Zeros come last.
    for name in sorted(named, key=lambda name: magnitude[name] == 0):
        value = magnitude[name]
        if not math.isfinite(value) or (name == "seconds" and value < INSTANT_S):
            continue
        if number := known.numbers.get(name):
            yield number.format.format(value=value, percent=percent(value))
        else:
            yield f"{clean(name, 60).replace('_', ' ')} {value:,.4g}"


def format_numbers(finding: Finding, known: knowledge.Knowledge, most: int = 3) -> str:
    """Return the most telling numbers on one line."""
    return " · ".join(itertools.islice(list_numbers(finding, known), most))


def list_details(
    finding: Finding, known: knowledge.Knowledge, *, host: bool = True
) -> tuple[str, str, str]:
    """Return subject, place and numbers of a finding; '' where it has none."""
    place = format_place(finding.subject, host=host)
    return describe_subject(finding.subject), place, format_numbers(finding, known)


def format_strength(strength: float) -> str:
    """Return number and word, so that the scale need not be remembered."""
    bounds = ((0.75, "strong"), (0.5, "fair"), (0.25, "weak"))
    word = next((word for bound, word in bounds if strength >= bound), "very weak")
    return f"{strength:.2f} {word}"


def multiply_gaps(gaps: Iterable[Gap]) -> float:
    return math.prod(gap.factor for gap in gaps)


def format_confidence(verdict: Verdict) -> str:
    """Return the confidence of a claim or suspicion; '' without one, for a zero would read as a doubt."""
    return f"confidence {verdict.confidence:.2f}" if verdict.confidence else ""


def explain_confidence(verdict: Verdict) -> str:
    """Explain how to act on this confidence, what it was measured on, and what it does not mean."""
    factor = multiply_gaps(verdict.gaps)
    if not verdict.confidence:
        weakened = f"Missing evidence weakens this result by a factor of {factor:.2f}."
        return weakened if factor < NO_LESS else ""
    lead = "A suspicion to follow up, not a cause to act on."
    if is_claimed(verdict):
        sure = verdict.confidence >= ACT
        lead = "Act on it, and run" if sure else "Likely: run"
        lead += " the experiment " + ("to be sure." if sure else "before you change anything.")
    missing = f", with a factor of {factor:.2f} for missing evidence" if factor < NO_LESS else ""
    measured = calibration.known()
    probability, link = verdict.confidence, ""
    if verdict.event and is_outcome(verdict.event.kind):
        probability = measured.probability(verdict.score)
        link = f" The link to this event lowers it to {verdict.confidence:.2f}."
    return (
        f"{lead} The confidence is a probability: of 100 verdicts with this score ({verdict.score:.2f}{missing}), about"
        f" {100 * probability:.0f} blame a true cause.{link} It was measured on {measured.diagnoses:,} diagnoses of"
        f" {measured.families} kinds of incident with a known truth, {MEASURED}. It does not mean that this is the"
        " only cause, or that the fix is enough."
    )


def explain_answer(answer: Answer, known: knowledge.Knowledge) -> str:
    """Return the reason of a detector's answer, or the titles of its findings."""
    titles = dict.fromkeys(known.title(finding.kind) for finding in answer.findings)
    return clean(answer.why or "; ".join(titles), 300)


def format_source(evidence: Evidence) -> str:
    """Return where a piece of evidence comes from, its window and its values."""
    parts = [clean(evidence.source, 120)]
    if evidence.window:
        parts.append(format_window(evidence.window.begin_us, evidence.window.end_us))
    parts += [f"{clean(name, 60)} {_format_value(value)}" for name, value in evidence.values.items()]  # fmt: skip
    return " · ".join(filter(None, parts))


def _format_value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.4g}" if isinstance(value, float) else clean(value, 200)


def list_readings(material: diagnosis.Material) -> Iterator[str]:
    """Yield what instruments read in the shown window, the most of each kind, and what each of them cost."""
    shown: collections.Counter[str] = collections.Counter()
    for row in material.readings:
        shown[row.kind] += 1
        if shown[row.kind] <= MAX_READINGS:
            yield row.describe()
    for recording in material.recordings:
        yield (
            f"{recording.instrument} {recording.target}".strip() + f": {recording.describe_cost()}"
        )
