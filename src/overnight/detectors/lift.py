"""Functions that ran more in the seconds before every event of this kind than at other times."""

from __future__ import annotations

import collections
import dataclasses
import re
import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from overnight.detectors import _base, _rate_ratios
from overnight.model.finding import Answer, Evidence, Need, Subject
from overnight.model.selection import Window
from overnight.model.severity import Severity
from overnight.model.times import SECOND_US

if TYPE_CHECKING:
    from overnight.model.actor import Actor
    from overnight.model.event import Event
    from overnight.queries import case as cases
    from overnight.queries import consumers

KIND = "stack.lift"
BEFORE_US = 10 * SECOND_US
# Watches date some events to the begin of the incident itself: there the first seconds belong to it.
DATED_TO_BEGIN = (
    "cpu.core_pinned",
    "cpu.core_stolen",
    "cpu.host_saturated",
    "cpu.run_queue",
    "net.interrupt_skew",
    "pressure.",
)
INTO_US = 8 * SECOND_US
# Between a baseline and an event of the kind: the incident may have begun well before, and last.
GUARD_US = 60 * SECOND_US
# Other events of the host: their effects are over after half a minute.
OTHER_BEFORE_US, OTHER_AFTER_US = 10 * SECOND_US, 30 * SECOND_US
# An event that lasts longer than this is a state of the host, and in the baseline as well.
LASTING_US = 600 * SECOND_US
# How far before each event a baseline may lie: the same work was going on.
FURTHEST_US = 900 * SECOND_US
# A window is compared with this many: those that end a minute before it does, and earlier.
COMPARED = 8
# Windows of each recurrence that may get the label, by the number of recurrences. With few recurrences
# more are needed, or no permutation is rare enough to conclude anything: their product is the number of
# permutations.
LABELS = {1: 40, 2: 25, 3: 13, 4: 9}
MANY_LABELS = 7
# Each reads two segments, 0.4 s of a 96-core night; the latest are enough to conclude.
MAX_RECURRENCES = 8
RECORDED = 0.8  # of a window, or it takes no part
# The named function has at least this share of its process's samples before the event.
MAIN_SHARE = 0.25
# A factor below 1.5 (its logarithm) occurs between any two windows of a host whose load varies.
MIN_LOW = 0.405
# With one recurrence no permutation may score as high: nothing else tells it from a coincidence.
ALPHA_OF_ONE = 0.03
# An item that is lifted this far and uses less than a twentieth of a core is seldom the cause.
SMALL_CORES = 0.05
CONFIDENCE = {1: 0.4, 2: 0.6, 3: 0.75, 4: 0.8}
MAX_CONFIDENCE = 0.9
ONE_RECURRENCE = (
    "; with one recurrence the interval covers sampling only, and this may be a coincidence"
)

Integers = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclasses.dataclass(frozen=True)
class Plan:
    """The windows of each recurrence; the first is the one before the event."""

    events: tuple[Event, ...]
    windows: tuple[tuple[Window, ...], ...]


class Lift(_base.Detector):
    """All recurrences on this host against windows away from all events."""

    name = "lift"
    needs = (Need.PROFILES, Need.EVENTS)
    clears_by = ((Need.PROFILES,),)
    max_findings = 5

    def examine(self, case: cases.Case) -> Answer:
        plan = plan_windows(case)
        if not plan.events:
            raise _base.MissingError(
                "the seconds before this event, or quiet times near it, were not sampled",
                Need.PROFILES,
            )
        tally = case.tally([window for row in plan.windows for window in row])
        counts, own, is_there = _count(tally, plan)
        compared = _choose_compared(plan, is_there)
        usable = np.any(compared[:, 0], axis=1)
        if not usable.any() or not tally.samples.any():
            raise _base.MissingError(
                "too little of the seconds before the event, or of quiet times near it, was sampled",
                Need.PROFILES,
            )
        counts, compared = counts[:, usable], compared[usable]
        lifts = _rate_ratios.compute_lifts(counts, is_there[usable], compared)
        examined = _Examined(
            case,
            tally,
            counts,
            compared[:, 0],
            own[:, usable].sum(axis=1),
            lifts,
            tuple(event for event, kept in zip(plan.events, usable.tolist(), strict=True) if kept),
        )
        passed = np.flatnonzero(
            lifts.passed() & (lifts.low >= MIN_LOW) & (lifts.adjusted <= _alpha(lifts))
        )
        return self.answer(
            _group_by_actor(examined, passed),
            clear=_why_clear(examined),
            remark=f"{len(passed)} of {lifts.tested} processes and functions ran more before the event"
            f" (recurrences: {lifts.recurrences}){_limits(examined)}",
        )


@dataclasses.dataclass(frozen=True)
class _Examined:
    case: cases.Case
    tally: consumers.Tally
    counts: Integers  # [item][recurrence][window]
    compared: Bools  # [recurrence][window]: those compared with the one before the event
    own: Integers  # [item]: samples before the events that end in it
    lifts: _rate_ratios.Lifts
    events: tuple[Event, ...]

    def before(self, item: int) -> float:
        """Return the mean samples in the window before the event."""
        return float(self.counts[item, :, 0].mean())

    def baseline(self, item: int) -> float:
        """Return the mean samples in the windows compared with it; each recurrence has the same weight."""
        rest = (self.counts[item] * self.compared).sum(axis=1)
        return float((rest / self.compared.sum(axis=1)).mean())


def _alpha(lifts: _rate_ratios.Lifts) -> float:
    return _rate_ratios.ALPHA if lifts.recurrences > 1 else ALPHA_OF_ONE


def _limits(examined: _Examined) -> str:
    """Return what limits the answer, to be appended to it."""
    case, used = examined.case, examined.lifts.recurrences
    all_ = 1 + sum(event.host == case.host for event in case.recurrences)
    text = "" if used > 1 else ONE_RECURRENCE
    return text + (f"; other events of the kind, not compared: {all_ - used}" if all_ > used else "")  # fmt: skip


def plan_windows(case: cases.Case) -> Plan:
    """Choose the recurrences to compare, and their quiet windows."""
    chosen: list[Event] = []
    for event in (case.event, *case.recurrences):
        # Of several within the guard only one counts: their windows would show the same incident.
        is_near = any(abs(event.time_us - other.time_us) < 2 * GUARD_US for other in chosen)
        if event.host != case.host or is_near or len(chosen) >= MAX_RECURRENCES:
            continue
        if case.has_profile(_window_before(event)):
            chosen.append(event)
    if not chosen:
        return Plan((), ())
    first = min(event.time_us for event in chosen) - FURTHEST_US - GUARD_US
    last = max(event.time_us for event in chosen) + SECOND_US
    excluded = _excluded_times(case, case.events(Window(first, last)))
    rows = [(_window_before(event), *_quiet_windows(event, excluded)) for event in chosen]
    kept = [
        (event, row)
        for event, row in zip(chosen, rows, strict=True)
        if len(row) > COMPARED and case.has_profile(row[COMPARED])
    ]
    # The last window that may get the label needs its own minute, and its own windows before that.
    length = LABELS.get(len(kept), MANY_LABELS) + GUARD_US // BEFORE_US - 1 + COMPARED
    return Plan(tuple(event for event, _ in kept), tuple(row[:length] for _, row in kept))


def _count(tally: consumers.Tally, plan: Plan) -> tuple[Integers, Integers, Bools]:
    """Return samples by item, recurrence and window; those that end in the item; which windows were recorded."""
    shape = (len(plan.events), max(map(len, plan.windows)))
    counts = np.zeros((len(tally.items), *shape), np.int64)
    own = np.zeros((len(tally.items), shape[0]), np.int64)
    is_there = np.zeros(shape, bool)
    at = 0
    for n, row in enumerate(plan.windows):
        part = slice(at, at + len(row))
        counts[:, n, : len(row)] = tally.counts[:, part]
        own[:, n] = tally.own[:, at]
        is_there[n, : len(row)] = tally.seconds[part] >= RECORDED * BEFORE_US / SECOND_US
        at += len(row)
    return counts, own, is_there


def _choose_compared(plan: Plan, is_there: Bools) -> Bools:
    """Choose for each window that may get the label those it is compared with: `[recurrence][window][other]`."""
    recurrences, length = is_there.shape
    most = LABELS.get(recurrences, MANY_LABELS)
    compared = np.zeros((recurrences, length, length), bool)
    for n, row in enumerate(plan.windows):
        labels = 0
        for w in np.flatnonzero(is_there[n]).tolist():
            others = [
                v
                for v in range(w + 1, len(row))
                if is_there[n, v] and row[v].end_us <= row[w].end_us - GUARD_US
            ][:COMPARED]
            if len(others) == COMPARED and labels < most and is_there[n, 0]:
                compared[n, w, others] = True
                labels += 1
    return compared


def _window_before(event: Event) -> Window:
    """Return the ten seconds in which the cause of an event must have run."""
    into = INTO_US if event.kind.startswith(DATED_TO_BEGIN) else 0
    return Window(event.time_us + into - BEFORE_US, event.time_us + into)


def _excluded_times(case: cases.Case, events: Iterable[Event]) -> list[tuple[int, int]]:
    excluded = []
    for event in events:
        # A state of the host, of which only the begin is an incident.
        is_lasting = event.until_us - event.time_us >= LASTING_US
        end = event.time_us if is_lasting else max(event.time_us, event.until_us)
        if event.kind == case.event.kind:
            excluded.append((event.time_us - GUARD_US, end + GUARD_US))
        elif Severity.of(event.severity) is not Severity.INFO and not is_lasting:
            excluded.append((event.time_us - OTHER_BEFORE_US, end + OTHER_AFTER_US))
    return excluded


def _quiet_windows(event: Event, excluded: list[tuple[int, int]]) -> list[Window]:
    windows: list[Window] = []
    end = event.time_us - GUARD_US
    while end - BEFORE_US >= event.time_us - FURTHEST_US:
        hit = next((span for span in excluded if span[0] < end and end - BEFORE_US < span[1]), None)
        if hit is None:
            windows.append(Window(end - BEFORE_US, end))
            end -= BEFORE_US
        else:
            end = hit[0]
    return windows


def _why_clear(examined: _Examined) -> str:
    lifts = examined.lifts
    text = "nothing ran"
    if lifts.tested:
        text = (
            f"none of {lifts.tested} processes and functions stands out before the event (recurrences:"
            f" {lifts.recurrences}); the smallest adjusted p is {lifts.adjusted.min():.2f}"
        )
    if lifts.smallest > _alpha(lifts):
        text += f"; cannot conclude: with these windows p is never below {lifts.smallest:.2f}"
    return text + _limits(examined)


def _group_by_actor(examined: _Examined, passed: Integers) -> list[_base.Draft]:
    """Return one finding per actor: the function in which most of its lifted samples end."""
    groups: dict[Actor, list[int]] = collections.defaultdict(list)
    for number in passed.tolist():
        groups[examined.tally.items[number].actor].append(number)
    drafts = [_draft(examined, actor, items) for actor, items in groups.items()]
    return sorted(
        drafts, key=lambda draft: (-draft.magnitude["cores_more"], -draft.magnitude["low"])
    )


def _main_item(examined: _Examined, items: list[int]) -> int:
    most = max(examined.before(item) for item in items)
    named = [item for item in items if examined.tally.items[item].function] or items
    main = [item for item in named if examined.before(item) >= MAIN_SHARE * most] or named
    return max(main, key=lambda item: (int(examined.own[item]), float(examined.lifts.low[item])))


def _draft(examined: _Examined, actor: Actor, items: list[int]) -> _base.Draft:
    lifts, case, tally = examined.lifts, examined.case, examined.tally
    best = _main_item(examined, items)
    function = tally.items[best].function
    name = f"{actor} in {function}" if function else str(actor)
    seconds = BEFORE_US / SECOND_US
    before, baseline = examined.before(best), examined.baseline(best)
    more = (before - baseline) / (tally.frequency * seconds) if tally.frequency else 0.0
    lost = int(tally.lost.sum())
    confidence = CONFIDENCE.get(lifts.recurrences, MAX_CONFIDENCE)
    draft = _base.Draft(
        KIND,
        Subject.of_actor(case.host, actor, function=function),
        _window_before(case.event),
        confidence * (0.5 + 0.5 * min(1.0, max(0.0, more) / SMALL_CORES)),
        f"{name} ran {lifts.lift[best]:.0f} times as much before the event as at other times (recurrences:"
        f" {lifts.recurrences}): {more:.2f} cores more",
        magnitude={
            "lift": float(lifts.lift[best]),
            "low": float(lifts.low[best]),
            "q_value": float(lifts.q_value[best]),
            "recurrences": lifts.recurrences,
            "cores_more": more,
        },
    )
    exactly = shlex.quote(f"^{re.escape(actor.process)}$")
    draft.support(
        f"{name} has {before:.1f} samples in the {seconds:.0f} s before the event and"
        f" {baseline:.2f} in as long at other times, on average (recurrences: {lifts.recurrences});"
        f" lift {lifts.lift[best]:.1f}, at least {np.exp(lifts.low[best]):.1f}"
        f" (95 %); {lost} samples were lost",
        "profiles",
        look=_base.command("flame", draft.window, case.host, "--process", exactly),
        samples_before_per_window=round(before, 2),
        samples_otherwise_per_window=round(baseline, 3),
        baseline_windows=int(examined.compared.sum()),
        dispersion=round(float(lifts.spread[best]), 2),
        lost_samples=lost,
    )
    draft.evidence.append(
        Evidence(
            f"{lifts.tested} processes and functions were tested; the false discovery rate is"
            f" {lifts.q_value[best]:.2g}; in {100 * lifts.adjusted[best]:.1f} % of the permutations the"
            " highest of them scores as high",
            "profiles",
            {
                "items_tested": lifts.tested,
                "q_value": float(lifts.q_value[best]),
                "max_statistic_p": round(float(lifts.adjusted[best]), 4),
                "smallest_attainable_p": round(lifts.smallest, 4),
            },
        )
    )
    functions = ", ".join(
        tally.items[item].function or "the process itself"
        for item in sorted(items, key=lambda item: -examined.before(item))[:8]
    )
    text = f"functions of this process that ran more: {functions}"
    draft.evidence.append(Evidence(text, "profiles", {"lifted_items": len(items)}))
    if lifts.recurrences == 1:
        text = "there is only 1 recurrence: this may be a coincidence"
        draft.against.append(Evidence(text, "events"))
    if case.event.id not in {event.id for event in examined.events}:
        text = "the seconds before this event itself were not sampled"
        draft.weigh(Evidence(text, "profiles"), supports=False, factor=0.8)
    if lost > 0.05 * float(tally.samples.sum()):
        text = f"{lost} samples were lost in these windows"
        sampling = Evidence(text, "profiles", {"lost_samples": lost})
        draft.weigh(sampling, supports=False, factor=0.8)
    return draft


DETECTORS = (Lift(),)
