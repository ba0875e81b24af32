"""Trends over hours: gauges, growth of counters, slopes with their uncertainty.

A signal that is recorded each second is not read for hours: its counters are sampled at intervals, and
the growth is their difference.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from overnight.model.selection import Window
from overnight.model.times import SECOND_US

if TYPE_CHECKING:
    from overnight.store.ring import frames, reader

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

# A counter is sampled if a reading is this near: the slowest such signal has one every 60 s.
NEAR_US = 65 * SECOND_US
BURST = 10.0  # times as fast as usual: a deploy, or a boot
MAX_POINTS = 400  # pairs of points grow with the square: 80,000 slopes take 2 ms
BATCHES = 8
# Two-sided 99 % points of Student's t for 1 to 7 degrees of freedom.
STUDENT_99 = (63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499)


@dataclasses.dataclass(frozen=True)
class Gauges:
    """One key's numbers by time; `boot` changes where the host rebooted."""

    time_us: Integers
    boot: Integers
    values: dict[str, Integers]

    def row_at(self, time_us: int) -> int:
        """Return the last row until a moment, else the first."""
        return max(0, int(np.searchsorted(self.time_us, time_us, "right")) - 1)


def gauges(
    source: reader.Reader,
    host: str,
    signal: str,
    window: Window,
    columns: Collection[str],
) -> Gauges:
    """Return all readings of a signal without keys, recorded every ten seconds or less often."""
    times: list[int] = []
    boots: list[int] = []
    values: dict[str, list[int]] = {name: [] for name in columns}
    known: dict[str, int] = {}
    for frame in source.numbers(host, signal, window.begin_us, window.end_us, ("",), columns):
        if "" not in frame.keys or not set(columns) <= set(frame.columns):
            continue
        for name in columns:
            series_us, numbers = frame.series("", name)
            values[name].extend(numbers)
        times.extend(series_us)
        boots.extend([known.setdefault(frame.boot, len(known))] * len(series_us))
    order = np.argsort(np.array(times, np.int64), kind="stable")
    return Gauges(
        np.array(times, np.int64)[order],
        np.array(boots, np.int64)[order],
        {name: np.array(numbers, np.int64)[order] for name, numbers in values.items()},
    )


def table(
    source: reader.Reader, host: str, signal: str, window: Window, largest: str = ""
) -> dict[str, dict[str, int]]:
    """Return each key's numbers in the last reading of a window; empty if there is none.

    With a column, those with the largest number in it: the recorder may have begun again to count.
    """
    frames = source.numbers(host, signal, window.begin_us, window.end_us)
    polled = sorted(
        (frame for frame in frames if len(frame.wall_us)), key=lambda frame: frame.wall_us[-1]
    )
    read = polled if largest else polled[-1:]
    rows = [row for frame in read for row in _rows(frame, len(frame.wall_us) - 1).items()]
    return dict(sorted(rows, key=lambda row: row[1][largest]) if largest else rows)


def _rows(frame: frames.Frame, reading: int) -> dict[str, dict[str, int]]:
    """Return the numbers of one reading by key and column."""
    rows: dict[str, dict[str, int]] = {}
    for k, key in enumerate(frame.keys):
        readings, own = frame.numbers_of(k)
        if reading in readings:
            at = own.start + readings.index(reading)
            rows[key] = {name: numbers[at] for name, numbers in frame.values.items()}
    return rows


@dataclasses.dataclass(frozen=True)
class Growth:
    """How much the counters of one key rose in each interval; one that fell was reset, and counts from zero."""

    key: str
    begin_us: Integers
    end_us: Integers
    seconds: Floats
    rises: dict[str, Floats]  # by column

    @property
    def window(self) -> Window:
        return Window(int(self.begin_us[0]), int(self.end_us[-1]))

    def part(self, first: int, last: int) -> Growth:
        """Return the growth in some of the intervals, both included."""
        return self._select(slice(first, last + 1))

    def without_bursts(self, column: str) -> Growth:
        """Return the intervals in which a column rose no more than ten times as fast as usual."""
        rates = self.rises[column] / self.seconds
        calm = rates <= BURST * np.median(rates)
        return self._select(calm) if calm.any() else self

    def _select(self, some: slice | npt.NDArray[np.bool_]) -> Growth:
        rises = {column: numbers[some] for column, numbers in self.rises.items()}
        return Growth(self.key, self.begin_us[some], self.end_us[some], self.seconds[some], rises)

    def total(self, column: str) -> float:
        return float(self.rises[column].sum())

    def per_hour(self, column: str) -> float:
        """Return the mean over all intervals."""
        seconds = float(self.seconds.sum())
        return 3600 * self.total(column) / seconds if seconds else 0.0


@dataclasses.dataclass(frozen=True)
class GrowthByKey:
    """Each key's growth, and the seconds from the first reading to the last."""

    keys: dict[str, Growth]
    seconds: float


class _Reading(NamedTuple):
    wall_us: int
    monotonic_ns: int
    boot: str
    rows: dict[str, dict[str, int]]  # by key and column


def growth(
    source: reader.Reader,
    host: str,
    signal: str,
    window: Window,
    columns: Collection[str],
    every_us: int,
    *,
    pivot_us: int = 0,
    from_zero: bool = False,
) -> GrowthByKey:
    """Sample counters at both ends of a window, every `every_us` between, and at `pivot_us` if given.

    `from_zero`: a new key began at zero, as with sources that forget idle keys; otherwise it is unknown
    how much of its number is new, and it counts from its first reading.
    """
    extent = source.extent(host)
    begin_us = max(window.begin_us, extent[0]) if extent else window.begin_us
    pivot = min(pivot_us or window.end_us, window.end_us)
    ends = {*range(pivot, begin_us, -every_us), *range(pivot, window.end_us, every_us)}
    spans = [(at - NEAR_US, at, -1) for at in sorted({*ends, window.end_us})]
    readings: dict[tuple[str, int], _Reading] = {}
    # The last reading of each span, and the first of all.
    for begin, end, n in [*spans, (begin_us, begin_us + NEAR_US, 0)]:
        frames = [
            frame
            for frame in source.numbers(
                host, signal, max(begin, begin_us), min(end, window.end_us), None, columns
            )
            if len(frame.wall_us) and set(columns) <= set(frame.columns)
        ]
        if frames:
            frame = (max if n else min)(frames, key=lambda frame: frame.wall_us[0])
            rows = _rows(frame, n % len(frame.wall_us))
            reading = _Reading(frame.wall_us[n], frame.monotonic_ns[n], frame.boot, rows)
            readings[reading.boot, reading.monotonic_ns] = reading
    ordered = sorted(readings.values(), key=lambda reading: reading.wall_us)
    pairs = [
        (before, after)
        for before, after in itertools.pairwise(ordered)
        if before.boot == after.boot and after.monotonic_ns > before.monotonic_ns
    ]
    keys = sorted({key for reading in ordered for key in reading.rows}) if pairs else []
    by_key = {key: _measure_growth(key, pairs, columns, from_zero) for key in keys}
    return GrowthByKey(by_key, sum(map(_seconds_between, pairs)))


def _seconds_between(pair: tuple[_Reading, _Reading]) -> float:
    return (pair[1].monotonic_ns - pair[0].monotonic_ns) / 1e9


def _measure_growth(
    key: str, pairs: list[tuple[_Reading, _Reading]], columns: Collection[str], from_zero: bool
) -> Growth:
    rises: dict[str, list[float]] = {name: [] for name in columns}
    for pair in pairs:
        before, after = (reading.rows.get(key) for reading in pair)
        for name in columns:
            high = after[name] if after else 0
            low = before[name] if before else 0 if from_zero else high
            rises[name].append(float(high - low if high >= low else high))
    return Growth(
        key,
        np.array([before.wall_us for before, _ in pairs], np.int64),
        np.array([after.wall_us for _, after in pairs], np.int64),
        np.array(list(map(_seconds_between, pairs)), np.float64),
        {name: np.array(numbers, np.float64) for name, numbers in rises.items()},
    )


@dataclasses.dataclass(frozen=True)
class Slope:
    """Growth per hour with its 99 % interval; the hours and readings it is based on."""

    per_hour: float
    low: float
    high: float
    hours: float
    points: int


def slope(time_us: Integers, values: npt.NDArray[np.integer]) -> Slope | None:
    """Estimate the slope by Theil and Sen: the median over all pairs, robust against outliers.

    The interval comes from the growth in eight consecutive parts (batch means, Student's t): a leaking
    count is a sum, so its values are not independent, and the interval of an ordinary regression is
    several times too narrow. None for fewer than three readings.
    """
    if len(time_us) < 3 or time_us[-1] <= time_us[0]:
        return None
    hours = (time_us - time_us[0]) / 3.6e9
    pick = np.unique(np.linspace(0, len(hours) - 1, min(len(hours), MAX_POINTS)).astype(np.int64))
    x, y = hours[pick], values[pick].astype(np.float64)
    i, j = np.triu_indices(len(x), 1)
    apart = x[j] - x[i]
    far = apart > 0
    per_hour = float(np.median((y[j] - y[i])[far] / apart[far]))
    edges = np.unique(
        np.linspace(0, len(x) - 1, min(BATCHES, max(2, len(x) // 3)) + 1).astype(np.int64)
    )
    rates = np.diff(y[edges]) / np.diff(x[edges])
    spread = float(rates.std(ddof=1)) if len(rates) > 1 else abs(per_hour)
    half = STUDENT_99[max(0, min(len(rates), BATCHES) - 2)] * spread / float(np.sqrt(len(rates)))
    return Slope(per_hour, per_hour - half, per_hour + half, float(hours[-1]), len(time_us))
