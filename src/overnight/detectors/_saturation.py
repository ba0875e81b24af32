"""Stretches in which a core was at its limit while the others had room, to the second.

From the flight recorder's seconds of every core; where these are missing, from the samples, of which a
busy core has one each tick.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from overnight.detectors import _event_location as place
from overnight.model.selection import Window
from overnight.queries import heatmap, signals

if TYPE_CHECKING:
    from overnight.queries import case as cases

__all__ = [
    "Series",
    "Stretch",
    "baseline_stretches",
    "near_event",
    "series",
    "stretches",
    "usual_percent",
]

# incident.md: any core at 95 % for two seconds in a row. The watch waits for three, as it must not cry
# every minute; here there is an event already.
BUSY, KERNEL = 95.0, 90.0
SECONDS = 2.0
# Where the others are busy, too, no mean hides anything: the host is loaded.
OTHERS = 50.0
# Of the core that the event names it is still worth saying, unless all the others were at their limit, too,
# and even then where that core has room otherwise: on two cores anybody fills "all the others".
OTHERS_OF_EVENT = BUSY
ROOM = 80.0
# Samples of a core that is full: some are lost, and a second has a few more or less of them.
SAMPLED_BUSY, SAMPLED_KERNEL = 90.0, 85.0
# One second in which the core took a breath does not end a stretch.
BREATH_US = 1_500_000
# Causes come first; clocks of looks and of the kernel log differ by up to a look.
AFTER_US = 2_000_000
# A driver resets, and a watchdog barks, up to this long after the core was given back.
REACH_US = 10_000_000

Floats = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Series:
    """Percent of each core's time, `busy[interval][core]`; `source` says of what."""

    source: str
    cores: tuple[int, ...]
    begin_us: npt.NDArray[np.int64]
    end_us: npt.NDArray[np.int64]
    busy: Floats
    kernel: Floats
    softirq: Floats
    covered_seconds: float

    @property
    def mean_percent(self) -> float:
        """What a dashboard shows: all cores, all seconds."""
        return float(np.nanmean(self.busy)) if np.isfinite(self.busy).any() else math.nan


@dataclasses.dataclass(frozen=True)
class Stretch:
    """One core at its limit; percents are of its own time, `others` of the other cores'."""

    core: int
    begin_us: int
    end_us: int
    busy_percent: float
    kernel_percent: float
    softirq_percent: float
    others_percent: float
    mean_percent: float  # over all cores in the same seconds

    @property
    def seconds(self) -> float:
        """Its length."""
        return (self.end_us - self.begin_us) / 1e6

    @property
    def window(self) -> Window:
        """The same, to ask with."""
        return Window(self.begin_us, self.end_us)


def series(case: cases.Case, window: Window) -> Series | None:
    """Every core's seconds; None where neither the recorder nor the samples tell."""
    told = case.cores(window)
    if len(told.begin_us) and told.cores:
        return _from_ticks(told)
    if not case.has_profile(window):
        return None
    return _from_samples(case, window)


def _from_ticks(told: signals.Cores) -> Series:
    return Series(
        "cpu",
        told.cores,
        told.begin_us,
        told.end_us,
        told.values["busy"],
        told.values["kernel"],
        told.values["softirq"],
        told.coverage.covered_seconds,
    )


def _from_samples(case: cases.Case, window: Window) -> Series | None:
    maps = {
        mode: heatmap.by_core(case.profiles, window, hosts=(case.host,), mode=mode)
        for mode in ("busy", "kernel", "softirq")
    }
    busy = maps["busy"]
    if not busy.full:
        return None
    cores = [int(row) for row in busy.rows]
    begin = busy.begin_us + np.arange(len(busy.values), dtype=np.int64) * busy.step_us
    percent: dict[str, Floats] = {
        mode: one.values.astype(np.float64) * (100.0 / one.full) for mode, one in maps.items()
    }
    return Series(
        "profiles",
        tuple(cores),
        begin,
        begin + busy.step_us,
        percent["busy"],
        percent["kernel"],
        percent["softirq"],
        busy.coverage.recorded_seconds,
    )


def stretches(
    told: Series,
    least_seconds: float = SECONDS,
    *,
    event_core: int = -1,
    others_of_event: float = OTHERS_OF_EVENT,
) -> list[Stretch]:
    """All of them, the longest first. Of the event's own core the others may be busier."""
    count = np.isfinite(told.busy).sum(axis=1, keepdims=True)
    whole = np.nansum(told.busy, axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        others = np.where(count > 1, (whole - told.busy) / np.maximum(count - 1, 1), 0.0)
        limits = (BUSY, KERNEL) if told.source == "cpu" else (SAMPLED_BUSY, SAMPLED_KERNEL)
        room = np.where(np.array(told.cores) == event_core, others_of_event, OTHERS)
        full = ((told.busy >= limits[0]) | (told.kernel >= limits[1])) & (others < room)
    found = []
    for column in np.flatnonzero(full.any(axis=0)).tolist():
        rows = np.flatnonzero(full[:, column])
        breaks = np.flatnonzero(told.begin_us[rows[1:]] - told.end_us[rows[:-1]] > BREATH_US) + 1
        for run in np.split(rows, breaks):
            all_ = slice(int(run[0]), int(run[-1]) + 1)
            begin, end = int(told.begin_us[run[0]]), int(told.end_us[run[-1]])
            if (told.end_us[run] - told.begin_us[run]).sum() < (least_seconds - 0.2) * 1e6:
                continue
            found.append(
                Stretch(
                    told.cores[column],
                    begin,
                    end,
                    float(np.nanmean(told.busy[all_, column])),
                    float(np.nanmean(told.kernel[all_, column])),
                    float(np.nanmean(told.softirq[all_, column])),
                    float(np.nanmean(others[all_, column])),
                    float(np.nanmean(told.busy[all_])),
                )
            )
    return sorted(found, key=lambda one: (-one.seconds, one.begin_us, one.core))


def near_event(case: cases.Case) -> tuple[Series | None, list[Stretch]]:
    """The hot stretch's, and those of them that began before the event or with it.

    Those that reach the event come first, the longest of them before others: a core may have been full
    for longer some seconds earlier, and for another reason.
    """
    told = series(case, case.window)
    if told is None:
        return None, []
    latest = case.event.time_us + AFTER_US
    own = place.event_place(case).core
    usual = usual_percent(case, own)
    others = math.inf if usual is not None and usual < ROOM else OTHERS_OF_EVENT
    found = stretches(told, event_core=own, others_of_event=others)
    near = [one for one in found if one.begin_us <= latest]
    reach = case.event.time_us - REACH_US
    return told, sorted(near, key=lambda one: (one.end_us < reach, -one.seconds))


def baseline_stretches(case: cases.Case) -> tuple[float, list[Stretch]]:
    """How many seconds of the baseline are known, and the stretches in it."""
    told = series(case, case.baseline)
    return (told.covered_seconds, stretches(told)) if told is not None else (0.0, [])


def usual_percent(case: cases.Case, core: int) -> float | None:
    """How busy a core was in the baseline; None where nobody knows."""
    told = series(case, case.baseline)
    if told is None or core not in told.cores:
        return None
    busy = told.busy[:, told.cores.index(core)]
    return float(np.nanmean(busy)) if np.isfinite(busy).any() else None
