"""What all formats of a report say alike: names of kinds, of subjects, of numbers, of confidence."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from overnight.model import times

if TYPE_CHECKING:
    from overnight.model.finding import Evidence, Finding, Subject
    from overnight.model.verdict import Gap, Verdict

__all__ = [
    "DENOMINATORS", "KINDS", "STATUS", "STATUS_MEANS", "chain_heading", "clean", "clock", "command", "confidence_means", "confidence_words",
    "gap_factor", "is_claimed", "kind_words", "length_words", "look_words", "nothing_missing", "number_words", "percent", "place_words", "quantities",
    "strength_words", "title", "when_words", "who_words", "without_data",
]  # fmt: skip

STATUS = {
    "cause-found": "Cause found",
    "inconclusive": "Inconclusive",
    "no-cause": "No cause found",
}
STATUS_MEANS = {
    "cause-found": "A chain from a cause to the event holds in time, place and size.",
    "inconclusive": "There are leads, but no chain is strong enough to be called the cause.",
    "no-cause": "What was recorded shows nothing that would explain an event.",
}
# What a kind of finding is, in a few words; the kind itself stands where none are known.
KINDS = {
    "cpu.core_saturated": "One core was full",
    "cpu.core_pinned": "A core was pinned",
    "cpu.culprit": "Who ran on that core",
    "cpu.rt_hog": "Real-time task kept the core",
    "cpu.stall": "The kernel reported a stall",
    "kernel.lock_contention": "Waiting for a kernel lock",
    "limit.near": "A limit was nearly reached",
    "memory.cgroup_walk": "Kernel walked all memory cgroups",
    "memory.oom": "Out of memory",
    "memory.reclaim": "Reclaim of memory",
    "memory.zombie_cgroups": "Zombie memory cgroups",
    "net.driver_reset": "Network driver reset",
    "net.queue_starved": "A network queue was not served",
    "net.softirq_storm": "Storm of soft interrupts",
    "recorder.cost": "The recorder's own share",
    "stack.lift": "Ran more before the events",
    "storage.fault": "Storage fault",
    "unit.crash_loop": "A unit restarts for ever",
    "unit.hidden_crash_loop": "Hidden crash loop",
}
# Magnitudes as a reader wants them, in the order of their weight. Those not named are shown as they are.
NUMBERS = {
    "kernel_percent": "{:.0f} % of the core's time in the kernel",
    "busy_percent": "{:.0f} % of the core's time busy",
    "others_percent": "the other cores' mean {:.0f} %",
    "waited_seconds": "waited {:.3g} s to be polled",
    "seconds": "for {:.3g} s",
    "cores_burnt": "{:.2g} cores burnt",
    "cores_added": "{:.2g} cores more than before",
    "cores_before": "{:.2g} cores before",
    "share_of_core_samples": "",
    "kernel_share": "",
    "births_per_hour": "{:,.0f} cgroups born an hour",
    "deaths_per_hour": "{:,.0f} gone an hour",
    "short_lived_per_hour": "{:,.0f} an hour lived less than a minute",
    "restarts_per_hour": "{:,.0f} restarts an hour",
    "dying": "{:,.0f} dying",
    "in_use": "{:,.0f} in use",
    "tracked": "{:,.0f} tracked",
    "growth_per_hour": "{:+,.0f} an hour",
    "age_hours": "for {:,.0f} h",
    "hours": "seen for {:.2g} h",
    "softirq_percent": "{:.0f} % of the core's time in soft interrupts",
    "packets_per_second": "{:,.0f} packets/s",
    "rt_priority": "real-time priority {:.0f}",
    "pages_per_second": "{:,.0f} pages/s",
    "lift": "{:.3g} times as much",
    "low": "lower bound of its logarithm {:.2f}",
    "q_value": "q = {:.2g}",
    "recurrences": "{:.0f} recurrences",
    "cores_more": "{:+.2g} cores",
    "samples": "{:,.0f} samples",
    "count": "{:,.0f} lines or sightings",
}
SHARES = {
    "share_of_core_samples": "of that core's samples",
    "kernel_share": "of its own samples in the kernel",
}
DENOMINATORS = (
    ("share of samples", "of the samples in which the chosen cores were busy"),
    ("share of capacity", "of all the time that the chosen cores had, idle or not"),
    ("cores", "as many cores' worth of time, on average over the window"),
)
INSTANT_S = (
    0.05  # lines of one incident come within a millisecond: it has no length that says anything
)
LONGEST = 400  # characters of one text of a host; a name of 8 kB tells nobody anything


def chain_heading(told: Verdict) -> str:
    """What a chain is called: of a cause only where one is claimed."""
    return "Chain, root first" if is_claimed(told) else "What is known, no cause is claimed"


def is_claimed(told: Verdict) -> bool:
    """Whether the first step of the chain is said to be the cause."""
    return told.status == "cause-found"


def without_data(told: Verdict) -> bool:
    """Whether a detector could not answer."""
    return any(str(one.status) in ("no-data", "failed") for one in told.answers)


def nothing_missing(told: Verdict) -> str:
    """What is said where no gap is known."""
    if without_data(told):
        return "No gap lowers the confidence; detectors without data and those that failed are listed below."
    return "Nothing that the detectors asked for was missing."


def clean(text: object, longest: int = LONGEST) -> str:
    r"""Text from a host as one line: what is no printable character is spelled out.

    >>> clean("a\x1b[31mb\u202ec\n")
    'a\\x1b[31mb\\u202ec\\n'
    """
    whole = str(text)
    cut = whole[:longest] + ("…" if len(whole) > longest else "")
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in cut
    )


def command(text: str) -> str:
    """A command as it can be copied: its lines stay lines, nothing in it is hidden."""
    return "\n".join(clean(line, 4000) for line in text.strip("\n").split("\n"))


def length_words(seconds: float) -> str:
    """How long something lasted: `4.5 s`, what is longer than two minutes as `29m20s`; '' for an instant."""
    if seconds < INSTANT_S:
        return ""
    return f"{seconds:.3g} s" if seconds < 120 else times.format_duration(seconds)


def kind_words(kind: str) -> str:
    """What a kind of finding or event is called."""
    return KINDS.get(kind) or clean(kind.replace("_", " ").replace(".", ": ", 1))


def title(told: Verdict) -> str:
    """What the report is about."""
    if told.event is None:
        return "Diagnosis without an event"
    where = f" on {clean(told.event.host, 80)}" if told.event.host else ""
    return f"{kind_words(told.event.kind)}{where}, {clock(told.event.time_us)} UTC"


def clock(us: int, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """An instant in UTC."""
    try:
        when = datetime.datetime.fromtimestamp(us // 1_000_000, datetime.UTC)
    except (ValueError, OverflowError, OSError):  # nobody lives then, but a damaged file may say so
        return f"{us / 1e6:.0f} s after 1970"
    return f"{when:{form}}"


def when_words(begin_us: int, end_us: int) -> str:
    """A window: its day, from when, for how long."""
    return f"{clock(begin_us)} for {times.format_duration(max(0, end_us - begin_us) / 1e6)}"


def who_words(subject: Subject) -> str:
    """Whom a finding is about: process, unit, function; '' where it names nobody."""
    named = [clean(one, 80) for one in (subject.process, subject.unit) if one]
    who = " of ".join(named) if len(named) == 2 else "".join(named)
    function = f"{clean(subject.function, 80)}()" if subject.function else ""
    return " in ".join(filter(None, (who, function)))


def place_words(subject: Subject, *, host: bool = True) -> str:
    """Where: core, queue, cgroup, host."""
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


def quantities(found: Finding) -> Iterator[str]:
    """Its magnitudes with what they are of, the telling ones first."""
    known = [name for name in NUMBERS if name in found.magnitude]
    named = (*known, *(name for name in found.magnitude if name not in NUMBERS))
    # A nought says little: it comes last, where there is still room.
    for name in sorted(named, key=lambda one: found.magnitude[one] == 0):
        value = found.magnitude[name]
        if not math.isfinite(value) or (name == "seconds" and value < INSTANT_S):
            continue
        if name in SHARES:
            yield f"{percent(value)} {SHARES[name]}"
            continue
        form = NUMBERS.get(name)
        yield form.format(value) if form else f"{clean(name, 60).replace('_', ' ')} {value:,.4g}"


def number_words(found: Finding, most: int = 3) -> str:
    """The numbers that say how large it is, on one line."""
    return " · ".join(list(quantities(found))[:most])


def percent(share: float | None) -> str:
    """Two digits that matter; a dash where nobody knows.

    >>> percent(0.065), percent(0.0004), percent(None)
    ('6.5 %', '0.04 %', '-')
    """
    if share is None or not math.isfinite(share):
        return "-"
    value = 100 * share
    return f"{value:.0f} %" if value >= 10 else f"{value:.2g} %" if value < 1 else f"{value:.1f} %"


def strength_words(strength: float) -> str:
    """How well a link holds, so that nobody has to remember the scale."""
    bounds = ((0.75, "strong"), (0.5, "fair"), (0.25, "weak"))
    return next((word for bound, word in bounds if strength >= bound), "very weak")


def gap_factor(gaps: Iterable[Gap]) -> float:
    """By what all gaps together multiply the confidence."""
    return math.prod(gap.factor for gap in gaps)


def confidence_words(told: Verdict) -> str:
    """How sure the claim is, or the suspicion; '' where there is none: a nought would read as a doubt."""
    return "" if told.status == "no-cause" else f"confidence {told.confidence:.2f} of 1"


def confidence_means(told: Verdict) -> str:
    """What a reader may do with a verdict this sure, and what the number is not."""
    factor = gap_factor(told.gaps)
    missing = (
        f" Missing evidence multiplies it by {factor:.2f}; what is missing is listed below."
        if factor < 0.995
        else ""
    )
    if told.status == "no-cause":
        return f"No cause is claimed, so there is no confidence in one.{missing.replace(' it ', ' what is said here ')}"
    if not is_claimed(told):
        lead = "A suspicion: a lead to follow, no cause to act on."
    elif told.confidence >= 0.8:
        lead = "High: act on it, and run the experiment to be sure."
    elif told.confidence >= 0.55:
        lead = "Likely, but run the experiment before anything is changed for good."
    else:
        lead = (
            "Weak, though a cause is claimed: run the experiment first, and read the alternatives."
        )
    return (
        f"{lead} It sums up how well the links hold in time, place, size and recurrence, from 0 to 1; "
        f"it is no share of incidents in which such a verdict was right.{missing}"
    )


def look_words(found: Evidence) -> str:
    """Where a piece of evidence comes from, and of when it is."""
    parts = [clean(found.source, 120)]
    if found.window:
        parts.append(when_words(found.window.begin_us, found.window.end_us))
    parts += [f"{clean(name, 60)} {_value(value)}" for name, value in found.values.items()]
    return " · ".join(filter(None, parts))


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.4g}" if isinstance(value, float) else clean(value, 200)
