"""Whether a cause and an effect agree in time, place, magnitude and recurrence."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from overnight.model import times
from overnight.model.text import percent
from overnight.model.times import SECOND_US

if TYPE_CHECKING:
    from overnight.diagnosis import knowledge
    from overnight.model.finding import Finding, Subject

RESOLUTION_S = 2.0  # signals are read once a second: two windows cannot be ordered more finely
LATE_FIT = 0.6  # seen later than its effect, but within what the rule allows
ROOT_CGROUPS = ("", "/")  # everything is below these: no evidence
MAX_NAME = 200
PID = re.compile(r"\[\d+\]$", re.ASCII)
IN_DOUBT = 0.2
KERNEL_PERCENT = 90.0  # of a core's time: with less, it still served its interrupts
MIN_WAIT_S = 1.0  # a driver waits for several seconds before it gives up on a queue
# Of a program's own time: one core is where it runs, or where it only passed by. Between them it may have waited.
OWN_CORE, PASSED_BY = 0.5, 0.02
DISK = re.compile(r"nvme\d+|[hsv]d[a-z]+", re.ASCII)
SHARED = ("same_core", "same_process", "same_unit", "same_cgroup", "same_interface")
LIFT_RECURRENCES = 2  # once is not a recurrence


@dataclasses.dataclass(frozen=True)
class Judgement:
    """`fit` is 1 where they agree, 0 where they contradict each other, None where it is not known."""

    fit: float | None
    text: str


@dataclasses.dataclass(frozen=True)
class Surroundings:
    """Other findings to compare with: top consumers of cores, stacks lifted before recurrences, where a victim ran."""

    culprits: tuple[Finding, ...] = ()
    lifts: tuple[Finding, ...] = ()
    victims: tuple[Finding, ...] = ()
    numbers: Mapping[str, knowledge.Number] = dataclasses.field(default_factory=dict)  # formats

    @classmethod
    def of(cls, findings: Sequence[Finding], known: knowledge.Knowledge) -> Surroundings:
        return cls(
            tuple(finding for finding in findings if finding.kind == "cpu.culprit"),
            tuple(finding for finding in findings if finding.kind == "stack.lift"),
            tuple(finding for finding in findings if finding.kind == "app.core"),
            known.numbers,
        )


@dataclasses.dataclass(frozen=True)
class Pair:
    condition: knowledge.Condition
    cause: Finding
    effect: Finding
    around: Surroundings


Judge = Callable[[Pair], Judgement]


def judge(
    condition: knowledge.Condition, cause: Finding, effect: Finding, around: Surroundings
) -> Judgement:
    judgement = JUDGES[condition.holds](Pair(condition, cause, effect, around))
    return dataclasses.replace(judgement, text=plain(judgement.text, 4 * MAX_NAME))


def format_number(value: float) -> str:
    """Format with three digits, large numbers in full.

    >>> format_number(68680.0), format_number(0.9712), format_number(6.0)
    ('68,680', '0.971', '6')
    """
    whole = 100 <= abs(value) < 1e15 or (math.isfinite(value) and value == round(value))
    return f"{value:,.0f}" if whole and abs(value) < 1e15 else f"{value:.3g}"


def plain(text: str, longest: int = MAX_NAME) -> str:
    """Return a name on one line, without control characters."""
    shown = text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)
    return shown if len(shown) <= longest else shown[:longest] + "…"


def measured(finding: Finding, name: str) -> float | None:
    """Return a magnitude if it is finite: a detector may divide by zero."""
    value = finding.magnitude.get(name)
    return value if value is not None and math.isfinite(value) else None


def _size(finding: Finding, name: str) -> float:
    return measured(finding, name) or 0.0


def _time_order(pair: Pair) -> Judgement:
    late = (pair.cause.window.begin_us - pair.effect.window.begin_us) / SECOND_US
    over = (pair.effect.window.begin_us - pair.cause.window.end_us) / SECOND_US
    if late > max(pair.condition.slack_seconds, RESOLUTION_S):
        return Judgement(0.0, f"time: it begins {times.format_duration(late)} after its effect")
    if over > pair.condition.gap_seconds:
        ended = times.format_duration(over)
        return Judgement(0.0, f"time: it ended {ended} before its effect began")
    if late > RESOLUTION_S:
        seen = f"time: it is first seen {times.format_duration(late)} after its effect"
        return Judgement(LATE_FIT, f"{seen}, within the resolution of its signal")
    if late > -1:
        return Judgement(1.0, "time: both begin within two seconds of each other")
    return Judgement(1.0, f"time: it begins {times.format_duration(-late)} before its effect")


def _same(name: str, none: str | None) -> Judge:
    def same(pair: Pair) -> Judgement:
        left, right = (_strip_pid(getattr(end.subject, name)) for end in (pair.cause, pair.effect))
        if none in (left, right):
            which = "both" if left == right else "one of them"
            return Judgement(None, f"the {name} of {which} is not known")
        if left == right:
            return Judgement(1.0, f"same {name}: {left}")
        return Judgement(0.0, f"different {name}: {left}, not {right}")

    return same


def _strip_pid(value: str | int | None) -> str | int | None:
    """Strip the process id that watches add: `postgres[4711]`."""
    return PID.sub("", value) if isinstance(value, str) else value


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _below(child: str, parent: str) -> bool:
    return _parts(child)[: len(_parts(parent))] == _parts(parent)


def _same_cgroup(pair: Pair) -> Judgement:
    """Agree where one contains the other, or the unit's name is in the other's path."""
    left, right = pair.cause.subject.cgroup, pair.effect.subject.cgroup
    unit = pair.cause.subject.unit
    if right not in ROOT_CGROUPS and unit and unit in _parts(right):
        return Judgement(1.0, f"{unit} is in the path of {right}")
    if left in ROOT_CGROUPS or right in ROOT_CGROUPS:
        return Judgement(None, "the cgroup of one of them is not known, or is the root cgroup")
    if _below(left, right) or _below(right, left):
        return Judgement(1.0, f"same cgroup, or one inside the other: {left} and {right}")
    return Judgement(0.0, f"different cgroup: {left}, not {right}")


def _parent_of(pair: Pair) -> Judgement:
    parent, child = pair.cause.subject.cgroup, pair.effect.subject.cgroup
    if parent in ROOT_CGROUPS or child in ROOT_CGROUPS:
        return Judgement(None, "the cgroup of one of them is not known, or is the root cgroup")
    if _below(child, parent):
        return Judgement(1.0, f"{parent} contains {child}")
    return Judgement(0.0, f"{parent} does not contain {child}")


def _magnitude(pair: Pair) -> Judgement:
    """Compare the first pair of numbers that is measured on both sides."""
    missing = ""
    pairs = itertools.zip_longest(pair.condition.cause, pair.condition.effect, fillvalue="")
    for cause_name, effect_name in pairs:
        value = measured(pair.cause, cause_name)
        other = measured(pair.effect, effect_name) if effect_name else 1.0
        if value is None or other is None:
            missing = cause_name if value is None else effect_name
            continue
        numbers = _format_magnitude(cause_name, value, pair.around)
        if effect_name:
            numbers += f" against {_format_magnitude(effect_name, other, pair.around)}"
        ratio = value / other if other > 0 else math.inf if value > 0 else 0.0
        fit = _fit(ratio, pair.condition)
        agrees = "agrees" if fit == 1 else "agrees only in part" if fit else "does not agree"
        return Judgement(fit, f"magnitude {agrees}: {numbers}")
    return Judgement(None, f"{missing.replace('_', ' ')} was not measured")


def _format_magnitude(name: str, value: float, around: Surroundings) -> str:
    if number := around.numbers.get(name):
        return number.format.format(value=value, percent=percent(value))
    return f"{format_number(value)} {name.replace('_', ' ')}"


def _fit(ratio: float, condition: knowledge.Condition) -> float:
    """Return 1 inside `fits`, falling with the logarithm to 0 at the bounds of `possible`."""
    (low, high), (least, most) = condition.fits, condition.possible
    if low <= ratio <= high:
        return 1.0
    if not least < ratio < most:
        return 0.0
    near, far = (low, least) if ratio < low else (high, most)
    if far <= 0 or math.isinf(far):  # unbounded: there is no logarithmic slope to follow
        return ratio / near if ratio < near else near / ratio
    return math.log(ratio / far) / math.log(near / far)


def _taken(finding: Finding) -> float:
    """Return the cores used, above the baseline where it is known."""
    return _size(finding, "cores_added") or _size(finding, "cores_burnt")


def _same_culprit(pair: Pair) -> Judgement:
    """Judge whether the cause's process (or unit) is the top consumer of the effect's core."""
    core = pair.effect.subject.core
    consumers = sorted(
        (
            culprit
            for culprit in pair.around.culprits
            if culprit.subject.host == pair.effect.subject.host
            and culprit.subject.core == core
            and core is not None
            and culprit.window.begin_us < pair.effect.window.end_us
            and pair.effect.window.begin_us < culprit.window.end_us
        ),
        key=lambda culprit: (-_taken(culprit), culprit.id),
    )
    name = "process" if pair.cause.subject.process else "unit"
    blamed = getattr(pair.cause.subject, name)
    if not consumers or not blamed:
        return Judgement(None, "the top consumer of that core is not known")
    names = [
        own
        if (own := getattr(culprit.subject, name)) != blamed
        or _may_be_same(pair.cause.subject, culprit.subject)
        else f"{own} ({culprit.subject.unit})"
        for culprit in consumers
    ]
    if blamed == names[0]:
        return Judgement(1.0, f"{blamed} is the top consumer of core {core}")
    if blamed in names:
        first, own = _taken(consumers[0]), _taken(consumers[names.index(blamed)])
        share = min(own / first, 1.0) if first > 0 else 0.5
        compared = f"{format_number(first)} cores against {format_number(own)}"
        text = f"{blamed} ran on core {core}, but {names[0]} used more of it ({compared})"
        return Judgement(share * 0.8 + 0.1, text)
    other = names[0] or "another process"
    return Judgement(0.0, f"core {core} was saturated by {other}, not by {blamed}")


def _may_be_same(one: Subject, other: Subject) -> bool:
    """Return False for two programs in different units that only share a name.

    Ticks know no unit, and no function; a process that has a function and no unit is in none.
    """
    is_known = all(subject.unit or subject.function for subject in (one, other))
    return one.unit == other.unit or not is_known


def _recurrence(pair: Pair) -> Judgement:
    """Judge whether the cause also ran more before the other events of the same kind."""
    best = min(
        (
            lift
            for lift in pair.around.lifts
            if pair.cause.subject.process
            and lift.subject.process == pair.cause.subject.process
            and _may_be_same(lift.subject, pair.cause.subject)
            and (
                not pair.cause.subject.function
                or not lift.subject.function
                or lift.subject.function == pair.cause.subject.function
            )
            and _size(lift, "recurrences") >= LIFT_RECURRENCES
        ),
        key=lambda lift: (-_size(lift, "low"), lift.id),
        default=None,
    )
    if best is None:
        return Judgement(None, "there are no recurrences to compare with")
    count = format_number(_size(best, "recurrences"))
    if _size(best, "low") > 0:
        lift = measured(best, "lift")
        times_more = f"{format_number(lift)} times as much" if lift is not None else "more"
        return Judgement(1.0, f"recurrence: it also ran {times_more} before {count} recurrences")
    return Judgement(0.2, f"recurrence: before {count} recurrences it ran no more than otherwise")


def _waited(pair: Pair) -> Judgement:
    """Judge what the event itself reports: drivers log how long a queue was not polled."""
    waited = measured(pair.effect, "waited_seconds")
    if waited is None:
        return Judgement(None, "the event does not report how long it waited")
    silent, kernel = measured(pair.effect, "silent_seconds"), measured(pair.cause, "kernel_percent")
    if (silent or 0.0) >= MIN_WAIT_S and (kernel or 0.0) >= KERNEL_PERCENT:
        return Judgement(
            IN_DOUBT,
            "the event reports that no poll was scheduled: the device sent no interrupt, or the core had"
            " interrupts off, which is possible while it runs in the kernel only",
        )
    if waited < MIN_WAIT_S:
        polled = f": the queue was polled {waited:.3g} s before" if waited > 0 else ""
        return Judgement(0.0, f"the event reports that nothing waited for the core{polled}")
    at, window = pair.effect.window.begin_us, pair.cause.window
    text = f"the event reports a wait of {times.format_duration(waited)}"
    during = (min(window.end_us, at) - max(window.begin_us, at - waited * SECOND_US)) / SECOND_US
    if during + RESOLUTION_S < waited / 2:
        return Judgement(0.0, f"{text}, and this had ended before it, or began after it")
    return Judgement(1.0, text)


def _shared(pair: Pair) -> Judgement:
    """Judge what an outcome shares with its cause, or with the top consumer of the cause's core."""
    cause, effect = pair.cause.subject, pair.effect.subject
    here = [each for each in pair.around.victims if each.subject.core == cause.core]
    ran = [
        each.summary
        for each in here
        if _size(each, "own_share") >= OWN_CORE or _size(each, "cores_waited") > 0
    ]
    on_core = (each for each in pair.around.culprits if each.subject.core == cause.core)
    causes = (pair.cause, *(on_core if cause.core is not None else ()))
    is_elsewhere = here and not ran and _size(here[0], "own_share") < PASSED_BY
    # Who adds an outcome may take the core from the alert; where the application ran was measured.
    names = SHARED[1:] if is_elsewhere else SHARED
    judged = (
        JUDGES[name](dataclasses.replace(pair, cause=each)) for each in causes for name in names
    )
    shared = [judgement.text for judgement in judged if judgement.fit == 1]
    if (disk := _disk(pair.cause)) and disk == _disk(pair.effect):
        shared.append(f"same disk: {disk}")
    if shared or ran:
        return Judgement(1.0, "; ".join(dict.fromkeys((*ran, *shared))))
    if is_elsewhere and effect.core != cause.core:
        return Judgement(0.0, here[0].summary)
    for name in ("same_core", "same_interface"):
        if (other := JUDGES[name](pair)).fit == 0:
            return other
    values = pair.effect.evidence[0].values if pair.effect.evidence else {}
    more = {name: values[name] for name in ("pid", "disk", "device") if values.get(name)}
    subject = {**effect.as_json(), **more}
    named = [f"{name} {value}" for name, value in subject.items() if name != "host"]
    what = f"{pair.effect.kind} names none of these"
    if named:
        what = here[0].summary if here else f"no evidence connects {', '.join(named)} with it"
    text = f"a core, cgroup, unit, process, interface or disk that both use: {what}"
    return Judgement(None, text)


def _disk(finding: Finding) -> str:
    """Return the disk that an event names, without its partition."""
    values = finding.evidence[0].values if finding.evidence else {}
    name = str(values.get("disk") or values.get("device") or "").removeprefix("/dev/")
    return match[0] if (match := DISK.match(name)) else name


JUDGES: dict[str, Judge] = {
    "time_order": _time_order,
    "same_host": _same("host", ""),
    "same_core": _same("core", None),
    "same_unit": _same("unit", ""),
    "same_process": _same("process", ""),
    "same_interface": _same("interface", ""),
    "same_queue": _same("queue", None),
    "same_cgroup": _same_cgroup,
    "same_container": _same("container", ""),
    "parent_of": _parent_of,
    "same_culprit": _same_culprit,
    "waited": _waited,
    "shared": _shared,
    "magnitude": _magnitude,
    "recurrence": _recurrence,
}
