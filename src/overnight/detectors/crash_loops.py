"""Units that restart without end: those that systemd counts, and those restarted by their own supervisor.

A harmless loop is found, too: whether it caused anything is decided by the chain. So each finding carries
its cost.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from overnight.detectors import _base, _host_state, _kernel_events
from overnight.model import times
from overnight.model.finding import Answer, Evidence, Need, Subject
from overnight.model.selection import Window
from overnight.model.times import HOUR_US, MINUTE_US, SECOND_US
from overnight.queries import trends
from overnight.sources import processes

if TYPE_CHECKING:
    from overnight.model.event import Event
    from overnight.queries import case as cases

COUNTED, UNCOUNTED = "unit.crash_loop", "unit.hidden_crash_loop"
LOOK_BACK_US = 12 * HOUR_US
INTERVAL_US = 10 * MINUTE_US
# The watch's five within 20 minutes are 15 an hour; half of that over an hour is a loop with longer pauses.
RESTARTS_PER_HOUR = 7.5
MIN_RESTARTS = 5
# Six within ten minutes, none of which lived a minute; ten times that in shared slices, where timers and
# sessions come and go on every healthy host. As in the watch.
SHORT_PER_HOUR = 36.0
MIN_SHORT = 6
SHARED_SLICE_FACTOR = 10
RECENT_US = HOUR_US  # it must still go on shortly before the event
# NRestarts explains the births where it rises at least half as fast.
COUNTED_SHARE = 0.5
# A shorter recording gives no rate, unless the count is high enough for its uncertainty and goes on all the
# time. A deploy or a boot is a burst: it pauses, or ends.
MIN_SECONDS = 300.0
SHORT_COUNT = 25  # a Poisson count of 25 is known within 40 %
SHORT_INTERVALS = 8
SHORT_INTERVAL_US = 2 * SECOND_US
SHORT_FACTOR = 0.9
MAX_FINDINGS = 8


@dataclasses.dataclass(frozen=True)
class _Loop:
    """The time around the event in which the restarts went on."""

    window: Window
    per_hour: float
    count: float

    @property
    def duration(self) -> str:
        return times.format_duration(self.window.seconds)


def _read_growth(
    case: cases.Case, signal: str, columns: tuple[str, ...], *, from_zero: bool = False
) -> trends.GrowthByKey:
    window = _host_state.state_window(case, LOOK_BACK_US)
    extent = case.ring.extent(case.host)
    known = window.end_us - max(window.begin_us, extent[0]) if extent else LOOK_BACK_US
    interval = INTERVAL_US
    if known < MIN_SECONDS * SECOND_US:
        interval = max(SHORT_INTERVAL_US, known // SHORT_INTERVALS)
    return trends.growth(
        case.ring, case.host, signal, window, columns, interval,
        pivot_us=case.window.end_us, from_zero=from_zero,
    )  # fmt: skip


def _is_steady(case: cases.Case, growth: trends.Growth, column: str, loop: _Loop) -> bool:
    """Return whether it went on in all intervals but the first.

    One interval without may be one in which systemd was not asked; two in a row are a pause.
    """
    went_on = growth.rises[column][growth.end_us <= case.window.end_us][1:] > 0
    paused = ~went_on[1:] & ~went_on[:-1]
    enough = loop.count >= SHORT_COUNT and len(went_on) >= SHORT_INTERVALS // 2
    return enough and not paused.any()


def _find_loop(
    case: cases.Case, growth: trends.Growth, column: str, per_hour: float, least: int
) -> _Loop | None:
    rates = 3600 * growth.rises[column] / growth.seconds
    going = np.flatnonzero(rates >= per_hour).tolist()
    before = [n for n in going if growth.end_us[n] <= case.window.end_us]
    if not before or growth.end_us[before[-1]] < case.event.time_us - RECENT_US:
        return None
    # In both directions from the last one before the event: a pause of one interval does not end it.
    first = last = before[-1]
    for n in reversed(before):
        first = n if first - n <= 2 else first
    for n in going:
        last = n if 0 < n - last <= 2 else last
    count = float(growth.rises[column][first : last + 1].sum())
    seconds = float(growth.seconds[first : last + 1].sum())
    if count < least or not seconds:
        return None
    window = Window(int(growth.begin_us[first]), int(growth.end_us[last]))
    return _Loop(window, 3600 * count / seconds, count)


def _add_cost(case: cases.Case, draft: _base.Draft) -> None:
    """Add the cores that the unit used in the baseline, where stacks were sampled."""
    unit = draft.subject.unit
    if not unit or not case.has_profile(case.baseline):
        return
    before = case.stacks(case.baseline, by_second=False)
    own = np.array([actor.is_in(unit) for actor in before.processes], bool)
    samples = sum(int(part.count[own[part.process]].sum()) for part in before.segments)
    cores = round(before.cores(samples, before.seconds), 4)
    draft.support(
        f"{unit} used {cores:.3f} cores in the baseline ({case.baseline_text})",
        "profiles",
        window=before.window,
        look=_base.command("top", before.window, case.host),
        cores_burnt=cores,
        samples=samples,
        lost=before.coverage.lost,
    )
    draft.magnitude["cores_burnt"] = cores


class CrashLoops(_base.BaseDetector):
    """Restarts counted by systemd, an hour over hours, and the watch's events."""

    name = "crash-loops"
    needs = (Need.UNIT_RESTARTS, Need.UNITS, Need.EVENTS)

    def examine(self, case: cases.Case) -> Answer:
        counted = _read_growth(case, "unit-restarts", ("restarts",))
        is_short = counted.seconds < MIN_SECONDS
        drafts = []
        for unit, growth in counted.keys.items():
            loop = _find_loop(case, growth, "restarts", RESTARTS_PER_HOUR, MIN_RESTARTS)
            if loop is not None and (not is_short or _is_steady(case, growth, "restarts", loop)):
                drafts.append(_counted_draft(case, unit, loop, is_short=is_short))
        known = {draft.subject.unit for draft in drafts}
        for event in _recent_events(case):
            if event.unit not in known:
                known.add(event.unit)
                drafts.append(_event_draft(case, event))
        if is_short and not drafts:
            raise _base.MissingError(
                f"unit restarts were recorded for only {counted.seconds:.0f} s before the event",
                Need.UNIT_RESTARTS,
            )
        drafts.sort(key=lambda draft: -draft.magnitude["restarts_per_hour"])
        return self.answer(
            drafts[:MAX_FINDINGS],
            clear=f"none of {len(counted.keys)} units was restarted {RESTARTS_PER_HOUR} times an hour or more in"
            f" {times.format_duration(counted.seconds)}",
        )


def _recent_events(case: cases.Case) -> list[Event]:
    span = Window(case.window.end_us - LOOK_BACK_US, case.window.end_us)
    return [
        event
        for event in case.events(span, COUNTED)
        if max(event.until_us, event.time_us) >= case.event.time_us - RECENT_US
        and event.unit
        and event.id != case.event.id
    ]


def _counted_draft(case: cases.Case, unit: str, loop: _Loop, *, is_short: bool) -> _base.Draft:
    draft = _base.Draft(
        COUNTED,
        Subject(host=case.host, unit=unit),
        loop.window,
        0.95 * (SHORT_FACTOR if is_short else 1),
        f"{unit} is crash-looping: systemd restarts it {loop.per_hour:,.0f} times an hour, for at least"
        f" {loop.duration}",
        magnitude={"restarts_per_hour": loop.per_hour, "hours": loop.window.seconds / 3600},
    )
    draft.support(
        f"systemd restarted {unit} {loop.count:.0f} times in {loop.duration}",
        "unit-restarts",
        look=_base.command("events", loop.window, case.host, "--kind", "unit."),
        restarts=loop.count,
        restarts_per_hour=round(loop.per_hour, 2),
    )
    draft.evidence += _state_evidence(case, unit)
    _add_cost(case, draft)
    return draft


def _event_draft(case: cases.Case, event: Event) -> _base.Draft:
    restarts = float(event.fields.get("restarts", event.count))
    return _base.Draft(
        COUNTED,
        Subject(host=case.host, unit=event.unit),
        Window(event.time_us, max(event.until_us, event.time_us + 1)),
        0.7,
        f"{event.unit} is crash-looping according to the flight recorder",
        [_kernel_events.event_evidence(event)],
        magnitude={"restarts_per_hour": 3 * restarts},  # the watch counts within 20 minutes
    )


def _unit_names(cgroup: str) -> list[str]:
    """Return the names that signals may have for a cgroup's unit; units of a machine are `machine:unit`."""
    unit = processes.unit_of(cgroup)
    return [f"{part}:{unit}" for part in cgroup.split("/") if part] + [unit]


def _restarts_per_hour(counted: Mapping[str, trends.Growth], cgroup: str) -> float | None:
    """Return systemd's restarts an hour of a cgroup's unit, or of all units in a shared slice; None: unknown."""
    if not _host_state.is_shared_slice(cgroup):
        own = [counted[name] for name in _unit_names(cgroup) if name in counted][:1]
    else:
        parts = set(cgroup.split("/"))
        machines = (key.rpartition(":")[0] for key in counted)
        machine = next((name for name in machines if name and name in parts), "")
        own = [growth for key, growth in counted.items() if key.rpartition(":")[0] == machine]
    return sum(growth.per_hour("restarts") for growth in own) if own else None


def _state_evidence(case: cases.Case, *names: str) -> list[Evidence]:
    """Read systemd's state of the unit at the event."""
    facts = case.ring.facts(case.host, "units", case.event.time_us).state or {}
    unit = next((name for name in names if name in facts), "")
    if not unit:
        return []
    values = {
        name: value
        for name, value in facts[unit].items()
        if isinstance(value, (str, int, float, bool))
    }
    state = ", ".join(f"{name}={value}" for name, value in values.items() if name != "since")
    return [Evidence(f"{unit}: {state}", "units", values)]


class UncountedCrashLoops(_base.BaseDetector):
    """Cgroups that live less than a minute, again and again, while systemd's NRestarts stays the same."""

    name = "hidden-crash-loops"
    needs = (Need.CGROUP_BIRTHS, Need.UNIT_RESTARTS, Need.UNITS, Need.EVENTS)

    def examine(self, case: cases.Case) -> Answer:
        columns = ("born", "died", "short_lived", "lived")
        counted = _read_growth(case, "cgroup-births", columns, from_zero=True)
        is_short = counted.seconds < MIN_SECONDS
        restarts = _read_growth(case, "unit-restarts", ("restarts",)).keys
        drafts, counted_by_systemd = [], 0
        for cgroup, growth in counted.keys.items():
            factor = SHARED_SLICE_FACTOR if _host_state.is_shared_slice(cgroup) else 1
            loop = _find_loop(case, growth, "short_lived", factor * SHORT_PER_HOUR, MIN_SHORT)
            if loop is None or (is_short and not _is_steady(case, growth, "short_lived", loop)):
                continue
            per_hour = _restarts_per_hour(restarts, cgroup)
            if per_hour is not None and per_hour >= COUNTED_SHARE * loop.per_hour:
                counted_by_systemd += 1  # the other detector reports it
                continue
            draft = _uncounted_draft(case, cgroup, growth, loop, per_hour)
            draft.confidence *= SHORT_FACTOR if is_short else 1
            drafts.append(draft)
        if is_short and not drafts:
            raise _base.MissingError(
                f"new cgroups were recorded for only {counted.seconds:.0f} s before the event",
                Need.CGROUP_BIRTHS,
            )
        drafts.sort(key=lambda draft: -draft.magnitude["births_per_hour"])
        clear = f"none of the parents of new cgroups ({len(counted.keys)}) is in a crash loop"
        if counted_by_systemd:
            clear += f", except {counted_by_systemd} whose restarts systemd counts"
        return self.answer(drafts[:MAX_FINDINGS], clear=clear)


def _uncounted_draft(
    case: cases.Case,
    cgroup: str,
    growth: trends.Growth,
    loop: _Loop,
    restarts_per_hour: float | None,
) -> _base.Draft:
    window = loop.window
    unit = processes.unit_of(cgroup)
    inside = (growth.begin_us >= window.begin_us) & (growth.end_us <= window.end_us)
    hours = float(growth.seconds[inside].sum()) / 3600
    born, died, lived = (
        float(growth.rises[name][inside].sum()) for name in ("born", "died", "lived")
    )
    life = lived / died / 1000 if died else 0.0
    is_shared = _host_state.is_shared_slice(cgroup)
    draft = _base.Draft(
        UNCOUNTED,
        Subject(host=case.host, unit=unit, cgroup=cgroup),
        window,
        0.5 if is_shared else 0.9,
        f"{unit or cgroup} is in a crash loop not counted by systemd: its own supervisor starts a process"
        f" that lives {life:.0f} s, {born / hours:,.0f} times an hour, for at least {loop.duration}",
        magnitude={
            "births_per_hour": born / hours,
            "deaths_per_hour": died / hours,
            "short_lived_per_hour": loop.per_hour,
            "mean_life_seconds": life,
            "hours": window.seconds / 3600,
        },
    )
    draft.support(
        f"{born:.0f} cgroups were created below {cgroup} in {times.format_duration(3600 * hours)};"
        f" {loop.count:.0f} of them lived less than a minute, {life:.1f} s on average",
        "cgroup-births",
        look="overnight census --for 1m",
        born=born,
        died=died,
        short_lived=loop.count,
        hours=round(hours, 2),
        mean_life_seconds=round(life, 2),
    )
    draft.evidence += _state_evidence(case, *_unit_names(cgroup))
    if restarts_per_hour is not None:
        draft.magnitude["counted_per_hour"] = restarts_per_hour
        text = f"systemd counted only {round(restarts_per_hour, 1):g} restarts of {unit} an hour"
        draft.support(text, "unit-restarts", restarts_per_hour=round(restarts_per_hour, 2))
    for event in case.events(window, "container.agent_restart")[-1:]:
        draft.evidence.append(_kernel_events.event_evidence(event))
    _add_cost(case, draft)
    if is_shared:
        text = f"{cgroup} is shared: many units create cgroups below it"
        draft.against.append(Evidence(text, "cgroup-births"))
    return draft


DETECTORS = (CrashLoops(), UncountedCrashLoops())
