"""What each core did between two readings, in the columns of mpstat.

The time between two readings is never divided: a reading belongs to the interval in which its middle lies.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

import numpy as np

from overnight import errors
from overnight.model import cpu, times
from overnight.model.selection import Window
from overnight.queries import signals

if TYPE_CHECKING:
    from overnight.store.ring import reader

# Read at a time: a night of 96 cores would take more than a gigabyte. No interval is longer.
CHUNK_US = times.HOUR_US
MARGIN_US = 15 * times.MINUTE_US  # sar reads every 10 minutes
MAX_ROWS = 500_000
LEAST = 0.8  # of the lines that the recorded seconds promise: readings are late now and then
# In steps. Readings are due at fixed instants: a late one makes one step longer and the next one shorter.
MAX_LATE, MIN_GAP = 0.75, 1.5


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """Percent of the ticks of one core, or of all together (None)."""

    core: int | None
    used: float  # neither idle nor iowait
    values: dict[str, float]  # by the columns of `cpu.MPSTAT` that were recorded


@dataclasses.dataclass(frozen=True, slots=True)
class Interval:
    """One reading, or several in a row. A core without a reading, such as one that is off-line, has no row."""

    begin_us: int
    end_us: int
    seconds: float  # by the monotonic clock
    readings: int
    all: Row
    cores: tuple[Row, ...]


@dataclasses.dataclass(frozen=True)
class History:
    """The intervals of a window, by time, and what is missing in it."""

    host: str
    window: Window
    cores: tuple[int, ...]  # all that were recorded
    intervals: tuple[Interval, ...]
    readings: int
    lost: int  # readings that are missing, also those of the gaps
    step_seconds: float  # median time between two readings
    absent: dict[int, int]  # in how many readings a core is missing, if it is
    gaps: tuple[tuple[int, int, str], ...]
    notes: tuple[str, ...]


def read_history(
    source: reader.Reader,
    host: str,
    window: Window,
    *,
    cores: Collection[int] = (),
    every_us: int | None = None,
    worst: bool = False,
    sort: str | None = None,
    progress: Callable[[float], None] = lambda _: None,
) -> History:
    """Read the intervals that touch the window: each reading, or the sum of those in each `every_us`.

    `worst`: of each interval one core in one reading. `sort` ranks the cores; None: they come by number, and the
    worst has the least idle time. `progress` gets the seconds that are read.
    """
    every = CHUNK_US if every_us is None else every_us
    if not 0 < every <= CHUNK_US:
        raise errors.UsageError(
            f"--every must be more than 0 and at most 1h (got {times.format_duration(every / 1e6)})",
            why="an interval has at least one reading, and is read at once",
            todo="--every 1m",
        )
    intervals: list[Interval] = []
    present: collections.Counter[int] = collections.Counter()
    read: list[signals.Rates] = []
    for part in parts(source, host, window, CHUNK_US // every * every):
        steps = signals.core_ticks(source, host, part, cpu.MODES, MARGIN_US)
        # The middle of a reading at an edge of the window may be outside.
        middle = ((steps.begin_us + steps.end_us) // 2).clip(window.begin_us, window.end_us - 1)
        own = (part.begin_us <= middle) & (middle < part.end_us) & (len(steps.keys) > 0)
        steps = dataclasses.replace(
            steps,
            begin_us=steps.begin_us[own],
            end_us=steps.end_us[own],
            seconds=steps.seconds[own],
            values={mode: ticks[own] for mode, ticks in steps.values.items()},
        )
        read.append(dataclasses.replace(steps, values={}))
        progress((part.end_us - window.begin_us) / 1e6)
        if not len(steps.seconds):
            continue
        known = (~np.isnan([*steps.values.values()])).any(axis=0).sum(axis=0).tolist()
        present.update(dict(zip(map(int, steps.keys), known, strict=True)))
        group = (middle[own] - window.begin_us) // every
        if every_us is None:
            group = np.arange(len(group))
        if not intervals:  # before any is made: 500,000 lines take 600 MB
            step = max(steps.usual_seconds, (every_us or 0) / 1e6)
            rows = 1 if worst else sum(not cores or int(key) in cores for key in steps.keys)
            _refuse_long(LEAST * rows * _count_seconds(source, host, window) / step)
        intervals += _make_intervals(steps, group, cores, sort, worst=worst)
        _refuse_long(sum(len(interval.cores) for interval in intervals))
    begins, ends, seconds = (
        np.concatenate([np.zeros(0, np.int64), *(getattr(steps, name) for steps in read)])
        for name in ("begin_us", "end_us", "seconds")
    )
    usual = max((steps.usual_seconds for steps in read), default=0.0) or 1.0
    notes = dict.fromkeys(note for steps in read for note in steps.coverage.notes)
    covered = signals.find_coverage(source, host, window, begins, ends, tuple(notes))
    # The first and the last reading are up to a step away from the edges of the recording.
    gaps = tuple(gap for gap in covered.missing if (gap[1] - gap[0]) / 1e6 >= MIN_GAP * usual)
    lost = int(np.floor(seconds / usual - MAX_LATE).clip(0).sum())
    return History(
        host=host,
        window=window,
        cores=tuple(sorted(present)),
        intervals=tuple(intervals),
        readings=len(seconds),
        lost=lost + sum(round((g[1] - g[0]) / 1e6 / usual) for g in gaps),
        step_seconds=usual,
        absent={
            core: len(seconds) - count
            for core, count in sorted(present.items())
            if count < len(seconds) and (not cores or core in cores)
        },
        gaps=gaps,
        notes=covered.notes,
    )


def _count_seconds(source: reader.Reader, host: str, window: Window) -> float:
    """Return the recorded seconds of a window."""
    spans = (
        (max(each.begin_us, window.begin_us), min(each.end_us, window.end_us))
        for each in source.stretches(host, window.begin_us)
    )
    return sum(max(end_us - begin_us, 0) for begin_us, end_us in spans) / 1e6


def _refuse_long(lines: float) -> None:
    if lines > MAX_ROWS:
        raise errors.UsageError(
            f"the answer is too long: about {lines:,.0f} lines, and at most {MAX_ROWS:,} are shown",
            why="all of them are held in memory",
            todo="choose a shorter window, --core LIST, --worst, or a longer --every",
        )


def parts(source: reader.Reader, host: str, window: Window, length_us: int) -> Iterator[Window]:
    """Yield the parts of a window in which something is recorded."""
    first, last = source.extent(host) or (0, 0)
    for begin_us in range(window.begin_us, window.end_us, length_us):
        part = Window(begin_us, min(begin_us + length_us, window.end_us))
        if first <= part.end_us and part.begin_us <= last:
            yield part


def _make_intervals(
    steps: signals.Rates,
    group: signals.Integers,
    cores: Collection[int],
    sort: str | None,
    *,
    worst: bool,
) -> Iterator[Interval]:
    """Yield the sum of the readings of each group, or of each the worst core in its worst reading."""
    starts = np.flatnonzero(np.diff(np.arange(len(group)) if worst else group, prepend=-1))
    ends = np.append(starts[1:], len(group))
    chosen = [k for k, key in enumerate(steps.keys) if not cores or int(key) in cores]
    if not chosen:
        return
    names = (None, *(int(steps.keys[k]) for k in chosen))
    ticks: dict[str, signals.Floats] = {}
    for mode, values in steps.values.items():
        there = np.logical_or.reduceat(~np.isnan(values), starts)
        sums = np.where(there, np.add.reduceat(np.nan_to_num(values), starts), np.nan)
        ticks[mode] = np.column_stack([np.nansum(sums, axis=1), sums[:, chosen]])
    columns = tuple(name for name, mode in cpu.MPSTAT.items() if mode in ticks)
    shares = _shares(ticks, columns)

    def add(modes: Collection[str]) -> signals.Floats:
        places = [n for n, name in enumerate(columns) if cpu.MPSTAT[name] in modes]
        return np.asarray(shares[:, :, places].sum(axis=2), np.float64)

    used = 100.0 - add(cpu.IDLE)
    rank = np.nan_to_num(used if sort is None else add((cpu.MPSTAT[sort],)), nan=-1.0)
    order = np.argsort(-rank[:, 1:], axis=1, kind="stable") + 1
    intervals = range(len(starts))
    if worst:
        # Of equally busy cores, one in the kernel is worse.
        rank += 1e-6 * np.nan_to_num(add(cpu.KERNEL))
        rank[:, 0] = -2.0
        order = rank.argmax(axis=1, keepdims=True)
        by_rank = np.lexsort((-rank.max(axis=1), group))
        intervals = by_rank[np.flatnonzero(np.diff(group[by_rank], prepend=-1))].tolist()
    elif sort is None:
        order.sort(axis=1)
    seconds = np.add.reduceat(steps.seconds, starts)
    for n in intervals:
        rows = []
        for k in (0, *order[n].tolist()):
            numbers = zip(columns, shares[n, k].round(2).tolist(), strict=True)
            known = {name: number for name, number in numbers if not math.isnan(number)}
            if known:
                rows.append(Row(names[k], round(used[n, k].item(), 2), known))
        if len(rows) > 1:
            yield Interval(
                int(steps.begin_us[starts[n]]),
                int(steps.end_us[ends[n] - 1]),
                round(seconds[n].item(), 6),
                int(ends[n] - starts[n]),
                rows[0],
                tuple(rows[1:]),
            )


def _shares(ticks: dict[str, signals.Floats], columns: tuple[str, ...]) -> signals.Floats:
    """Return percent of each total, by column on the last axis; NaN where no time passed."""
    total = np.sum([ticks[mode] for mode in cpu.TOTAL if mode in ticks], axis=0)
    own = dict(ticks)
    for mode, guest in (("user", "guest"), ("nice", "guest_nice")):
        if guest in ticks:  # the kernel does not count both at the same instant
            own[mode] = np.maximum(ticks[mode] - np.nan_to_num(ticks[guest]), 0.0)
    stacked = np.stack([own[cpu.MPSTAT[name]] for name in columns], axis=-1)
    return 100 * stacked / np.where(total > 0, total, np.nan)[:, :, None]
