"""Whether a cause and an effect agree in time, place, magnitude and recurrence, in words with numbers."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from overnight.model import times

if TYPE_CHECKING:
    from overnight.diagnosis import knowledge
    from overnight.model.finding import Finding

__all__ = ["Outcome", "Surroundings", "judge", "measured", "number", "plain"]

RESOLUTION_S = 2.0  # signals are looked at once a second: two windows are not ordered finer
LATE_FIT = 0.6  # seen later than its effect, but within what the rule allows
ROOT_CGROUPS = ("", "/")  # everything is below these: that says nothing
LONGEST_NAME = 200
PID = re.compile(r"\[\d+\]$", re.ASCII)
IN_DOUBT = 0.2
KERNEL_PERCENT = 90.0  # of a core's time: less, and it came to its interrupts
LEAST_WAIT_S = 1.0  # a driver waits for several seconds before it gives a queue up
LIFT_RECURRENCES = 2  # one time is no recurrence


@dataclasses.dataclass(frozen=True)
class Outcome:
    """`fit` is 1 where they agree, 0 where they contradict each other, None where it is not known."""

    fit: float | None
    text: str


@dataclasses.dataclass(frozen=True)
class Surroundings:
    """What else was found: who filled which core, and what is up before the recurrences."""

    culprits: tuple[Finding, ...] = ()
    lifts: tuple[Finding, ...] = ()

    @classmethod
    def of(cls, findings: Iterable[Finding]) -> Surroundings:
        """Those that matter of all findings."""
        every = tuple(findings)
        return cls(
            tuple(one for one in every if one.kind == "cpu.culprit"),
            tuple(one for one in every if one.kind == "stack.lift"),
        )


def judge(
    condition: knowledge.Condition,
    cause: Finding,
    effect: Finding,
    around: Surroundings,
) -> Outcome:
    """How well one condition holds between two findings."""
    outcome = JUDGES[condition.holds](condition, cause, effect, around)
    return dataclasses.replace(outcome, text=plain(outcome.text, 4 * LONGEST_NAME))


def number(value: float) -> str:
    """A number as it is said.

    >>> number(68680.0), number(0.9712), number(6.0)
    ('68,680', '0.971', '6')
    """
    whole = 100 <= abs(value) < 1e15 or (math.isfinite(value) and value == round(value))
    return f"{value:,.0f}" if whole and abs(value) < 1e15 else f"{value:.3g}"


def plain(text: str, longest: int = LONGEST_NAME) -> str:
    """A name on one line, without what a terminal would obey."""
    shown = text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)
    return shown if len(shown) <= longest else shown[:longest] + "…"


def measured(one: Finding, name: str) -> float | None:
    """A magnitude, where it is one: a detector may divide by nothing."""
    value = one.magnitude.get(name)
    return value if value is not None and math.isfinite(value) else None


def _size(one: Finding, name: str) -> float:
    return measured(one, name) or 0.0


def _words(name: str) -> str:
    return name.replace("_", " ")


def _time_order(
    condition: knowledge.Condition,
    cause: Finding,
    effect: Finding,
    _: Surroundings,
) -> Outcome:
    late = (cause.window.begin_us - effect.window.begin_us) / 1e6
    over = (effect.window.begin_us - cause.window.end_us) / 1e6
    if late > max(condition.slack_seconds, RESOLUTION_S):
        return Outcome(
            0.0, f"time: it begins {times.format_duration(late)} after what it would cause"
        )
    if over > condition.gap_seconds:
        return Outcome(0.0, f"time: it was over {times.format_duration(over)} before")
    if late > RESOLUTION_S:
        return Outcome(
            LATE_FIT,
            f"time: it is seen {times.format_duration(late)} later than its effect, which the way it is recorded allows",
        )
    if late > -1:
        return Outcome(1.0, "time: both begin within the same two seconds")
    return Outcome(1.0, f"time: it begins {times.format_duration(-late)} before")


def _same(
    name: str, none: str | None
) -> Callable[
    [knowledge.Condition, Finding, Finding, Surroundings],
    Outcome,
]:
    def same(
        _: knowledge.Condition,
        cause: Finding,
        effect: Finding,
        __: Surroundings,
    ) -> Outcome:
        one, other = (_bare(getattr(at.subject, name)) for at in (cause, effect))
        if none in (one, other):
            return Outcome(None, f"the {name} of {'both' if one == other else 'one'} is not known")
        if one == other:
            return Outcome(1.0, f"same {name}: {one}")
        return Outcome(0.0, f"another {name}: {one}, not {other}")

    return same


def _bare(value: str | int | None) -> str | int | None:
    """Watches name a process with its number: `postgres[4711]`."""
    return PID.sub("", value) if isinstance(value, str) else value


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _below(child: str, parent: str) -> bool:
    return _parts(child)[: len(_parts(parent))] == _parts(parent)


def _same_cgroup(
    _: knowledge.Condition,
    cause: Finding,
    effect: Finding,
    __: Surroundings,
) -> Outcome:
    """One holds the other, or a unit's name stands in the other's path."""
    one, other = cause.subject.cgroup, effect.subject.cgroup
    unit = cause.subject.unit
    if other not in ROOT_CGROUPS and unit and unit in _parts(other):
        return Outcome(1.0, f"{unit} is in the path of {other}")
    if one in ROOT_CGROUPS or other in ROOT_CGROUPS:
        return Outcome(None, "the cgroup of one is not known, or is the root of all")
    if _below(one, other) or _below(other, one):
        return Outcome(1.0, f"same cgroup, or one inside the other: {one} and {other}")
    return Outcome(0.0, f"another cgroup: {one}, not {other}")


def _parent_of(
    _: knowledge.Condition,
    cause: Finding,
    effect: Finding,
    __: Surroundings,
) -> Outcome:
    one, other = cause.subject.cgroup, effect.subject.cgroup
    if one in ROOT_CGROUPS or other in ROOT_CGROUPS:
        return Outcome(None, "the cgroup of one is not known, or is the root of all")
    if _below(other, one):
        return Outcome(1.0, f"{one} holds {other}")
    return Outcome(0.0, f"{one} does not hold {other}")


def _magnitude(
    condition: knowledge.Condition,
    cause: Finding,
    effect: Finding,
    _: Surroundings,
) -> Outcome:
    """Of several names the first that is measured on both sides counts."""
    pairs = [
        (name, condition.effect[n] if condition.effect else "")
        for n, name in enumerate(condition.cause)
    ]
    missing = ""
    for mine, its in pairs:
        one = measured(cause, mine)
        other = measured(effect, its) if its else 1.0
        if one is not None and other is not None:
            return _compared(condition, mine, one, its, other)
        missing = _words(mine if one is None else its)
    return Outcome(None, f"{missing} was not measured")


def _compared(
    condition: knowledge.Condition, mine: str, one: float, its: str, other: float
) -> Outcome:
    said = f"{number(one)} {_words(mine)}"
    if its:
        said += f" against {number(other)} {_words(its)}"
    fit = _fit(one / other if other > 0 else math.inf if one > 0 else 0.0, condition)
    if fit >= 1:
        return Outcome(1.0, f"magnitude agrees: {said}")
    if fit > 0:
        return Outcome(fit, f"magnitude agrees only in part: {said}")
    return Outcome(0.0, f"magnitude does not agree: {said}")


def _fit(ratio: float, condition: knowledge.Condition) -> float:
    """1 inside what fits, falling with the logarithm to 0 where it stops to be possible."""
    (low, high), (least, most) = condition.fits, condition.possible
    if low <= ratio <= high:
        return 1.0
    if not least < ratio < most:
        return 0.0
    near, far = (low, least) if ratio < low else (high, most)
    if far <= 0 or math.isinf(far):  # possible to the end: no slope in logarithms to fall along
        return ratio / near if ratio < near else near / ratio
    return math.log(ratio / far) / math.log(near / far)


def _taken(one: Finding) -> float:
    """What somebody took of a core: more than it had before, where that is known."""
    return _size(one, "cores_added") or _size(one, "cores_burnt")


def _same_culprit(
    _: knowledge.Condition,
    cause: Finding,
    effect: Finding,
    around: Surroundings,
) -> Outcome:
    """Whether who is blamed is who was seen on the effect's core in its seconds."""
    there = sorted(
        (
            one
            for one in around.culprits
            if one.subject.host == effect.subject.host
            and one.subject.core == effect.subject.core
            and effect.subject.core is not None
            and one.window.begin_us < effect.window.end_us
            and effect.window.begin_us < one.window.end_us
        ),
        key=lambda one: (-_taken(one), one.id),
    )
    names = ("process",) if cause.subject.process else ("unit",)
    blamed = getattr(cause.subject, names[0])
    if not there or not blamed:
        return Outcome(None, "nobody was named on that core to compare with")
    seen = [getattr(one.subject, names[0]) for one in there]
    if blamed == seen[0]:
        return Outcome(1.0, f"{blamed} is who took most of core {effect.subject.core}")
    if blamed in seen:
        first, own = _taken(there[0]), _taken(there[seen.index(blamed)])
        share = min(own / first, 1.0) if first > 0 else 0.5
        return Outcome(
            share * 0.8 + 0.1,
            f"{blamed} ran on core {effect.subject.core}, but {seen[0]} took more of it ({number(first)} cores against {number(own)})",
        )
    return Outcome(
        0.0,
        f"core {effect.subject.core} was filled by {seen[0] or 'somebody else'}, not by {blamed}",
    )


def _recurrence(
    _: knowledge.Condition,
    cause: Finding,
    __: Finding,
    around: Surroundings,
) -> Outcome:
    """Whether the cause was up before the other events of the same kind, too."""
    mine = sorted(
        (
            one
            for one in around.lifts
            if cause.subject.process
            and one.subject.process == cause.subject.process
            and (
                not cause.subject.function
                or not one.subject.function
                or one.subject.function == cause.subject.function
            )
            and _size(one, "recurrences") >= LIFT_RECURRENCES
        ),
        key=lambda one: (-_size(one, "low"), one.id),
    )
    if not mine:
        return Outcome(None, "there are no recurrences to compare with")
    best = mine[0]
    many = number(_size(best, "recurrences"))
    if _size(best, "low") > 0:
        lift = measured(best, "lift")
        much = f" {number(lift)} times" if lift is not None else ""
        return Outcome(1.0, f"recurrence: it ran{much} more before {many} recurrences, too")
    return Outcome(0.2, f"recurrence: before {many} recurrences it did not run more than usual")


def _waited(
    _: knowledge.Condition,
    cause: Finding,
    effect: Finding,
    ___: Surroundings,
) -> Outcome:
    """Whether the effect itself says that it waited for its core: drivers tell since when nobody polled."""
    waited = measured(effect, "waited_seconds")
    if waited is None:
        return Outcome(None, "the event does not say for how long it waited")
    silent, kernel = measured(effect, "silent_seconds"), measured(cause, "kernel_percent")
    if (silent or 0.0) >= LEAST_WAIT_S and (kernel or 0.0) >= KERNEL_PERCENT:
        return Outcome(
            IN_DOUBT,
            "the event says that no poll was scheduled: the device sent no interrupt, or the core had them off,"
            " as one may that is in the kernel all the time",
        )
    if waited < LEAST_WAIT_S:
        polled = f": the queue was served {waited:.3g} s before" if waited > 0 else ""
        return Outcome(0.0, f"the event itself says that nothing waited for the core{polled}")
    return Outcome(1.0, f"the event itself says that it waited for {times.format_duration(waited)}")


JUDGES: dict[
    str,
    Callable[
        [knowledge.Condition, Finding, Finding, Surroundings],
        Outcome,
    ],
] = {
    "time_order": _time_order,
    "same_host": _same("host", ""),
    "same_core": _same("core", None),
    "same_unit": _same("unit", ""),
    "same_process": _same("process", ""),
    "same_interface": _same("interface", ""),
    "same_queue": _same("queue", None),
    "same_cgroup": _same_cgroup,
    "parent_of": _parent_of,
    "same_culprit": _same_culprit,
    "waited": _waited,
    "magnitude": _magnitude,
    "recurrence": _recurrence,
}
