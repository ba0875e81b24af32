"""Units that restart without end: those that systemd counts, and those restarted by their own supervisor.

Harmless loops are found, too, each with its cost: the chain decides whether one caused anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from overnight.detectors import _base, _creators, _host_state, _kernel_events
from overnight.model import cgroups, times
from overnight.model.finding import Answer, Evidence, Need, Subject
from overnight.model.selection import Window
from overnight.model.times import HOUR_US, MINUTE_US, SECOND_US
from overnight.queries import trends
from overnight.sources import processes

if TYPE_CHECKING:
    from overnight.model.event import Event
    from overnight.queries import case as cases

COUNTED, UNCOUNTED = "unit.crash_loop", "unit.hidden_crash_loop"
SHORT_LIVED = "short_lived"  # the births that count: those that died within a minute
LOOK_BACK_US = 12 * HOUR_US
INTERVAL_US = 10 * MINUTE_US
# The watch's five within 20 minutes are 15 an hour; half of that over an hour is a loop with longer pauses.
RESTARTS_PER_HOUR = 7.5
MIN_RESTARTS = 5
# Six within ten minutes, none of which lived a minute; ten times that in shared slices, where timers and
# sessions come and go on every healthy host. As in the watch; a host with many dying cgroups is not healthy.
SHORT_PER_HOUR = 36.0
MIN_SHORT = 6
SHARED_SLICE_FACTOR = 10
RECENT_US = HOUR_US  # it must still go on shortly before the event
# NRestarts explains the births where it rises at least half as fast.
COUNTED_SHARE = 0.5
# The confidence where it is not known which unit has a runtime start the container, or not even which container.
UNKNOWN_UNIT, UNKNOWN_CONTAINER = 0.75, 0.5
# A shorter recording gives no rate, unless the count is high enough for its uncertainty and goes on all the
# time. A deploy or a boot is a burst: it pauses, or ends.
MIN_SECONDS = 300.0
SHORT_COUNT = 25  # a Poisson count of 25 is known within 40 %
SHORT_INTERVALS = 8
SHORT_INTERVAL_US = 2 * SECOND_US
SHORT_FACTOR = 0.9


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


def _find_loops(
    case: cases.Case,
    counted: trends.GrowthByKey,
    column: str,
    least: int,
    per_hour: Callable[[str], float],
) -> Iterator[trends.Growth]:
    """Yield the intervals around the event in which a key was restarted at least `per_hour` times an hour."""
    for key, growth in counted.keys.items():
        rates = 3600 * growth.rises[column] / growth.seconds
        going = np.flatnonzero(rates >= per_hour(key)).tolist()
        before = [n for n in going if growth.end_us[n] <= case.window.end_us]
        if not before or growth.end_us[before[-1]] < case.event.time_us - RECENT_US:
            continue
        # In both directions from the last one before the event: a pause of one interval does not end it.
        first = last = before[-1]
        for n in reversed(before):
            first = n if first - n <= 2 else first
        for n in going:
            last = n if 0 < n - last <= 2 else last
        loop = growth.part(first, last)
        count, is_short = loop.total(column), counted.seconds < MIN_SECONDS
        if count < least or (is_short and not _is_steady(case, growth, column, count)):
            continue
        yield loop


def _is_steady(case: cases.Case, growth: trends.Growth, column: str, count: float) -> bool:
    """Return whether it went on in all intervals but the first.

    One interval without may be one in which systemd was not asked; two in a row are a pause.
    """
    went_on = growth.rises[column][growth.end_us <= case.window.end_us][1:] > 0
    paused = ~went_on[1:] & ~went_on[:-1]
    enough = count >= SHORT_COUNT and len(went_on) >= SHORT_INTERVALS // 2
    return enough and not paused.any()


def _sureness(counted: trends.GrowthByKey) -> float:
    return SHORT_FACTOR if counted.seconds < MIN_SECONDS else 1.0


def _require_length(counted: trends.GrowthByKey, what: str, need: Need) -> None:
    """Raise MissingError where the recording is too short to show that there is no loop."""
    if counted.seconds < MIN_SECONDS:
        text = f"{what} were not recorded before the event"
        if counted.seconds:
            text = f"{what} were recorded for only {counted.seconds:.0f} s before the event"
        raise _base.MissingError(text, need)


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


class CrashLoops(_base.Detector):
    """Restarts counted by systemd, an hour over hours, and the watch's events."""

    name = "crash-loops"
    needs = (Need.UNIT_RESTARTS, Need.UNITS, Need.EVENTS)
    clears_by = ((Need.UNIT_RESTARTS,),)
    rank_by = "restarts_per_hour"
    max_findings = 8

    def examine(self, case: cases.Case) -> Answer:
        counted = _read_growth(case, "unit-restarts", ("restarts",))
        loops = _find_loops(case, counted, "restarts", MIN_RESTARTS, lambda _: RESTARTS_PER_HOUR)
        drafts = [_counted_draft(case, loop, _sureness(counted)) for loop in loops]
        known = {draft.subject.unit for draft in drafts}
        for event in _recent_events(case):
            if event.unit not in known:
                known.add(event.unit)
                drafts.append(_event_draft(case, event))
        if not drafts:
            _require_length(counted, "unit restarts", Need.UNIT_RESTARTS)
        return self.answer(
            drafts,
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


def _counted_draft(case: cases.Case, loop: trends.Growth, sureness: float) -> _base.Draft:
    unit, window = loop.key, loop.window
    restarts, per_hour = loop.total("restarts"), loop.per_hour("restarts")
    duration = times.format_duration(window.seconds)
    draft = _base.Draft(
        COUNTED,
        Subject(host=case.host, unit=unit),
        window,
        0.95 * sureness,
        f"{unit} is crash-looping: systemd restarts it {per_hour:,.0f} times an hour, for at least"
        f" {duration}",
        magnitude={"restarts_per_hour": per_hour, "hours": window.seconds / 3600},
    )
    draft.support(
        f"systemd restarted {unit} {restarts:.0f} times in {duration}",
        "unit-restarts",
        look=_base.command("events", window, case.host, "--kind", "unit."),
        restarts=restarts,
        restarts_per_hour=round(per_hour, 2),
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


def _restarts_per_hour(
    counted: Mapping[str, trends.Growth], creator: _creators.Creator
) -> float | None:
    """Return systemd's restarts an hour of a unit, or of all units in a shared slice; None: unknown."""
    cgroup = creator.cgroup
    if creator.container:
        own = [counted[creator.unit]] if creator.unit in counted else []
    elif not cgroups.is_shared_slice(cgroup):
        own = [counted[name] for name in _unit_names(cgroup) if name in counted][:1]
    else:
        parts = set(cgroup.split("/"))
        machines = (key.rpartition(":")[0] for key in counted)
        machine = next((name for name in machines if name and name in parts), "")
        own = [growth for key, growth in counted.items() if key.rpartition(":")[0] == machine]
    return sum(growth.per_hour("restarts") for growth in own) if own else None


def _state_evidence(case: cases.Case, *names: str) -> list[Evidence]:
    """Read systemd's state of the unit at the event."""
    facts = case.facts("units") or {}
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


class UncountedCrashLoops(_base.Detector):
    """Cgroups that live less than a minute, again and again, while systemd's NRestarts stays the same."""

    name = "hidden-crash-loops"
    needs = (Need.CGROUP_BIRTHS, Need.UNIT_RESTARTS, Need.UNITS, Need.EVENTS)
    clears_by = ((Need.CGROUP_BIRTHS,),)
    rank_by = "births_per_hour"
    max_findings = 8

    def examine(self, case: cases.Case) -> Answer:
        columns = ("born", "died", "short_lived", "lived")
        counted = _read_growth(case, "cgroup-births", columns, from_zero=True)
        restarts = _read_growth(case, "unit-restarts", ("restarts",)).keys
        known = _creators.read(case)
        drafts, counted_by_systemd = [], 0
        dying, _ = _host_state.read_dying(case)
        factor = 1 if (dying or 0) >= _host_state.MANY_DYING else SHARED_SLICE_FACTOR

        def short_per_hour(cgroup: str) -> float:
            return SHORT_PER_HOUR * (factor if cgroups.is_shared_slice(cgroup) else 1)

        for loop in _find_loops(case, counted, SHORT_LIVED, MIN_SHORT, short_per_hour):
            creator = _creators.find(known, loop.key)
            per_hour = _restarts_per_hour(restarts, creator)
            if per_hour is not None and per_hour >= COUNTED_SHARE * loop.per_hour(SHORT_LIVED):
                counted_by_systemd += 1  # the other detector reports it
            else:
                drafts.append(_uncounted_draft(case, loop, creator, per_hour, _sureness(counted)))
        if not drafts:
            _require_length(counted, "new cgroups", Need.CGROUP_BIRTHS)
        clear = f"none of the parents of new cgroups ({len(counted.keys)}) is in a crash loop"
        if counted_by_systemd:
            clear += f", except {counted_by_systemd} whose restarts systemd counts"
        return self.answer(drafts, clear=clear)


def _uncounted_draft(
    case: cases.Case,
    loop: trends.Growth,
    creator: _creators.Creator,
    restarts_per_hour: float | None,
    sureness: float,
) -> _base.Draft:
    cgroup, unit, window = creator.cgroup, creator.unit, loop.window
    loop = loop.without_bursts("born")
    hours = float(loop.seconds.sum()) / 3600
    born, died, lived, short_lived = map(loop.total, ("born", "died", "lived", "short_lived"))
    life = lived / died / 1000 if died else 0.0
    is_shared = not creator.container and cgroups.is_shared_slice(cgroup)
    started = cgroups.describe(creator.container)
    subject = f"{unit} starts {started}, which" if unit and started else creator.label
    subject = f"something below {cgroup}" if is_shared else subject
    draft = _base.Draft(
        UNCOUNTED,
        Subject(
            case.host, unit=unit, cgroup=cgroup, container=creator.container, image=creator.image
        ),
        window,
        (0.5 if is_shared else 0.9) * sureness,
        f"{subject} is in a crash loop not counted by systemd: it is started {born / hours:,.0f} times an hour and"
        f" lives {life:.0f} s, for at least {times.format_duration(window.seconds)}",
        magnitude={
            "births_per_hour": born / hours,
            "deaths_per_hour": died / hours,
            "short_lived_per_hour": short_lived / hours,
            "mean_life_seconds": life,
            "hours": window.seconds / 3600,
        },
    )
    if creator.restarted:
        draft.magnitude["restarted"] = creator.restarted
    draft.support(
        f"{born:.0f} cgroups were created below {cgroup or creator.container} in {times.format_duration(3600 * hours)};"
        f" {short_lived:.0f} of them lived less than a minute, {life:.1f} s on average",
        "cgroup-births",
        look="overnight census --for 1m",
        born=born,
        died=died,
        short_lived=short_lived,
        hours=round(hours, 2),
        mean_life_seconds=round(life, 2),
    )
    draft.evidence += creator.evidence
    _doubt(draft, creator)
    draft.evidence += _state_evidence(
        case, *(_unit_names(cgroup) if not creator.container else [unit])
    )
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


def _doubt(draft: _base.Draft, creator: _creators.Creator) -> None:
    """Lower the confidence where it is not known which unit has the containers started."""
    if not creator.container or creator.unit or creator.container.startswith("kubernetes:"):
        return
    acted = "no unit acted at the births"
    if creator.supervisors:
        leading = [each.unit for each in creator.supervisors if each.leads]
        acted = (
            f"{' and '.join(leading)} acted before the births"
            if leading
            else "units acted at the births, but not before them"
        )
    elif not creator.watched:
        acted = "the units that act at the births were not recorded"
    text = f"{acted}: what starts the containers is not known"
    if creator.restarted:
        text = f"the runtime itself restarted the container {creator.restarted} times"
    factor = UNKNOWN_UNIT if creator.image or creator.programs else UNKNOWN_CONTAINER
    draft.oppose(text, "cgroup-supervisors", factor=factor)


DETECTORS = (CrashLoops(), UncountedCrashLoops())
