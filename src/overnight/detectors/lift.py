"""What ran more in the seconds before every event of this kind than at other times, function by function.

No stack is too rare to be tested: how many were is said, and pays for itself in the q-values.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from overnight.detectors import _rate_ratios as ratios
from overnight.model import times
from overnight.model.finding import Answer, Evidence, Finding, Need, Status, Subject, finding_id
from overnight.model.selection import Window

if TYPE_CHECKING:
    from overnight.model.event import Event
    from overnight.queries import case as cases
    from overnight.queries import consumers

__all__ = ["DETECTORS", "KIND", "Lift", "Plan", "plan"]

KIND = "stack.lift"
SECOND = 1_000_000
BEFORE_US = 10 * SECOND
# Watches date some events to the begin of the trouble itself: of these the first seconds belong to it.
DATED_TO_BEGIN = (
    "cpu.core_pinned",
    "cpu.core_stolen",
    "cpu.run_queue",
    "net.interrupt_skew",
    "pressure.",
)
INTO_US = 8 * SECOND
# Between a baseline and an event of the kind: the trouble may have begun well before, and last.
GUARD_US = 60 * SECOND
# Other events of the host: what they do is over after half a minute.
OTHER_BEFORE_US, OTHER_AFTER_US = 10 * SECOND, 30 * SECOND
# An event that lasts longer than this is a state of the host, and in the baseline as well.
LASTING_US = 600 * SECOND
# So far back from each event for a baseline: the same work was going on.
FURTHEST_US = 900 * SECOND
# With so many windows a window is compared: those that end a minute before it does, and earlier.
COMPARED = 8
# Windows of each recurrence that may be dealt the label, by how many recurrences there are. With few more
# are needed, or no deal is rare enough to conclude anything: the product is how many deals there are.
LABELS = {1: 40, 2: 25, 3: 13, 4: 9}
MANY_LABELS = 7
# Each is two segments to read, 0.4 s of a 96-core night; the latest are enough to conclude.
MOST_RECURRENCES = 8
RECORDED = 0.8  # of a window, or it takes no part
MOST_FINDINGS = 5
# The function that is named has at least this share of its process's samples before the event.
MAIN_SHARE = 0.25
# Less than half as much again happens between any two windows of a host whose load goes up and down.
LEAST_LOW = 0.405
# Of one recurrence no deal of the labels may score as high: nothing else can tell it from a coincidence.
ALPHA_OF_ONE = 0.03
# What is lifted this far and uses less than a twentieth of a core is seldom the cause.
SMALL_CORES = 0.05


@dataclasses.dataclass(frozen=True)
class Plan:
    """The windows of each recurrence: the first is the one before the event."""

    events: tuple[Event, ...]
    windows: tuple[tuple[Window, ...], ...]


class Lift:
    """All recurrences on this host against windows away from all events."""

    name = "lift"
    needs = (Need.PROFILES, Need.EVENTS)

    def look(self, case: cases.Case) -> Answer:
        """Items that pass their own interval, the false discovery rate and the max statistic."""
        made = plan(case)
        if not made.events:
            return Answer(
                self.name,
                Status.NO_DATA,
                why="no samples of the seconds before this event, or none of quiet times near it, were recorded",
                missing=(Need.PROFILES,),
            )
        tally = case.tally([one for row in made.windows for one in row])
        counts, own, there = _table(tally, made)
        against = _against(made, there)
        usable = np.any(against[:, 0], axis=1)
        if not usable.any() or not tally.samples.any():
            return Answer(
                self.name,
                Status.NO_DATA,
                why="too little of the seconds before the event, or of quiet times near it, was sampled",
                missing=(Need.PROFILES,),
            )
        counts, against = counts[:, usable], against[usable]
        used = tuple(one for one, kept in zip(made.events, usable.tolist(), strict=True) if kept)
        told = ratios.lifts(counts, there[usable], against)
        own = own[:, usable].sum(axis=1)
        context = _Context(case, tally, counts, against[:, 0], own, told, used)
        alpha = _alpha(told)
        passed = np.flatnonzero(told.found() & (told.low >= LEAST_LOW) & (told.adjusted <= alpha))
        if not len(passed):
            return Answer(self.name, Status.CLEAR, why=_why_clear(context))
        findings = _findings(context, passed)
        return Answer(
            self.name,
            Status.FOUND,
            tuple(findings[:MOST_FINDINGS]),
            f"{len(passed)} of {told.tested} items of {told.recurrences} recurrences are lifted"
            + ("" if told.recurrences > 1 else _ONE)
            + _left_out(case, told.recurrences),
        )


def _alpha(told: ratios.Lifts) -> float:
    return ratios.ALPHA if told.recurrences > 1 else ALPHA_OF_ONE


def _left_out(case: cases.Case, used: int) -> str:
    there = 1 + sum(one.host == case.host for one in case.recurrences)
    return f"; {there - used} more events of the kind were not compared" if there > used else ""


_ONE = "; recurrence is 1: the interval is that of sampling only, and this may be a coincidence"


@dataclasses.dataclass(frozen=True)
class _Context:
    case: cases.Case
    tally: consumers.Tally
    counts: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
    against: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]  # of the window before each event
    own: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
    told: ratios.Lifts
    events: tuple[Event, ...]

    def before(self, item: int) -> float:
        """Samples in the window before the event, on average."""
        return float(self.counts[item, :, 0].mean())

    def usual(self, item: int) -> float:
        """The same of the windows compared with it, each recurrence as heavy as the others."""
        rest = (self.counts[item] * self.against).sum(axis=1)
        return float((rest / self.against.sum(axis=1)).mean())


def plan(case: cases.Case) -> Plan:
    """Which recurrences can be compared with which quiet windows."""
    mine = [one for one in case.recurrences if one.host == case.host]
    chosen: list[Event] = []
    for one in (case.event, *mine):
        # Of several within the guard only one counts: their windows would be the same trouble.
        near = any(abs(one.time_us - other.time_us) < 2 * GUARD_US for other in chosen)
        window = _before(one)
        if not near and case.has_profile(window) and len(chosen) < MOST_RECURRENCES:
            chosen.append(one)
    if not chosen:
        return Plan((), ())
    first = min(one.time_us for one in chosen) - FURTHEST_US - GUARD_US
    last = max(one.time_us for one in chosen) + SECOND
    shut = _shut(case, case.events(Window(first, last)))
    most = FURTHEST_US // BEFORE_US
    rows = [(_before(one), *_baselines(one, shut, most)) for one in chosen]
    kept = [
        (one, row)
        for one, row in zip(chosen, rows, strict=True)
        if len(row) > COMPARED and case.has_profile(row[COMPARED])
    ]
    # The last that may be dealt the label has its own minute, and its own windows behind that.
    length = _labels(len(kept)) + GUARD_US // BEFORE_US - 1 + COMPARED
    return Plan(tuple(one for one, _ in kept), tuple(row[:length] for _, row in kept))


def _labels(recurrences: int) -> int:
    return LABELS.get(recurrences, MANY_LABELS)


def _table(
    tally: consumers.Tally, made: Plan
) -> tuple[
    np.ndarray[tuple[int, ...], np.dtype[np.int64]],
    np.ndarray[tuple[int, ...], np.dtype[np.int64]],
    np.ndarray[tuple[int, ...], np.dtype[np.bool_]],
]:
    """Samples by item, recurrence and window; those that end in each before the event; what is there."""
    length = max(map(len, made.windows))
    shape = (len(made.events), length)
    counts = np.zeros((len(tally.items), *shape), np.int64)
    own = np.zeros((len(tally.items), shape[0]), np.int64)
    there = np.zeros(shape, bool)
    at = 0
    for n, row in enumerate(made.windows):
        part = slice(at, at + len(row))
        counts[:, n, : len(row)] = tally.counts[:, part]
        own[:, n] = tally.own[:, at]
        there[n, : len(row)] = tally.seconds[part] >= RECORDED * BEFORE_US / SECOND
        at += len(row)
    return counts, own, there


def _against(
    made: Plan, there: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Of each window that may be dealt the label, those it is compared with, as far before it as before
    the event: `[recurrence][window][other]`.
    """
    recurrences, length = there.shape
    against = np.zeros((recurrences, length, length), bool)
    for n, row in enumerate(made.windows):
        labels = 0
        for w in np.flatnonzero(there[n]).tolist():
            others = [
                v
                for v in range(w + 1, len(row))
                if there[n, v] and row[v].end_us <= row[w].end_us - GUARD_US
            ][:COMPARED]
            if len(others) == COMPARED and labels < _labels(recurrences) and there[n, 0]:
                against[n, w, others] = True
                labels += 1
    return against


def _before(one: Event) -> Window:
    """The ten seconds in which the cause of an event must have run."""
    into = INTO_US if one.kind.startswith(DATED_TO_BEGIN) else 0
    return Window(one.time_us + into - BEFORE_US, one.time_us + into)


def _shut(case: cases.Case, told: Iterable[Event]) -> list[tuple[int, int]]:
    """Stretches that are no baseline."""
    shut = []
    for one in told:
        lasting = (
            one.until_us - one.time_us >= LASTING_US
        )  # a state, of which only the begin is trouble
        end = one.time_us if lasting else max(one.time_us, one.until_us)
        if one.kind == case.event.kind:
            shut.append((one.time_us - GUARD_US, end + GUARD_US))
        elif one.severity != "info" and not lasting:
            shut.append((one.time_us - OTHER_BEFORE_US, end + OTHER_AFTER_US))
    return shut


def _baselines(one: Event, shut: list[tuple[int, int]], wanted: int) -> list[Window]:
    found: list[Window] = []
    end = one.time_us - GUARD_US
    while len(found) < wanted and end - BEFORE_US >= one.time_us - FURTHEST_US:
        hit = next((s for s in shut if s[0] < end and end - BEFORE_US < s[1]), None)
        if hit is None:
            found.append(Window(end - BEFORE_US, end))
            end -= BEFORE_US
        else:
            end = hit[0]
    return found


def _why_clear(context: _Context) -> str:
    told = context.told
    best = int(np.argmin(told.adjusted)) if told.tested else -1
    text = (
        f"none of {told.tested} items (unit, process, function) stands out before {told.recurrences} recurrences;"
        f" the smallest chance of the highest one is {told.adjusted[best]:.2f}"
        if told.tested
        else "nothing ran"
    )
    if told.smallest > _alpha(told):
        text += f"; cannot conclude: with these windows it is never below {told.smallest:.2f}"
    one = "" if told.recurrences > 1 else _ONE
    return text + one + _left_out(context.case, told.recurrences)


def _findings(
    context: _Context, passed: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
) -> list[Finding]:
    """One a process: the function in which most of its lifted samples end, the others beside it."""
    groups: dict[tuple[str, str], list[int]] = {}
    for item in passed.tolist():
        one = context.tally.items[item]
        groups.setdefault((one.unit, one.process), []).append(item)
    made = [_finding(context, members) for members in groups.values()]
    return sorted(made, key=lambda one: (-one.magnitude["cores_more"], -one.magnitude["low"]))


def _finding(context: _Context, members: list[int]) -> Finding:
    told, case, tally = context.told, context.case, context.tally
    most = max(context.before(item) for item in members)
    named = [item for item in members if tally.items[item].function] or members
    main = [item for item in named if context.before(item) >= MAIN_SHARE * most] or named
    best = max(main, key=lambda item: (int(context.own[item]), float(told.low[item])))
    item = tally.items[best]
    seconds = BEFORE_US / SECOND
    before, usual = context.before(best), context.usual(best)
    more = (before - usual) / (tally.frequency * seconds) if tally.frequency else 0.0
    lost = int(tally.lost.sum())
    subject = Subject(host=case.host, unit=item.unit, process=item.process, function=item.function)
    window = _before(case.event)
    recurrences = told.recurrences
    confidence = {1: 0.4, 2: 0.6, 3: 0.75, 4: 0.8}.get(recurrences, 0.9)
    confidence *= 0.5 + 0.5 * min(1.0, max(0.0, more) / SMALL_CORES)
    against = []
    if recurrences == 1:
        against.append(Evidence("recurrence is 1: this may be a coincidence", "events"))
    if case.event.id not in {one.id for one in context.events}:
        confidence *= 0.8
        against.append(
            Evidence("the seconds before this event itself were not sampled", "profiles")
        )
    if lost > 0.05 * float(tally.samples.sum()):
        confidence *= 0.8
        against.append(
            Evidence(
                f"{lost} samples were lost in these windows", "profiles", {"lost_samples": lost}
            )
        )
    begin, end = (times.format_instant(us) for us in (window.begin_us, window.end_us))
    exactly = shlex.quote(f"^{re.escape(item.process)}$")
    what = f"{item.process}{f' of {item.unit}' if item.unit else ''}"
    what += f" in {item.function}" if item.function else ""
    evidence = (
        Evidence(
            f"{what}: {before:.1f} samples in the {seconds:.0f} s before the event, {usual:.2f} in as long otherwise,"
            f" on average over {recurrences} recurrences; lift {told.lift[best]:.1f}, at least"
            f" {np.exp(told.low[best]):.1f} (95 %); {lost} samples were lost",
            "profiles",
            {
                "samples_before_per_window": round(before, 2),
                "samples_otherwise_per_window": round(usual, 3),
                "baseline_windows": int(context.against.sum()),
                "dispersion": round(float(told.spread[best]), 2),
                "lost_samples": lost,
            },
            window,
            f"overnight flame -b {begin} -e {end} --host {shlex.quote(case.host)} --process {exactly}",
        ),
        Evidence(
            f"{told.tested} items were tested; false discovery rate {told.q_value[best]:.2g}, and the highest of all"
            f" items is as high in {100 * told.adjusted[best]:.1f} % of the ways to deal the labels",
            "profiles",
            {
                "items_tested": told.tested,
                "q_value": float(told.q_value[best]),
                "max_statistic_p": round(float(told.adjusted[best]), 4),
                "smallest_attainable_p": round(told.smallest, 4),
            },
        ),
        Evidence(
            f"{len(members)} items of this process are lifted: "
            + ", ".join(
                tally.items[one].function or "the process itself"
                for one in sorted(members, key=lambda one: -context.before(one))[:8]
            ),
            "profiles",
            {"lifted_items": len(members)},
        ),
    )
    return Finding(
        id=finding_id("lift", KIND, subject, window.begin_us),
        detector="lift",
        kind=KIND,
        subject=subject,
        window=window,
        confidence=confidence,
        summary=(
            f"{what} ran {told.lift[best]:.0f} times as much before {recurrences} recurrences as otherwise:"
            f" {more:.2f} cores more"
        ),
        evidence=evidence,
        magnitude={
            "lift": float(told.lift[best]),
            "low": float(told.low[best]),
            "q_value": float(told.q_value[best]),
            "recurrences": float(recurrences),
            "cores_more": round(more, 4),
        },
        against=tuple(against),
    )


DETECTORS = (Lift(),)
