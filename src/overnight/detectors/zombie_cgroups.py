"""memory.zombie_cgroups: memory cgroups that were removed and never go, how fast they come, and from whom."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from overnight.detectors import _base
from overnight.model import times
from overnight.model.finding import Answer, Evidence, Finding, Need, Subject
from overnight.model.selection import Window
from overnight.queries import diff, trends
from overnight.sources import processes

if TYPE_CHECKING:
    from overnight.model.event import Value
    from overnight.queries import case as cases

__all__ = ["DETECTORS", "Zombies"]

KIND = "memory.zombie_cgroups"
SIGNAL = "memory-cgroups"
HOUR_US = _base.HOUR_US
LOOK_BACK_US = 24 * HOUR_US  # a slope of a day; more would cost more than it tells
MEET_US = 1_800_000_000  # births are met every half hour, or six times in what there is
MEET_LEAST_US = 2_000_000
# What the watch warns of: hundreds are typical of a healthy host, ten times those in use are not.
LEVEL = 1_000
RATIO = 10.0
ALARMING = 10_000  # whatever is in use beside them
# Growth alone: by its lower bound, for an hour at least, and more than a deploy leaves behind.
GROWTH_PER_HOUR = 50.0
GROWTH_HOURS = 1.0
GROWTH_LOOKS = 10  # where the level alarms already: ten minutes of looks are enough for a slope
GROWTH_LEAST = 200
# A fall by a fifth is a purge; what comes and goes with pressure is less.
FALL_SHARE, FALL_LEAST = 0.2, 100
WATCHDOG_US = 5_000_000  # the network driver's, which a walk under one core must not outlast
FAR_HOURS = 8766.0
SLOW_READ_US = 1_000  # below this a read does not grow with the zombies, or they are few
# A cgroup that dies leaves one zombie at most. Less than half as many deaths cannot be the source of a leak;
# more than ten times as many would mean that nine of ten go as they should.
RATIO_LOW, RATIO_HIGH = 0.5, 10.0
UNWATCHED = "(unwatched)"


@dataclasses.dataclass(frozen=True)
class _Creator:
    """Deaths of cgroups under one parent, against the growth of the zombies."""

    unit: str
    cgroup: str
    births_per_hour: float
    deaths_per_hour: float
    ratio: float  # deaths for each zombie
    low: float
    high: float
    restarts: bool = False  # systemd's restarts of the unit, each of which is a birth and a death

    @property
    def fits(self) -> bool:
        return self.high >= RATIO_LOW and self.low <= RATIO_HIGH

    @property
    def distance(self) -> float:
        """From one death a zombie, in powers of e; smaller is better."""
        return abs(float(np.log(max(self.ratio, 1e-9))))


class Zombies(_base.BaseDetector):
    """Level, slope, age, where they hang, and who makes them."""

    name = "zombies"
    needs = (
        Need.MEMORY_CGROUPS, Need.MEMORY_CGROUP_PARENTS, Need.CGROUP_BIRTHS, Need.UNIT_RESTARTS,
        Need.HOST,
    )  # fmt: skip

    def examine(self, case: cases.Case) -> Answer:
        """The count at the event, and how it came to be."""
        window = _base.lasting(case, LOOK_BACK_US)
        all_ = trends.gauges(
            case.ring, case.host, SIGNAL, window, ("tracked", "in_use", "dying", "stat_read")
        )
        if not len(all_.time_us):
            raise _base.MissingError(
                "memory cgroups were not counted in the day before the event", Need.MEMORY_CGROUPS
            )
        counted, cut = _around(all_, case.window.end_us)
        at = max(0, int(np.searchsorted(counted.time_us, case.window.end_us)) - 1)
        now = {name: int(numbers[at]) for name, numbers in counted.values.items()}
        times, dying = counted.time_us, counted.values["dying"]
        slope = trends.slope(times, dying)
        level, tracked, in_use = (now[name] for name in ("dying", "tracked", "in_use"))
        many = level > ALARMING or (level > LEVEL and tracked > RATIO * max(1, in_use))
        growing = (
            slope is not None
            and slope.low > GROWTH_PER_HOUR
            and (slope.hours >= GROWTH_HOURS or (many and slope.points >= GROWTH_LOOKS))
            and level >= GROWTH_LEAST
        )
        if not many and not growing:
            why = f"{level} dying against {in_use} in use"
            if slope is not None:
                why += f", {slope.per_hour:+.0f} an hour ({slope.low:.0f} to {slope.high:.0f})"
            return self.answer((), clear=why)
        span = Window(int(times[0]), max(int(times[-1]), int(times[0]) + 1))
        made = self._finding(case, span, now, slope, growing=growing, cut=cut)
        return self.answer([made], clear="")

    def _finding(
        self,
        case: cases.Case,
        span: Window,
        now: dict[str, int],
        slope: trends.Slope | None,
        *,
        growing: bool,
        cut: bool,
    ) -> Finding:
        tracked, in_use, dying = (now[name] for name in ("tracked", "in_use", "dying"))
        magnitude: dict[str, float] = {
            "tracked": tracked,
            "in_use": in_use,
            "dying": dying,
            "ratio": tracked / max(1, in_use),
        }
        evidence = [
            Evidence(
                f"{tracked} memory cgroups are tracked against {in_use} in use"
                f" ({tracked / max(1, in_use):.0f} times): {dying} are dying",
                SIGNAL,
                {"tracked": tracked, "in_use": in_use, "dying": dying},
                span,
                "overnight census",
            )
        ]
        against: list[Evidence] = []
        if slope is not None:
            magnitude.update(
                growth_per_hour=slope.per_hour, growth_low=slope.low, growth_high=slope.high
            )
            (evidence if growing else against).append(_growth(slope, span, cut))
        age = _age(case, dying, slope if growing else None, span)
        if age is not None:
            magnitude["age_hours"] = age[0]
            evidence.append(age[1])
        read = _read_time(now, slope if growing else None)
        if read is not None:
            magnitude["stat_read_seconds"] = read.values["stat_read_seconds"]  # type: ignore[assignment]  # put there as a number
            evidence.append(read)
        cgroup, parents = _parents(case, dying)
        evidence.extend(parents)
        creator = None
        below = ""
        if growing and slope is not None:
            creators = _creators(case, span, slope)
            creator = next((one for one in creators if one.fits), None)
            below = next((one.cgroup for one in creators if one.fits and one.cgroup), "")
            evidence.extend(_creator_evidence(one, span) for one in creators[:3] if one.fits)
            against.extend(_creator_evidence(one, span) for one in creators[:3] if not one.fits)
        if creator is not None:
            magnitude.update(
                creator_births_per_hour=creator.births_per_hour,
                creator_deaths_per_zombie=creator.ratio,
            )
        grows = f", {slope.per_hour:+.0f} an hour" if slope and growing else ""
        by_whom = f"; {creator.unit} makes them" if creator else ""
        return _base.make(
            self.name,
            KIND,
            Subject(host=case.host, cgroup=cgroup or below),
            span,
            0.95 if dying > ALARMING or (growing and dying > LEVEL) else 0.8,
            f"{dying} memory cgroups are dying and never go ({in_use} in use){grows}{by_whom}",
            evidence,
            magnitude,
            against,
        )


def _around(counted: trends.Gauges, event_us: int) -> tuple[trends.Gauges, bool]:
    """The looks between the last reboot or purge before the event and the first after it.

    And whether there was one before.
    """
    dying = counted.values["dying"]
    fell = -np.diff(dying)
    falls = (fell > np.maximum(FALL_LEAST, FALL_SHARE * dying[:-1])) | (np.diff(counted.boot) != 0)
    edges = [0, *(np.flatnonzero(falls) + 1).tolist(), len(dying)]
    at = max(0, int(np.searchsorted(counted.time_us, event_us)) - 1)
    first = max(edge for edge in edges if edge <= at)
    last = min(edge for edge in edges if edge > at)
    kept = trends.Gauges(
        counted.time_us[first:last],
        counted.boot[first:last],
        {name: numbers[first:last] for name, numbers in counted.values.items()},
    )
    return kept, first > 0


def _growth(slope: trends.Slope, span: Window, cut: bool) -> Evidence:
    since = " since the last reboot or purge" if cut else ""
    return Evidence(
        f"they grew by {slope.per_hour:.0f} an hour ({slope.low:.0f} to {slope.high:.0f}, 99 %) over"
        f" {times.format_duration(3600 * slope.hours)}{since}",
        SIGNAL,
        {
            "growth_per_hour": round(slope.per_hour, 2),
            "low": round(slope.low, 2),
            "high": round(slope.high, 2),
            "hours": round(slope.hours, 2),
            "looks": slope.points,
        },
        span,
        "overnight census --for 1m",
    )


def _age(
    case: cases.Case, dying: int, slope: trends.Slope | None, span: Window
) -> tuple[float, Evidence] | None:
    """How long this has gone on: backwards along the slope, not beyond the boot."""
    facts = case.ring.facts(case.host, "host", case.event.time_us)
    booted = (facts.state or {}).get("", {}).get("booted_at")
    uptime = None
    if isinstance(booted, int) and booted * 1_000_000 < span.end_us:
        uptime = (span.end_us - booted * 1_000_000) / HOUR_US
    hours = dying / slope.per_hour if slope is not None else None
    values: dict[str, Value] = {}
    if uptime is not None:
        values["uptime_hours"] = round(uptime, 2)
    if hours is not None:
        values["hours_at_this_rate"] = round(hours, 2)
    if hours is None and uptime is None:
        return None
    age = min(one for one in (hours, uptime) if one is not None)
    if hours is None:
        text = f"the host was booted {uptime:.0f} h ago: they are no older"
    elif uptime is None:
        text = f"at this rate it began {_told(hours)} ago"
    elif hours > uptime * 1.25:
        text = (
            f"at this rate it would have taken {_told(hours)}, but the host was booted {uptime:.0f} h"
            " ago: it was faster before"
        )
    else:
        text = f"at this rate it began {_told(hours)} ago; the host was booted {uptime:.0f} h ago"
    return age, Evidence(text, "host", values, span)


def _told(hours: float) -> str:
    return times.format_duration(3600 * hours) if hours < 3 else f"{hours:.0f} h"


def _read_time(now: dict[str, int], slope: trends.Slope | None) -> Evidence | None:
    """How long the root's statistics take to read, and when that will outlast the watchdog."""
    read, dying = now["stat_read"], now["dying"]
    if read <= 0:
        return None
    text = f"reading the root's statistics took {read / 1e6:.3f} s when it was last tried"
    values: dict[str, Value] = {"stat_read_seconds": round(read / 1e6, 6)}
    if read >= WATCHDOG_US:
        text += ": longer than the 5 s that a network driver waits"
    elif read >= SLOW_READ_US and slope is not None and slope.per_hour > 0:
        # Linear in the zombies: dd8657b6c1cb measured 0.7 s at 10,000, before it.
        hours = dying * (WATCHDOG_US / read - 1) / slope.per_hour
        values["hours_to_watchdog"] = round(hours, 1)
        if hours <= FAR_HOURS:
            text += f"; at this rate it will be 5 s, a network driver's watchdog, in {hours:.0f} h"
        else:
            text += "; it will not be 5 s, a network driver's watchdog, for a year"
    elif read < SLOW_READ_US:
        text += ": this kernel does not visit every cgroup for that"
    return Evidence(text, SIGNAL, values)


def _parents(case: cases.Case, dying: int) -> tuple[str, list[Evidence]]:
    """Where they hang; a parent is named when it surely has some, and most."""
    window = Window(case.event.time_us - 2 * HOUR_US, case.window.end_us)
    rows = trends.table(case.ring, case.host, "memory-cgroup-parents", window)
    if not rows:
        return "", []
    cgroup, row = max(rows.items(), key=lambda item: (item[1]["dying"], item[0]))
    if row["dying"] <= 0:
        return "", []
    sure = row["at_least"] == row["at_most"]
    how = "" if sure else f" (between {row['at_least']} and {row['at_most']})"
    told = Evidence(
        f"{row['dying']} of them{how} hang below {cgroup}, where {row['in_use']} are in use",
        "memory-cgroup-parents",
        {"cgroup": cgroup, "dying": row["dying"], "at_least": row["at_least"],
         "at_most": row["at_most"], "share_of_all_dying": round(row["dying"] / max(1, dying), 3)},
        window,
        "overnight census",
    )  # fmt: skip
    return cgroup if 2 * row["dying"] >= dying else "", [told]


def _creators(case: cases.Case, span: Window, slope: trends.Slope) -> list[_Creator]:
    """Parents under which cgroups die, those whose pace fits the growth best first."""
    every = min(MEET_US, max(MEET_LEAST_US, (span.end_us - span.begin_us) // 6))
    born = trends.growth(
        case.ring, case.host, "cgroup-births", span, ("born", "died"), every, from_zero=True
    )
    found = [
        _creator(processes.unit_of(cgroup) or cgroup, cgroup, one, ("born", "died"), slope)
        for cgroup, one in born.keys.items()
        if cgroup != UNWATCHED
    ]
    # Births of services show below the slice they all share: their own counters tell them apart.
    again = trends.growth(case.ring, case.host, "unit-restarts", span, ("restarts",), every)
    found += [
        _creator(unit, "", one, ("restarts", "restarts"), slope) for unit, one in again.keys.items()
    ]
    return sorted(
        (one for one in found if one is not None),
        key=lambda one: (
            not one.fits,
            _base.SHELF.search(one.cgroup) is not None,
            one.distance,
            one.unit,
        ),
    )


def _creator(
    unit: str, cgroup: str, one: trends.Growth, columns: tuple[str, str], slope: trends.Slope
) -> _Creator | None:
    """None where hardly any died."""
    born, died = columns
    count, hours = one.total(died), float(one.seconds.sum()) / 3600
    if count < 3 or not hours:
        return None
    low, high = diff.poisson_bounds(round(count))
    return _Creator(
        unit=unit,
        cgroup=cgroup,
        births_per_hour=one.per_hour(born),
        deaths_per_hour=count / hours,
        ratio=count / hours / slope.per_hour,
        low=low / hours / max(slope.high, 1e-9),
        high=high / hours / max(slope.low, 1e-9),
        restarts=not cgroup,
    )


def _creator_evidence(one: _Creator, span: Window) -> Evidence:
    fits = (
        "the pace fits"
        if one.fits
        else "too few to be their source"
        if one.ratio < 1
        else "far more than become zombies"
    )
    what = (
        f"{one.unit} is restarted {one.births_per_hour:.0f} times an hour"
        if one.restarts
        else f"{one.births_per_hour:.0f} cgroups an hour are born and {one.deaths_per_hour:.0f} die"
        f" below {one.cgroup}"
    )
    return Evidence(
        f"{what}: {one.ratio:.2f} ({one.low:.2f} to {one.high:.2f}) for each new zombie; {fits}",
        "unit-restarts" if one.restarts else "cgroup-births",
        {
            "creator": one.unit,
            "cgroup": one.cgroup,
            "births_per_hour": round(one.births_per_hour, 2),
            "deaths_per_hour": round(one.deaths_per_hour, 2),
            "deaths_per_new_zombie": round(one.ratio, 3),
            "low": round(one.low, 3),
            "high": round(one.high, 3),
            "fits": one.fits,
        },
        span,
        "overnight census --for 1m",
    )


DETECTORS = (Zombies(),)
