"""Times in which one core was saturated and stood out from the others, from the recorder's seconds or from samples."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from overnight.detectors import _base, _event_location
from overnight.model import cpu
from overnight.model.finding import Need
from overnight.model.selection import Window
from overnight.model.times import SECOND_US
from overnight.queries import freshness, heatmap

if TYPE_CHECKING:
    from overnight.model.event import Event
    from overnight.queries import case as cases

MODES = ("busy", "kernel", "softirq")
# incident.md: any core at 95 % for two seconds in a row. The watch waits for three, because it must not
# report every minute; here there is an event already.
BUSY, KERNEL = 100 * cpu.FULL, 100 * cpu.FULL_KERNEL
SECONDS = 2.0
# Where the others are busy, too, a core stands out only in the kernel: programs fill cores in user space all the time.
OTHERS = 100 * cpu.ROOM
# The event's own core is reported even then, unless all the others were saturated, too; and even in that
# case where the core has room in the baseline: on two cores any process saturates "all the others".
OTHERS_OF_EVENT = BUSY
ROOM = 80.0
# Samples of a saturated core: some are lost, and a second has a few more or less of them.
SAMPLED_BUSY, SAMPLED_KERNEL = 90.0, 85.0
# One second of rest does not end a stretch.
PAUSE_US = 1_500_000
# Causes come first; the clocks of readings and of the kernel log differ by up to one reading.
AFTER_US = 2_000_000
# A driver resets, and a watchdog fires, up to this long after the core was free again.
REACH_US = 10_000_000
# Stretches as long as this one that the baseline predicts for the incident window: from here on it is what
# this host always does. For the event's own core the finding stays, with less confidence.
ORDINARY = 0.2

Floats = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Series:
    """Percent of each core's time, `busy[interval][core]`; `source` names the signal or `profiles`."""

    source: str
    cores: tuple[int, ...]
    begin_us: npt.NDArray[np.int64]
    end_us: npt.NDArray[np.int64]
    covered_seconds: float
    busy: Floats
    kernel: Floats
    softirq: Floats

    @property
    def mean_percent(self) -> float:
        """The mean over all cores and seconds, as a dashboard shows it."""
        return float(np.nanmean(self.busy)) if np.isfinite(self.busy).any() else math.nan

    def core_percent(self, core: int | None) -> float | None:
        """Return how busy a core was on average; None where that was not recorded."""
        if core not in self.cores:
            return None
        busy = self.busy[:, self.cores.index(core)]
        return float(np.nanmean(busy)) if np.isfinite(busy).any() else None


@dataclasses.dataclass(frozen=True)
class Stretch:
    """One saturated core; percents are of its own time, those of `others` of the other cores' time."""

    core: int
    window: Window
    busy_percent: float
    kernel_percent: float
    softirq_percent: float
    others_percent: float
    others_kernel_percent: float  # the median of theirs
    mean_percent: float  # over all cores in the same seconds

    @property
    def seconds(self) -> float:
        return self.window.seconds

    @property
    def is_hidden(self) -> bool:
        """Whether the others had room, so that an average over all cores shows a quiet host."""
        return self.others_percent < OTHERS

    @property
    def stands_out(self) -> bool:
        """Whether it was in the kernel while most others, however busy, were not."""
        return self.kernel_percent >= float(_kernel_limit(self.others_kernel_percent))

    def seconds_of_wait(self, event: Event, waited: float) -> float:
        """Return how much of a wait that ended with the event it covers; less than 0: by how much it misses it."""
        begin_us = max(self.window.begin_us, event.time_us - waited * SECOND_US)
        return (min(self.window.end_us, event.time_us) - begin_us) / SECOND_US

    def until(self, event: Event) -> Stretch:
        """Return the part before an event: what ran after it did not cause it.

        Watches date some events to the begin of the stretch; that is then returned as a whole.
        """
        begin_us = self.window.begin_us
        if not begin_us + SECONDS * SECOND_US <= event.time_us < self.window.end_us:
            return self
        return dataclasses.replace(self, window=Window(begin_us, event.time_us))


@dataclasses.dataclass(frozen=True)
class Saturation:
    """All saturated cores around an event, one stretch each: the event's core first, then the longest."""

    series: Series
    location: _event_location.Location
    stretches: tuple[Stretch, ...]
    ordinary: int  # cores left out because the baseline shows the same
    baseline: Series | None
    baseline_stretches: tuple[Stretch, ...]

    def expected(self, stretch: Stretch, window_seconds: float, *, same_core: bool) -> float:
        """Return how many stretches as long as this one the baseline predicts for the incident window."""
        if self.baseline is None or self.baseline.covered_seconds <= 0:
            return 0.0
        # A second less is as long, because readings are a second apart.
        alike = [
            other
            for other in self.baseline_stretches
            if other.seconds >= stretch.seconds - 1
            and (not same_core or other.core == stretch.core)
        ]
        return len(alike) * window_seconds / self.baseline.covered_seconds


def find_saturation(case: cases.Case) -> Saturation:
    """Find the saturated cores around the event; raise MissingError where core usage was not recorded.

    For each core, that is the stretch with most of the wait that the event reports. If it reports none, it is the longest
    stretch that reaches the event: a longer one before it may have another reason.
    """
    series = require_series(case)
    location = _event_location.find_location(case)
    base = read_series(case, case.baseline)
    saturation = Saturation(
        series, location, (), 0, base, tuple(_find_stretches(base)) if base else ()
    )
    percent = base.core_percent(location.core) if base else None
    others = math.inf if percent is not None and percent < ROOM else OTHERS_OF_EVENT
    reach = case.event.time_us - REACH_US
    stretches = _find_stretches(series, event_core=location.core, others_of_event=others)
    waited, _ = _event_location.read_waits(case.event)

    def rank(stretch: Stretch) -> tuple[bool, float, float]:
        covered = stretch.seconds_of_wait(case.event, waited) if waited else 0.0
        return stretch.window.end_us < reach, -covered, -stretch.seconds

    stretches.sort(key=rank)
    first: dict[int, Stretch] = {}
    for stretch in stretches:
        if stretch.window.begin_us <= case.event.time_us + AFTER_US:
            first.setdefault(stretch.core, stretch)
    chosen = [
        stretch
        for stretch in first.values()
        if stretch.core == location.core
        or saturation.expected(stretch, case.window.seconds, same_core=False) < ORDINARY
    ]
    chosen.sort(key=lambda stretch: (stretch.core != location.core, -stretch.seconds, stretch.core))
    return dataclasses.replace(
        saturation, stretches=tuple(chosen), ordinary=len(first) - len(chosen)
    )


def require_series(case: cases.Case) -> Series:
    """Read every core's seconds of the incident window, or raise MissingError."""
    series = read_series(case, case.window)
    if series and series.source == "cpu" and freshness.explain_silence(case, Need.CPU):
        # Stacks may show the seconds that the recorder's readings miss.
        series = _read_sampled(case, case.window) or series
    if series is None:
        text = "core usage was not recorded around the event: neither the cpu signal nor samples"
        raise _base.MissingError(text, Need.CPU, Need.PROFILES)
    return series


def read_series(case: cases.Case, window: Window) -> Series | None:
    """Read every core's seconds; None where neither the recorder nor the samples have them."""
    cores = case.cores(window)
    if len(cores.begin_us) and cores.cores:
        covered = cores.coverage.covered_seconds
        percents = [cores.values[mode] for mode in MODES]
        return Series("cpu", cores.cores, cores.begin_us, cores.end_us, covered, *percents)
    return _read_sampled(case, window)


def _read_sampled(case: cases.Case, window: Window) -> Series | None:
    if not case.has_profile(window):
        return None
    maps = [heatmap.by_core(case.profiles, window, hosts=(case.host,), mode=mode) for mode in MODES]
    busy = maps[0]
    if not busy.full:
        return None
    begin = busy.begin_us + np.arange(len(busy.values), dtype=np.int64) * busy.step_us
    percents = [drawn.values.astype(np.float64) * (100.0 / drawn.full) for drawn in maps]
    covered = busy.coverage.recorded_seconds
    rows = tuple(map(int, busy.rows))
    return Series("profiles", rows, begin, begin + busy.step_us, covered, *percents)


def _find_stretches(
    series: Series, *, event_core: int | None = None, others_of_event: float = OTHERS_OF_EVENT
) -> list[Stretch]:
    """Find all stretches, the longest first; for the event's core the others may be busier."""
    count = np.isfinite(series.busy).sum(axis=1, keepdims=True)
    whole = np.nansum(series.busy, axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        others = np.where(count > 1, (whole - series.busy) / np.maximum(count - 1, 1), 0.0)
        limits = (BUSY, KERNEL) if series.source == "cpu" else (SAMPLED_BUSY, SAMPLED_KERNEL)
        is_event_core = np.array([core == event_core for core in series.cores], bool)
        room = np.where(is_event_core, others_of_event, OTHERS)
        full = (series.busy >= limits[0]) | (series.kernel >= limits[1])
        kernel = np.nan_to_num(series.kernel)
        others_kernel = np.zeros_like(kernel)
        for column in np.flatnonzero(full.any(axis=0) & (len(series.cores) > 1)):
            others_kernel[:, column] = np.median(np.delete(kernel, column, axis=1), axis=1)
        saturated = full & ((others < room) | (kernel >= _kernel_limit(others_kernel)))
    stretches = [
        Stretch(
            series.cores[column],
            window,
            _mean(series.busy[rows, column]),
            _mean(series.kernel[rows, column]),
            _mean(series.softirq[rows, column]),
            _mean(others[rows, column]),
            _mean(others_kernel[rows, column]),
            _mean(series.busy[rows]),
        )
        for column in np.flatnonzero(saturated.any(axis=0)).tolist()
        for rows, window in split_runs(series, saturated[:, column], SECONDS)
    ]
    return sorted(
        stretches, key=lambda stretch: (-stretch.seconds, stretch.window.begin_us, stretch.core)
    )


def _mean(percents: Floats) -> float:
    return float(np.nanmean(percents))


def _kernel_limit(others_kernel: Floats | float) -> Floats:
    """Return the percent in the kernel from which a core stands out from its peers' median."""
    return np.maximum(100 * cpu.KERNEL_HEAVY, np.add(others_kernel, 100 * cpu.MORE_KERNEL))


def split_runs(
    series: Series, marked: npt.NDArray[np.bool_], min_seconds: float
) -> Iterator[tuple[slice, Window]]:
    """Yield the rows of each run of marked intervals that is long enough; a short pause does not end it."""
    rows = np.flatnonzero(marked)
    breaks = np.flatnonzero(series.begin_us[rows[1:]] - series.end_us[rows[:-1]] > PAUSE_US) + 1
    for run in np.split(rows, breaks):
        if (series.end_us[run] - series.begin_us[run]).sum() >= (min_seconds - 0.2) * 1e6:
            window = Window(int(series.begin_us[run[0]]), int(series.end_us[run[-1]]))
            yield slice(int(run[0]), int(run[-1]) + 1), window


def longest_run(marked: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return the rows of the longest run of marked ones, the first of several.

    >>> longest_run(np.array([True, False, True, True])).tolist()
    [2, 3]
    """
    rows = np.flatnonzero(marked).astype(np.int64)
    return max(np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1), key=len)
