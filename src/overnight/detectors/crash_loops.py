"""Units that start again for ever: those that systemd counts, and those whose own supervisor hides it.

A loop that does no harm is found, too: whether it caused anything is for the chain to say. So each
says what it costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from overnight.detectors import _base
from overnight.model import times
from overnight.model.finding import Answer, Evidence, Finding, Need, Subject
from overnight.model.selection import Window
from overnight.queries import trends
from overnight.sources import processes

if TYPE_CHECKING:
    from overnight.model.event import Event
    from overnight.queries import case as cases

__all__ = ["DETECTORS", "CrashLoops", "HiddenLoops"]

VISIBLE, HIDDEN = "unit.crash_loop", "unit.hidden_crash_loop"
HOUR_US = _base.HOUR_US
LOOK_BACK_US = 12 * HOUR_US
MEET_US = 600_000_000
# The watch's five within 20 minutes are 15 an hour; over an hour half of it is a loop with longer pauses.
RESTARTS_PER_HOUR = 7.5
LEAST_RESTARTS = 5
# Six within ten minutes, none of which lived a minute; ten times that on shelves, where timers and
# sessions come and go on every healthy host. As the watch has it.
SHORT_PER_HOUR = 36.0
LEAST_SHORT = 6
SHELF_FACTOR = 10
RECENT_US = HOUR_US  # it must still go on shortly before the event
# NRestarts explains the births where it rises at least half as fast.
SEEN_SHARE = 0.5
# Less than this is no time for a rate, unless what was counted says it: enough for its uncertainty, and
# all along the time there is. A deploy or a boot is a burst: it pauses, or ends.
LEAST_SECONDS = 300.0
SHORT_COUNT = 25  # a Poisson count of 25 is known within 40 %
STRETCHES = 8
STRETCH_LEAST_US = 2_000_000
SHORT_FACTOR = 0.9
MOST = 8


def _counted(
    case: cases.Case, signal: str, columns: tuple[str, ...], *, from_zero: bool = False
) -> trends.Meetings:
    window = _base.lasting(case, LOOK_BACK_US)
    extent = case.ring.extent(case.host)
    known = window.end_us - max(window.begin_us, extent[0]) if extent else LOOK_BACK_US
    every = MEET_US
    if known < LEAST_SECONDS * 1e6:
        every = max(STRETCH_LEAST_US, known // STRETCHES)
    return trends.growth(
        case.ring, case.host, signal, window, columns, every,
        pivot_us=case.window.end_us, from_zero=from_zero,
    )  # fmt: skip


def _steady(case: cases.Case, one: trends.Growth, column: str, count: float) -> bool:
    """Whether it went on all the time there is, the first stretch apart.

    One stretch without may be one in which systemd was not asked; two beside each other are a pause.
    """
    went_on = one.rises[column][one.end_us <= case.window.end_us][1:] > 0
    paused = ~went_on[1:] & ~went_on[:-1]
    return count >= SHORT_COUNT and len(went_on) >= STRETCHES // 2 and not paused.any()


def _loop(
    case: cases.Case, one: trends.Growth, column: str, per_hour: float, least: int
) -> tuple[Window, float, float] | None:
    """The stretch around the event in which it went on: window, rate an hour, count."""
    rates = 3600 * one.rises[column] / one.seconds
    going = np.flatnonzero(rates >= per_hour).tolist()
    before = [n for n in going if one.end_us[n] <= case.window.end_us]
    if not before or one.end_us[before[-1]] < case.event.time_us - RECENT_US:
        return None
    # Both ways from the last before the event: a pause of one interval does not end it.
    first = last = before[-1]
    for n in reversed(before):
        first = n if first - n <= 2 else first
    for n in going:
        last = n if 0 < n - last <= 2 else last
    count = float(one.rises[column][first : last + 1].sum())
    seconds = float(one.seconds[first : last + 1].sum())
    if count < least or not seconds:
        return None
    window = Window(int(one.begin_us[first]), int(one.end_us[last]))
    return window, 3600 * count / seconds, count


def _cost(case: cases.Case, unit: str) -> Evidence | None:
    """Cores that a unit used before the trouble, where stacks were sampled."""
    if not unit or not case.has_profile(case.baseline):
        return None
    before = case.stacks(case.baseline, by_second=False)
    # A unit that is a path holds what lies below it.
    mine = np.array(
        [p.unit == unit or p.unit.startswith(f"{unit}/") for p in before.processes], bool
    )
    samples = sum(int(part.count[mine[part.process]].sum()) for part in before.segments)
    cores = before.cores(samples, before.seconds)
    return Evidence(
        f"it used {cores:.3f} cores in the {case.usual}",
        "profiles",
        {"cores_burnt": round(cores, 4), "samples": samples, "lost": before.coverage.lost},
        before.window,
        _base.command("top", before.window, case.host),
    )


class CrashLoops(_base.BaseDetector):
    """Rows of `unit-restarts`, and what the watch and the kernel log told."""

    name = "crash-loops"
    needs = (Need.UNIT_RESTARTS, Need.UNITS, Need.EVENTS)

    def examine(self, case: cases.Case) -> Answer:
        """Restarts an hour over hours."""
        span = Window(case.window.end_us - LOOK_BACK_US, case.window.end_us)
        counted = _counted(case, "unit-restarts", ("restarts",))
        told = [
            one
            for one in case.events(span, VISIBLE)
            if max(one.until_us, one.time_us) >= case.event.time_us - RECENT_US and one.unit
        ]
        short = counted.seconds < LEAST_SECONDS
        found = []
        for unit, one in counted.keys.items():
            loop = _loop(case, one, "restarts", RESTARTS_PER_HOUR, LEAST_RESTARTS)
            if loop is not None and (not short or _steady(case, one, "restarts", loop[2])):
                found.append(self._finding(case, unit, loop, short=short))
        known = {one.subject.unit for one in found}
        for happened in told:
            if happened.unit not in known and happened.id != case.event.id:
                known.add(happened.unit)
                found.append(self._told(case, happened.unit, happened))
        if short and not found:
            raise _base.MissingError(
                f"restarts of units were recorded for {counted.seconds:.0f} s before the event",
                Need.UNIT_RESTARTS,
            )
        found.sort(key=lambda made: -made.magnitude["restarts_per_hour"])
        clear = (
            f"none of {len(counted.keys)} units was restarted {RESTARTS_PER_HOUR} times an hour, in"
            f" {counted.seconds / 3600:.1f} h"
        )
        return self.answer(found[:MOST], clear=clear)

    def _finding(
        self,
        case: cases.Case,
        unit: str,
        loop: tuple[Window, float, float],
        *,
        short: bool,
    ) -> Finding:
        window, rate, count = loop
        long = times.format_duration(window.seconds)
        evidence = [
            Evidence(
                f"systemd restarted {unit} {count:.0f} times in {long}",
                "unit-restarts",
                {"restarts": count, "restarts_per_hour": round(rate, 2)},
                window,
                _base.command("events", window, case.host, "--kind", "unit."),
            ),
            *_states(case, unit),
        ]
        magnitude = {"restarts_per_hour": rate, "hours": window.seconds / 3600}
        cost = _cost(case, unit)
        if cost is not None:
            evidence.append(cost)
            magnitude["cores_burnt"] = float(cost.values["cores_burnt"])
        return _base.make(
            self.name,
            VISIBLE,
            Subject(host=case.host, unit=unit),
            window,
            0.95 * (SHORT_FACTOR if short else 1),
            f"{unit} is restarted {rate:.0f} times an hour, for {long} at least",
            evidence,
            magnitude,
        )

    def _told(self, case: cases.Case, unit: str, happened: Event) -> Finding:
        end = max(happened.until_us, happened.time_us + 1)
        window = Window(happened.time_us, end)
        restarts = float(happened.fields.get("restarts", happened.count))
        # The watch counts within 20 minutes.
        rate = 3 * restarts
        return _base.make(
            self.name, VISIBLE, Subject(host=case.host, unit=unit), window, 0.7,
            f"{unit} is restarted again and again, as the flight recorder saw",
            [_event_evidence(happened)], {"restarts_per_hour": rate},
        )  # fmt: skip


def _event_evidence(happened: Event) -> Evidence:
    return Evidence(
        happened.text, f"event {happened.id}", dict(happened.fields),
        Window(happened.time_us, max(happened.until_us, happened.time_us) + 1),
        f"overnight events {happened.id}",
    )  # fmt: skip


def _names(cgroup: str) -> list[str]:
    """What signals may call the unit of a cgroup: those of a machine are `machine:unit`, and its name is in the path."""
    unit = processes.unit_of(cgroup)
    return [f"{part}:{unit}" for part in cgroup.split("/") if part] + [unit]


def _restarts(counted: Mapping[str, trends.Growth], cgroup: str) -> float | None:
    """How often an hour systemd restarts the unit of a cgroup, or all that are on a shelf; None: it is not said."""
    if _base.SHELF.search(cgroup) is None:
        own = [counted[name] for name in _names(cgroup) if name in counted][:1]
    else:
        inside = set(cgroup.split("/"))
        machine = next((one for key in counted if (one := key.rpartition(":")[0]) in inside and one), "")  # fmt: skip
        own = [one for key, one in counted.items() if key.rpartition(":")[0] == machine]
    return sum(one.per_hour("restarts") for one in own) if own else None


def _states(case: cases.Case, *names: str) -> list[Evidence]:
    """What systemd says of the unit at the event."""
    facts = case.ring.facts(case.host, "units", case.event.time_us).state or {}
    unit = next((name for name in names if name in facts), "")
    if not unit:
        return []
    fact = facts[unit]
    values = {
        name: value for name, value in fact.items() if isinstance(value, (str, int, float, bool))
    }
    said = ", ".join(f"{name} {value}" for name, value in values.items() if name != "since")
    return [Evidence(f"{unit}: {said}", "units", values)]


class HiddenLoops(_base.BaseDetector):
    """Rows of `cgroup-births`: cgroups that lived less than a minute, while NRestarts stays."""

    name = "hidden-crash-loops"
    needs = (Need.CGROUP_BIRTHS, Need.UNIT_RESTARTS, Need.UNITS, Need.EVENTS)

    def examine(self, case: cases.Case) -> Answer:
        """Short lives an hour over hours, by the directory they were born in."""
        columns = ("born", "died", "short_lived", "lived")
        counted = _counted(case, "cgroup-births", columns, from_zero=True)
        short = counted.seconds < LEAST_SECONDS
        restarts = _counted(case, "unit-restarts", ("restarts",)).keys
        found = []
        hidden_by = 0
        for cgroup, one in counted.keys.items():
            factor = SHELF_FACTOR if _base.SHELF.search(cgroup) else 1
            loop = _loop(case, one, "short_lived", factor * SHORT_PER_HOUR, LEAST_SHORT)
            if loop is None or (short and not _steady(case, one, "short_lived", loop[2])):
                continue
            seen = _restarts(restarts, cgroup)
            if seen is not None and seen >= SEEN_SHARE * loop[1]:
                hidden_by += 1  # systemd restarts it and says so: the other detector's
                continue
            found.append(self._finding(case, cgroup, one, loop, seen, short=short))
        if short and not found:
            raise _base.MissingError(
                f"births of cgroups were recorded for {counted.seconds:.0f} s before the event",
                Need.CGROUP_BIRTHS,
            )
        found.sort(key=lambda made: -made.magnitude["births_per_hour"])
        why = f"cgroups below {len(counted.keys)} directories came and went, none in a loop"
        if hidden_by:
            why += f" but {hidden_by} that systemd counts as restarts"
        return self.answer(found[:MOST], clear=why)

    def _finding(
        self,
        case: cases.Case,
        cgroup: str,
        one: trends.Growth,
        loop: tuple[Window, float, float],
        seen: float | None,
        *,
        short: bool,
    ) -> Finding:
        window, rate, count = loop
        unit = processes.unit_of(cgroup)
        inside = (one.begin_us >= window.begin_us) & (one.end_us <= window.end_us)
        hours = float(one.seconds[inside].sum()) / 3600
        born, died, lived = (
            float(one.rises[name][inside].sum()) for name in ("born", "died", "lived")
        )
        life = lived / died / 1000 if died else 0.0
        evidence = [
            Evidence(
                f"{born:.0f} cgroups were born below {cgroup} in {times.format_duration(3600 * hours)}, {count:.0f}"
                f" of them lived less than a minute, {life:.1f} s on average",
                "cgroup-births",
                {"born": born, "died": died, "short_lived": count, "hours": round(hours, 2),
                 "mean_life_seconds": round(life, 2)},
                window,
                "overnight census --for 1m",
            ),
            *_states(case, *_names(cgroup)),
        ]  # fmt: skip
        if seen is not None:
            evidence.append(
                Evidence(
                    f"systemd restarted {unit} {seen:.1f} times an hour: its counter does not show this",
                    "unit-restarts",
                    {"restarts_per_hour": round(seen, 2)},
                    window,
                )
            )
        evidence.extend(
            _event_evidence(happened)
            for happened in case.events(window, "container.agent_restart")[-1:]
        )
        magnitude = {
            "births_per_hour": born / hours,
            "deaths_per_hour": died / hours,
            "short_lived_per_hour": rate,
            "mean_life_seconds": life,
            "hours": window.seconds / 3600,
        }
        cost = _cost(case, unit)
        if cost is not None:
            evidence.append(cost)
            magnitude["cores_burnt"] = float(cost.values["cores_burnt"])
        shelf = _base.SHELF.search(cgroup) is not None
        against = (
            [Evidence(f"many units are born below {cgroup}", "cgroup-births", {})] if shelf else []
        )
        return _base.make(
            self.name,
            HIDDEN,
            Subject(host=case.host, unit=unit, cgroup=cgroup),
            window,
            (0.5 if shelf else 0.9) * (SHORT_FACTOR if short else 1),
            f"something below {unit or cgroup} is started {born / hours:.0f} times an hour and lives"
            f" {life:.0f} s, for {times.format_duration(window.seconds)} at least; systemd does not count"
            " that",
            evidence,
            magnitude,
            against,
        )


DETECTORS = (CrashLoops(), HiddenLoops())
