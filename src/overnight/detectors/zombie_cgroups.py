"""memory.zombie_cgroups: memory cgroups that were removed and are never freed, their growth and their creator."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from overnight.detectors import _base, _creators, _host_state, _instruments
from overnight.model import cgroups, times
from overnight.model.finding import Answer, Evidence, Need, Subject
from overnight.model.selection import Window
from overnight.model.times import DAY_US, HOUR_US, SECOND_US
from overnight.queries import diff, freshness, trends
from overnight.sources import cgroupchurn

if TYPE_CHECKING:
    from overnight.model.event import Value
    from overnight.queries import case as cases

KIND = "memory.zombie_cgroups"
SIGNAL = "memory-cgroups"
LOOK_BACK_US = DAY_US  # enough for a slope; more costs more than it adds
INTERVAL_US = HOUR_US // 2  # births are read every half hour, or six times in a shorter recording
MIN_INTERVAL_US = 2 * SECOND_US
# The watch warns here: hundreds are typical of a healthy host, ten times those in use are not.
LEVEL = _host_state.MANY_DYING
RATIO = 10.0
ALARMING = 10_000  # however many are in use
# Growth alone: by its lower bound, for at least an hour, and more than a deploy leaves behind.
GROWTH_PER_HOUR = 50.0
GROWTH_HOURS = 1.0
GROWTH_READINGS = 10  # where the level is alarming already, ten minutes are enough for a slope
GROWTH_MIN = 200
# A fall by a fifth is a purge; what comes and goes with memory pressure is less.
FALL_SHARE, FALL_MIN = 0.2, 100
# What is dying stays so for hours, so a high count is good for longer than a low one; a purge since is not seen.
MAX_AGE_US = 2 * HOUR_US
WATCHDOG_US = 5 * SECOND_US  # of a network driver: a walk on one core must not take longer
FAR_HOURS = 8766.0
SLOW_READ_US = 1_000  # below this the read does not grow with the zombies, or they are few
# A cgroup that dies leaves at most one zombie. Less than half as many deaths cannot be the source of a leak;
# more than ten times as many would mean that nine of ten are freed as they should be.
RATIO_LOW, RATIO_HIGH = 0.5, 10.0


@dataclasses.dataclass(frozen=True)
class _Creator:
    """Deaths of cgroups under one parent, against the growth of the zombies."""

    unit: str
    cgroup: str  # "" where systemd's restarts of the unit were counted, each of them a birth and a death
    births_per_hour: float
    deaths_per_hour: float
    ratio: float  # deaths per zombie
    low: float
    high: float

    @property
    def fits(self) -> bool:
        return self.high >= RATIO_LOW and self.low <= RATIO_HIGH

    @property
    def distance(self) -> float:
        """From one death per zombie, in powers of e; smaller is better."""
        return abs(float(np.log(max(self.ratio, 1e-9))))

    def evidence(self, span: Window) -> Evidence:
        verdict = "the rate matches"
        if not self.fits:
            verdict = (
                "too few to be the source" if self.ratio < 1 else "far more than become zombies"
            )
        deaths = (
            f"{self.births_per_hour:,.0f} cgroups an hour are created and {self.deaths_per_hour:,.0f}"
            f" removed below {self.cgroup}"
            if self.cgroup
            else f"systemd restarts {self.unit} {self.births_per_hour:,.0f} times an hour"
        )
        return Evidence(
            f"{deaths}: {self.ratio:.2f} ({self.low:.2f} to {self.high:.2f}) per new zombie; {verdict}",
            "cgroup-births" if self.cgroup else "unit-restarts",
            {
                "creator": self.unit,
                "cgroup": self.cgroup,
                "births_per_hour": round(self.births_per_hour, 2),
                "deaths_per_hour": round(self.deaths_per_hour, 2),
                "deaths_per_new_zombie": round(self.ratio, 3),
                "low": round(self.low, 3),
                "high": round(self.high, 3),
                "fits": self.fits,
            },
            span,
            "overnight census --for 1m",
        )


@dataclasses.dataclass(frozen=True)
class _Count:
    """Memory cgroups at the event; `stat_read_us` is how long reading the root's statistics took."""

    tracked: int
    in_use: int
    dying: int
    stat_read_us: int

    @property
    def ratio(self) -> float:
        return self.tracked / max(1, self.in_use)

    @property
    def is_many(self) -> bool:
        return self.dying > ALARMING or (
            self.dying > LEVEL and self.tracked > RATIO * max(1, self.in_use)
        )


class ZombieCgroups(_base.Detector):
    """Number, growth, age, parents and creator of the zombies."""

    name = "zombies"
    needs = (
        Need.MEMORY_CGROUPS, Need.MEMORY_CGROUP_PARENTS, Need.CGROUP_BIRTHS, Need.UNIT_RESTARTS,
        Need.HOST,
    )  # fmt: skip
    clears_by = ((Need.MEMORY_CGROUPS,),)

    def examine(self, case: cases.Case) -> Answer:
        window = _host_state.state_window(case, LOOK_BACK_US)
        columns = ("tracked", "in_use", "dying", "stat_read")
        gauges = trends.gauges(case.ring, case.host, SIGNAL, window, columns)
        if not len(gauges.time_us):
            raise _base.MissingError(
                "memory cgroups were not counted in the day before the event", Need.MEMORY_CGROUPS
            )
        gauges, is_cut = _cut_at_steps(gauges, case.event.time_us)
        at = gauges.row_at(case.event.time_us)
        if case.event.time_us - int(gauges.time_us[at]) > MAX_AGE_US:
            why = freshness.explain_silence(case, Need.MEMORY_CGROUPS)
            raise _base.MissingError(why, Need.MEMORY_CGROUPS)
        count = _Count(*(int(gauges.values[name][at]) for name in columns))
        slope = trends.slope(gauges.time_us, gauges.values["dying"])
        growth = slope if slope is not None and _is_growing(slope, count) else None
        if not count.is_many and growth is None:
            dying, why = _host_state.read_dying(case)
            if dying is None:
                raise _base.MissingError(why, Need.MEMORY_CGROUPS)
            clear = f"{count.dying} memory cgroups are dying (zombies), {count.in_use} are in use"
            if slope is not None:
                clear += f"; {slope.per_hour:+.0f} an hour ({slope.low:.0f} to {slope.high:.0f})"
            return self.answer((), clear=clear)
        begin, end = int(gauges.time_us[0]), int(gauges.time_us[-1])
        span = Window(begin, max(end, begin + 1))
        return self.answer([_draft(case, span, count, slope, growth, is_cut=is_cut)], clear="")


def _is_growing(slope: trends.Slope, count: _Count) -> bool:
    is_long = slope.hours >= GROWTH_HOURS or (count.is_many and slope.points >= GROWTH_READINGS)
    return slope.low > GROWTH_PER_HOUR and is_long and count.dying >= GROWTH_MIN


def _draft(
    case: cases.Case,
    span: Window,
    count: _Count,
    slope: trends.Slope | None,
    growth: trends.Slope | None,
    *,
    is_cut: bool,
) -> _base.Draft:
    cgroup, parents = _find_parent(case, count.dying)
    creators = _find_creators(case, span, growth) if growth is not None else []
    fitting = [creator for creator in creators if creator.fits]
    created_by = f"; {fitting[0].unit} creates them" if fitting else ""
    grows = f", {growth.per_hour:+,.0f} an hour" if growth is not None else ""
    is_sure = count.dying > ALARMING or (growth is not None and count.dying > LEVEL)
    draft = _base.Draft(
        KIND,
        Subject(
            host=case.host,
            cgroup=cgroup or next((creator.cgroup for creator in fitting if creator.cgroup), ""),
        ),
        span,
        0.95 if is_sure else 0.8,
        f"{count.dying:,} dying (zombie) memory cgroups{grows}; {count.in_use:,} in use{created_by}",
        magnitude={
            "tracked": count.tracked,
            "in_use": count.in_use,
            "dying": count.dying,
            "ratio": count.ratio,
        },
    )
    draft.support(
        f"the kernel tracks {count.tracked:,} memory cgroups and {count.in_use:,} are in use"
        f" ({count.ratio:.0f} to 1); {count.dying:,} are dying (zombies)",
        SIGNAL,
        look="overnight census",
        tracked=count.tracked,
        in_use=count.in_use,
        dying=count.dying,
    )
    if slope is not None:
        draft.magnitude.update(
            growth_per_hour=slope.per_hour, growth_low=slope.low, growth_high=slope.high
        )
        draft.weigh(_growth_evidence(slope, span, is_cut), supports=growth is not None)
    _add_age(case, draft, growth)
    if count.stat_read_us > 0:
        draft.magnitude["stat_read_seconds"] = round(count.stat_read_us / 1e6, 6)
        draft.evidence.append(_read_time_evidence(count, growth))
    draft.evidence += parents
    for creator in creators[:3]:
        draft.weigh(creator.evidence(span), supports=creator.fits)
    _instruments.support_creator(case, draft)
    if fitting:
        draft.magnitude.update(
            creator_births_per_hour=fitting[0].births_per_hour,
            creator_deaths_per_zombie=fitting[0].ratio,
        )
    return draft


def _cut_at_steps(gauges: trends.Gauges, event_us: int) -> tuple[trends.Gauges, bool]:
    """Keep the readings from the last reboot, purge or burst before the event to the first after it.

    Return also whether there was one before.
    """
    dying = gauges.values["dying"]
    rises = np.diff(dying)
    rates = rises / np.maximum(np.diff(gauges.time_us), 1)
    fell = -rises > np.maximum(FALL_MIN, FALL_SHARE * dying[:-1])
    burst = (rises > FALL_MIN) & (rates > trends.BURST * np.median(rates if len(rates) else 0))
    cuts = np.flatnonzero(fell | burst | (np.diff(gauges.boot) != 0)) + 1
    edges = [0, *cuts.tolist(), len(dying)]
    at = gauges.row_at(event_us)
    first = max(edge for edge in edges if edge <= at)
    last = min(edge for edge in edges if edge > at)
    if at + 1 - first >= GROWTH_READINGS:  # the time after the event is not needed
        last = at + 1
    kept = trends.Gauges(
        gauges.time_us[first:last],
        gauges.boot[first:last],
        {name: numbers[first:last] for name, numbers in gauges.values.items()},
    )
    return kept, first > 0


def _growth_evidence(slope: trends.Slope, span: Window, is_cut: bool) -> Evidence:
    since = " since the last reboot, purge or burst" if is_cut else ""
    return Evidence(
        f"they grew by {slope.per_hour:,.0f} an hour ({slope.low:,.0f} to {slope.high:,.0f}, 99 %) over"
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


def _add_age(case: cases.Case, draft: _base.Draft, growth: trends.Slope | None) -> None:
    """Add since how many hours they grow: back along the slope, but not beyond the boot."""
    booted = (case.facts("host") or {}).get("", {}).get("booted_at")
    uptime = hours = None
    if isinstance(booted, int) and booted * SECOND_US < draft.window.end_us:
        uptime = (draft.window.end_us - booted * SECOND_US) / HOUR_US
    if growth is not None:
        hours = draft.magnitude["dying"] / growth.per_hour
        duration = times.format_duration(3600 * hours) if hours < 3 else f"{hours:.0f} h"
        text = f"at this rate, the growth began {duration} ago"
        if uptime is not None and hours > uptime * 1.25:
            text = (
                f"at this rate, they would need {duration}, but the host booted {uptime:.0f} h ago: the"
                " growth was faster before"
            )
        elif uptime is not None:
            text += f"; the host booted {uptime:.0f} h ago"
    elif uptime is not None:
        text = f"the host booted {uptime:.0f} h ago: they are not older"
    else:
        return
    draft.magnitude["age_hours"] = min(age for age in (hours, uptime) if age is not None)
    draft.support(
        text,
        "host",
        uptime_hours=None if uptime is None else round(uptime, 2),
        hours_at_this_rate=None if hours is None else round(hours, 2),
    )


def _read_time_evidence(count: _Count, growth: trends.Slope | None) -> Evidence:
    """Report how long the root's statistics take to read, and when that will outlast the watchdog."""
    read = count.stat_read_us
    text = f"the last read of the root cgroup's statistics took {read / 1e6:.3f} s"
    values: dict[str, Value] = {"stat_read_seconds": round(read / 1e6, 6)}
    if read >= WATCHDOG_US:
        text += ": longer than the 5 s of a network driver's watchdog"
    elif read >= SLOW_READ_US and growth is not None and growth.per_hour > 0:
        # Linear in the zombies: dd8657b6c1cb measured 0.7 s at 10,000, before it.
        hours = count.dying * (WATCHDOG_US / read - 1) / growth.per_hour
        values["hours_to_watchdog"] = round(hours, 1)
        when = f"in {hours:,.0f} h" if hours <= FAR_HOURS else "in more than a year"
        text += f"; at this rate it reaches the 5 s of a network driver's watchdog {when}"
    elif read < SLOW_READ_US:
        text += ": this kernel does not visit every cgroup for it"
    return Evidence(text, SIGNAL, values)


def _find_parent(case: cases.Case, dying: int) -> tuple[str, list[Evidence]]:
    """Find the parent of the zombies; it is returned only if it has most of them."""
    window = _host_state.recent_window(case, Need.MEMORY_CGROUP_PARENTS)
    rows = trends.table(case.ring, case.host, Need.MEMORY_CGROUP_PARENTS, window)
    if not rows:
        return "", []
    cgroup, row = max(rows.items(), key=lambda item: (item[1]["dying"], item[0]))
    if row["dying"] <= 0:
        return "", []
    is_exact = row["at_least"] == row["at_most"]
    bounds = "" if is_exact else f" ({row['at_least']:,} to {row['at_most']:,})"
    evidence = Evidence(
        f"{row['dying']:,} of them{bounds} are below {cgroup}; in use there: {row['in_use']:,}",
        "memory-cgroup-parents",
        {
            "cgroup": cgroup,
            "dying": row["dying"],
            "at_least": row["at_least"],
            "at_most": row["at_most"],
            "share_of_all_dying": round(row["dying"] / max(1, dying), 3),
        },
        window,
        "overnight census",
    )
    return cgroup if 2 * row["dying"] >= dying else "", [evidence]


def _find_creators(case: cases.Case, span: Window, growth: trends.Slope) -> list[_Creator]:
    """Find parents under which cgroups die, those whose rate matches the growth best first."""
    interval = min(INTERVAL_US, max(MIN_INTERVAL_US, (span.end_us - span.begin_us) // 6))
    births = trends.growth(
        case.ring, case.host, "cgroup-births", span, ("born", "died"), interval, from_zero=True
    )
    known = _creators.read(case)
    counters = [
        (creator.label, creator.cgroup or key, counted, "born", "died")
        for key, counted in births.keys.items()
        if key != cgroupchurn.UNWATCHED
        for creator in (_creators.find(known, key),)
    ]
    # Births of services appear below the slice they all share: their own counters tell them apart.
    restarts = trends.growth(case.ring, case.host, "unit-restarts", span, ("restarts",), interval)
    counters += [
        (unit, "", counted, "restarts", "restarts") for unit, counted in restarts.keys.items()
    ]
    creators = []
    for unit, cgroup, counted, born, died in counters:
        count, hours = counted.total(died), float(counted.seconds.sum()) / 3600
        if count < 3 or not hours:
            continue  # hardly any died
        low, high = (bound / hours for bound in diff.poisson_bounds(round(count)))
        creators.append(
            _Creator(
                unit=unit,
                cgroup=cgroup,
                births_per_hour=counted.per_hour(born),
                deaths_per_hour=count / hours,
                ratio=count / hours / growth.per_hour,
                low=low / max(growth.high, 1e-9),
                high=high / max(growth.low, 1e-9),
            )
        )
    return sorted(
        creators,
        key=lambda creator: (
            not creator.fits,
            cgroups.is_shared_slice(creator.cgroup),
            creator.distance,
            creator.unit,
        ),
    )


DETECTORS = (ZombieCgroups(),)
