"""Read what a report shows beside its verdict: a few windows of the case, each only once."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from overnight import errors
from overnight.app import folded_stacks
from overnight.diagnosis import knowledge
from overnight.model.event import IMPORTED, Event
from overnight.model.instrument import ReadingKind
from overnight.model.selection import Selection, Window
from overnight.model.times import HOUR_US, SECOND_US
from overnight.queries import readings
from overnight.reports import diagnosis
from overnight.reports.pictures import difference

if TYPE_CHECKING:
    from overnight.model.finding import Finding
    from overnight.model.verdict import Verdict
    from overnight.queries import case as cases

MAX_INCIDENT_US = 60 * SECOND_US  # a flame graph of more no longer shows the incident
AROUND_US = 20 * SECOND_US  # so that the strips show how it begins
MAX_STRIPS_US = 180 * SECOND_US  # a column a second stays wide enough to be seen
CENSUS_US = 12 * HOUR_US
MAX_CENSUS = 400
MAX_EVENTS = 200
MAX_ROWS = 12
# Labels that distinguish hosts in an incident; the others are in the snapshot.
LABELS = ("zone", "instance_type", "image", "kernel", "driver", "os")
_Part = TypeVar("_Part")


def gather(
    case: cases.Case, verdict: Verdict, known: knowledge.Knowledge | None = None
) -> diagnosis.Material:
    """Gather the material of a report; what cannot be read is listed in `problems`, never raised."""
    known = known or knowledge.known()
    problems: list[str] = []

    def part(name: str, read: Callable[[], _Part]) -> _Part | None:
        try:
            return read()
        except (errors.OvernightError, OSError, ValueError, ArithmeticError, KeyError) as error:
            problems.append(f"{name}: {error}")
            return None

    core, incident = focus(case, verdict, known)
    strips = _around(case.window, incident)
    lifts = [each for each in verdict.findings if each.kind == "stack.lift"]
    material = diagnosis.Material(
        core=core,
        incident=incident,
        baseline=case.baseline,
        cores=part("cores", lambda: case.cores(strips) if case.recorded(strips) else None),
        events=part("events", lambda: _events(case, strips)) or (),
        lifts=tuple(sorted(lifts, key=lambda lift: -lift.magnitude["low"])),
        census=part("memory cgroups", lambda: _census(case, verdict)) or (),
        fleet=tuple(each for each in verdict.findings if each.detector.startswith("fleet.")),
        labels=part("labels", lambda: _labels(case)) or {},
        known=known,
    )
    material = part("instruments", lambda: _add_readings(material, case, strips)) or material
    if not part("profiles", lambda: case.has_profile(incident)):
        problems.append("flame graph: no stacks were sampled in the incident window")
    else:
        material = part("flame graph", lambda: _add_stacks(material, case, incident)) or material
    return dataclasses.replace(material, problems=tuple(dict.fromkeys(problems)))


def _events(case: cases.Case, window: Window) -> tuple[Event, ...]:
    events = (event for event in case.events(window) if event.kind != IMPORTED)
    return tuple(itertools.islice(events, MAX_EVENTS))


def focus(
    case: cases.Case, verdict: Verdict, known: knowledge.Knowledge | None = None
) -> tuple[int, Window]:
    """Return the core and the seconds that the report shows; core -1: none stands out."""
    known = known or knowledge.known()
    steps = verdict.chain.steps if verdict.chain else ()
    chosen = _foremost(steps, known) or _foremost(verdict.findings, known)
    end = min(case.event.time_us + SECOND_US, case.window.end_us)
    if chosen is None:
        return case.event.core, Window(end - 10 * SECOND_US, end)
    core = -1 if chosen.subject.core is None else chosen.subject.core
    begin = max(chosen.window.begin_us, case.window.begin_us - MAX_INCIDENT_US)
    until = min(chosen.window.end_us, case.window.end_us)
    if until <= begin:  # nothing of it is near the event
        return core, Window(end - 10 * SECOND_US, end)
    return core, Window(max(begin, until - MAX_INCIDENT_US), until)


def _foremost(findings: Iterable[Finding], known: knowledge.Knowledge) -> Finding | None:
    ranked = [
        (kind.focus, -finding.confidence, finding)
        for finding in findings
        if finding.subject.core is not None
        and (kind := known.kinds.get(finding.kind))
        and kind.focus
    ]
    return min(ranked, key=lambda each: each[:2])[2] if ranked else None


def _around(window: Window, incident: Window) -> Window:
    begin = min(window.begin_us, incident.begin_us - AROUND_US)
    end = max(window.end_us, incident.end_us)
    return Window(max(begin, end - MAX_STRIPS_US), end)


def _add_stacks(
    material: diagnosis.Material, case: cases.Case, incident: Window
) -> diagnosis.Material:
    """Add the processes of the core and its flame graph, both compared with the baseline if there is one."""
    core = material.core
    chosen = Selection(cores=(core,) if core >= 0 else ())
    title = f"{case.host} core {core}" if core >= 0 else case.host
    now = case.flame(incident, chosen)
    folded = folded_stacks.fold(case.profiles, now, title, chosen.cores)
    processes = case.top(incident, chosen, limit=MAX_ROWS)
    material = dataclasses.replace(material, flame=folded, processes=processes)
    if not case.has_profile(case.baseline):
        return material
    before = case.flame(case.baseline, chosen)
    return dataclasses.replace(
        material,
        compared=difference.Compared(
            folded,
            folded_stacks.fold(case.profiles, before, title, chosen.cores),
            now.coverage.capacity,
            before.coverage.capacity,
        ),
        difference=case.diff(incident, case.baseline, chosen),
    )


def _add_readings(
    material: diagnosis.Material, case: cases.Case, window: Window
) -> diagnosis.Material:
    waits: dict[int, list[tuple[int, float]]] = {}
    found = case.readings(window, *ReadingKind)
    for reading in found:
        if reading.kind == ReadingKind.RUN_QUEUE and not reading.subject:
            waits.setdefault(reading.core, []).append(
                (reading.time_us, reading.values.get("max_us", 0.0))
            )
    return dataclasses.replace(
        material,
        recordings=case.recordings(window),
        readings=readings.sum_rows(found),
        waits={core: tuple(sorted(series)) for core, series in waits.items()},
    )


def _census(case: cases.Case, verdict: Verdict) -> tuple[diagnosis.Census, ...]:
    """Read half a day of counts, only where the verdict is about memory."""
    steps = verdict.chain.steps if verdict.chain else ()
    if not any(each.kind.startswith("memory.") for each in (*steps, *verdict.findings)):
        return ()
    columns = ("tracked", "in_use", "dying")
    end = case.event.time_us + 1
    counts = [
        diagnosis.Census(time_us, *numbers)
        for frame in case.ring.numbers(case.host, "memory-cgroups", end - CENSUS_US, end, ("",), columns)
        if "" in frame.keys and set(columns) <= set(frame.columns)
        for time_us, *numbers in zip(
            frame.series("", columns[0])[0],
            *(frame.series("", name)[1] for name in columns),
            strict=True,
        )
    ]  # fmt: skip
    counts.sort(key=lambda count: count.time_us)
    each = -(-len(counts) // MAX_CENSUS) or 1
    # Counted from the end: the last one before the event is always among them.
    return tuple(reversed(counts[::-1][::each]))


def _labels(case: cases.Case) -> dict[str, str]:
    state = case.ring.facts(case.host, "host", case.event.time_us).state or {}
    known = state.get("", {})
    return {name: str(known[name]) for name in LABELS if known.get(name)}
