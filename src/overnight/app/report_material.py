"""What a report shows beside its verdict, read from the case: a few windows, each only once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from overnight import errors
from overnight.app import folded_stacks
from overnight.model.selection import Selection, Window
from overnight.reports import diagnosis
from overnight.reports.pictures import difference

if TYPE_CHECKING:
    from overnight.model.finding import Finding
    from overnight.model.verdict import Verdict
    from overnight.queries import case as cases

__all__ = ["focus", "gather"]

SECOND = 1_000_000
LONGEST_HOT = 60 * SECOND  # a flame graph of more is no longer one of the trouble
AROUND = 20 * SECOND  # so that the strips show it begin
LONGEST_STRIPS = 180 * SECOND  # a column a second stays wide enough to be seen
CENSUS = 12 * 3600 * SECOND
MOST_CENSUS = 400
MOST_EVENTS = 200
MOST_ROWS = 12
# Whose core and seconds the report looks at; the first that the verdict has.
FOCUS = (
    "cpu.core_saturated", "cpu.culprit", "memory.cgroup_walk", "cpu.rt_hog", "net.softirq_storm",
    "kernel.lock_contention", "memory.reclaim", "net.queue_starved",
)  # fmt: skip
# Labels that tell one host from another in an incident; the others are in the snapshot.
LABELS = ("zone", "instance_type", "image", "kernel", "driver", "os")
_Part = TypeVar("_Part")


def gather(case: cases.Case, told: Verdict) -> diagnosis.Material:
    """The material of a report; what cannot be read is named in its `problems`, never raised."""
    problems: list[str] = []

    def part(name: str, read: Callable[[], _Part]) -> _Part | None:
        try:
            return read()
        except (errors.OvernightError, OSError, ValueError, ArithmeticError, KeyError) as error:
            problems.append(f"{name}: {error}")
            return None

    core, hot = focus(case, told)
    strips = _around(case.window, hot)
    made = diagnosis.Material(
        core=core,
        hot=hot,
        baseline=case.baseline,
        cores=part("cores", lambda: case.cores(strips) if case.has_signals(strips) else None),
        events=part("events", lambda: case.events(strips)[:MOST_EVENTS]) or (),
        lifts=_lifts(told.findings),
        census=part("memory cgroups", lambda: _census(case, told)) or (),
        fleet=tuple(one for one in told.findings if one.detector.startswith("fleet.")),
        labels=part("labels", lambda: _labels(case)) or {},
    )
    if not part("profiles", lambda: case.has_profile(hot)):
        problems.append("flame graph: no stacks were sampled in the hot window")
    else:
        stacks = part("flame graph", lambda: _stacks(case, core, hot)) or diagnosis.EMPTY
        made = dataclasses.replace(
            made,
            processes=stacks.processes,
            flame=stacks.flame,
            compared=stacks.compared,
            difference=stacks.difference,
        )
    return dataclasses.replace(made, problems=tuple(dict.fromkeys(problems)))


def focus(case: cases.Case, told: Verdict) -> tuple[int, Window]:
    """The core and the seconds that a reader wants to see; -1: no core stands out."""
    steps = told.chain.steps if told.chain else ()
    chosen = _foremost(steps) or _foremost(told.findings)
    end = min(case.event.time_us + SECOND, case.window.end_us)
    if chosen is None:
        return case.event.core, Window(end - 10 * SECOND, end)
    core = -1 if chosen.subject.core is None else chosen.subject.core
    begin = max(chosen.window.begin_us, case.window.begin_us - LONGEST_HOT)
    until = min(chosen.window.end_us, case.window.end_us)
    if until <= begin:  # it lies elsewhere: nothing of it is around the event
        return core, Window(end - 10 * SECOND, end)
    return core, Window(max(begin, until - LONGEST_HOT), until)


def _foremost(those: Iterable[Finding]) -> Finding | None:
    placed = [one for one in those if one.subject.core is not None and one.kind in FOCUS]
    return min(placed, key=lambda one: (FOCUS.index(one.kind), -one.confidence), default=None)


def _around(window: Window, hot: Window) -> Window:
    begin = min(window.begin_us, hot.begin_us - AROUND)
    end = max(window.end_us, hot.end_us)
    return Window(max(begin, end - LONGEST_STRIPS), end)


def _stacks(case: cases.Case, core: int, hot: Window) -> diagnosis.Material:
    """Who ran on the core, its flame graph, and both against the baseline where there is one."""
    chosen = Selection(cores=(core,) if core >= 0 else ())
    title = f"{case.host} core {core}" if core >= 0 else case.host
    now = case.flame(hot, chosen)
    folded = folded_stacks.fold(case.profiles, now, title, chosen.cores)
    made = diagnosis.Material(flame=folded, processes=case.top(hot, chosen, limit=MOST_ROWS))
    if not case.has_profile(case.baseline):
        return made
    before = case.flame(case.baseline, chosen)
    return dataclasses.replace(
        made,
        compared=difference.Compared(
            folded,
            folded_stacks.fold(case.profiles, before, title, chosen.cores),
            now.coverage.capacity,
            before.coverage.capacity,
        ),
        difference=case.diff(hot, case.baseline, chosen),
    )


def _lifts(findings: Iterable[Finding]) -> tuple[diagnosis.Lift, ...]:
    made = [
        diagnosis.Lift(
            one.subject.unit,
            one.subject.process,
            one.subject.function,
            one.magnitude.get("lift", 0.0),
            one.magnitude.get("low", 0.0),
            one.magnitude.get("q_value", 1.0),
            int(one.magnitude.get("recurrences", 0)),
            one.magnitude.get("cores_more", 0.0),
        )
        for one in findings
        if one.kind == "stack.lift"
    ]
    return tuple(sorted(made, key=lambda one: -one.low))


def _census(case: cases.Case, told: Verdict) -> tuple[diagnosis.Census, ...]:
    """Half a day of looks; read only where the verdict speaks of memory."""
    steps = told.chain.steps if told.chain else ()
    if not any(one.kind.startswith("memory.") for one in (*steps, *told.findings)):
        return ()
    columns = ("tracked", "in_use", "dying")
    end = case.event.time_us + 1
    looks = [
        diagnosis.Census(time_us, *numbers)
        for frame in case.ring.numbers(case.host, "memory-cgroups", end - CENSUS, end, ("",), columns)
        if "" in frame.keys and set(columns) <= set(frame.columns)
        for time_us, *numbers in zip(
            frame.series("", columns[0])[0],
            *(frame.series("", name)[1] for name in columns),
            strict=True,
        )
    ]  # fmt: skip
    looks.sort(key=lambda one: one.time_us)
    each = -(-len(looks) // MOST_CENSUS) or 1
    # Counted from the end: the last look before the event is always among them.
    return tuple(reversed(looks[::-1][::each]))


def _labels(case: cases.Case) -> dict[str, str]:
    state = case.ring.facts(case.host, "host", case.event.time_us).state or {}
    known = state.get("", {})
    return {name: str(known[name]) for name in LABELS if known.get(name)}
