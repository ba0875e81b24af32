"""Counters of the flight recorder as rates and shares, each with its denominator."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from overnight import errors
from overnight.model import cpu
from overnight.model.times import MINUTE_US

if TYPE_CHECKING:
    from overnight.model.selection import Window
    from overnight.store.ring import frames as ring_frames
    from overnight.store.ring import reader

# What counts into each share of a core's ticks.
MODES = {
    "busy": cpu.BUSY,
    "kernel": cpu.KERNEL,
    "softirq": ("softirq",),
    "iowait": ("iowait",),
    "steal": cpu.STEAL,
    "idle": cpu.IDLE,
}
# Two readings further apart than this many median steps have others missing between them.
MAX_STEPS = 2.5
MARGIN_US = 2 * MINUTE_US  # how far outside the window the readings before and after it may be
MAX_CELLS = 200_000_000

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Coverage:
    """How much of a window was recorded. `missing`: begin and end in µs, and why."""

    window: Window
    covered_seconds: float
    missing: tuple[tuple[int, int, str], ...]
    notes: tuple[str, ...]  # what was damaged and skipped


@dataclasses.dataclass(frozen=True)
class Rates:
    """Counters per second. `values[column][interval][key]`: NaN where one of both readings lacks the key.

    An interval is the time between two readings, those that touch the window, measured by the monotonic
    clock: setting the wall clock does not distort a rate. A counter that fell was reset: NaN.
    """

    keys: tuple[str, ...]
    begin_us: Integers
    end_us: Integers
    seconds: Floats
    values: dict[str, Floats]
    coverage: Coverage
    # Median of the seconds, also of readings near the window; 0: there are none.
    usual_seconds: float = 0.0

    def of_first_key(self, column: str) -> Floats:
        """Return each interval's rate, for signals with one key; 0 where it is not known."""
        if column not in self.values or not self.keys:
            return np.zeros(len(self.end_us))
        return np.nan_to_num(self.values[column][:, 0])

    def rises(self, column: str) -> dict[str, float]:
        """Return how much the counter of each key rose; empty where the column was not recorded."""
        if column not in self.values:
            return {}
        totals = np.nansum(self.values[column] * self.seconds[:, None], axis=0)
        return dict(zip(self.keys, totals.tolist(), strict=True))


@dataclasses.dataclass(frozen=True)
class Cores:
    """Percent of each core's time. `values[mode][interval][core]`, as in Rates."""

    host: str
    denominator: str
    cores: tuple[int, ...]
    begin_us: Integers
    end_us: Integers
    values: dict[str, Floats]
    coverage: Coverage


def core_ticks(
    source: reader.Reader,
    host: str,
    window: Window,
    modes: Collection[str] = cpu.TOTAL,
    margin_us: int = MARGIN_US,
) -> Rates:
    """Return the ticks of each core between two readings, for the modes that were recorded; keys by number."""
    steps = _steps(source, host, "cpu", window, None, modes, margin_us)
    order = sorted(
        (n for n, key in enumerate(steps.keys) if key.isdecimal()), key=lambda n: int(steps.keys[n])
    )
    # The kernel corrects idle and iowait downwards now and then: negative time counts as 0.
    ticks = {name: np.maximum(values[:, order], 0.0) for name, values in steps.values.items()}
    return dataclasses.replace(steps, keys=tuple(steps.keys[n] for n in order), values=ticks)


def core_series(source: reader.Reader, host: str, window: Window) -> Cores:
    """Return what each core did between two readings, in percent of its own ticks."""
    steps = core_ticks(source, host, window)
    shape = (len(steps.begin_us), len(steps.keys))
    ticks = {name: steps.values.get(name, np.zeros(shape)) for name in cpu.TOTAL}
    total = sum(ticks.values(), np.zeros(shape))
    with np.errstate(divide="ignore", invalid="ignore"):
        values = {
            mode: np.where(
                total > 0, 100 * sum((ticks[n] for n in parts), np.zeros(shape)) / total, np.nan
            )
            for mode, parts in MODES.items()
        }
    return Cores(
        host,
        f"ticks of the core in /proc/stat between two readings: {', '.join(cpu.TOTAL)}",
        tuple(map(int, steps.keys)),
        steps.begin_us,
        steps.end_us,
        values,
        steps.coverage,
    )


def counter_rate(
    source: reader.Reader,
    host: str,
    signal: str,
    window: Window,
    *,
    keys: Collection[str] | None = None,
    columns: Collection[str] | None = None,
) -> Rates:
    """Return how fast counters rose, per second. Columns of different intervals need separate calls."""
    steps = _steps(source, host, signal, window, keys, columns)
    seconds = steps.seconds[:, None]
    values = {
        name: np.where(delta >= 0, delta / seconds, np.nan) for name, delta in steps.values.items()
    }
    return dataclasses.replace(steps, values=values)


def _steps(
    source: reader.Reader,
    host: str,
    signal: str,
    window: Window,
    keys: Collection[str] | None,
    columns: Collection[str] | None,
    margin_us: int = MARGIN_US,
) -> Rates:
    """Return the differences between consecutive readings, not yet divided by the seconds."""
    problems = len(source.problems)
    begin_us, end_us = window.begin_us - margin_us, window.end_us + margin_us
    frames = list(source.numbers(host, signal, begin_us, end_us, keys, columns))
    _refuse_mixed(signal, frames)
    names = tuple(dict.fromkeys(name for frame in frames for name in frame.columns))
    labels = tuple(sorted({key for frame in frames for key in frame.keys}))
    rows = sum(len(frame.wall_us) for frame in frames)
    if rows * max(1, len(labels)) * max(1, len(names)) > MAX_CELLS:
        raise errors.UsageError(
            f"the window is too long: {rows} readings of {len(labels)} keys",
            why=f"at most {MAX_CELLS} numbers are held in memory",
            todo="choose a shorter window, fewer keys (cores) or fewer columns",
        )
    wall, mono, boot = (np.empty(rows, np.int64) for _ in range(3))
    values = {name: np.zeros((rows, len(labels)), np.int64) for name in names}
    there = {name: np.zeros((rows, len(labels)), bool) for name in names}
    boots: dict[str, int] = {}
    place = {key: n for n, key in enumerate(labels)}
    at = 0
    for frame in frames:
        end = at + len(frame.wall_us)
        wall[at:end], mono[at:end] = frame.wall_us, frame.monotonic_ns
        boot[at:end] = boots.setdefault(frame.boot, len(boots))
        _fill(values, there, at, frame, place)
        at = end
    order = np.lexsort((mono, boot))
    wall, mono, boot = wall[order], mono[order], boot[order]
    begin, after = wall[:-1], wall[1:]
    seconds = np.diff(mono) / 1e9
    same = (np.diff(boot) == 0) & (seconds > 0)
    median = float(np.median(seconds[same])) if same.any() else 0.0
    whole = same & (seconds <= MAX_STEPS * median)
    kept = np.flatnonzero(whole & (after > window.begin_us) & (begin < window.end_us))
    kept = kept[np.argsort(after[kept], kind="stable")]
    deltas = {}
    for name, numbers in values.items():
        # Nanoseconds need more than 53 bits: the difference comes first, then the rounding.
        both = there[name][order][kept] & there[name][order][kept + 1]
        delta = np.diff(numbers[order], axis=0)[kept].astype(np.float64)
        deltas[name] = np.where(both, delta, np.nan)
    begin, after, seconds = begin[kept], after[kept], seconds[kept]
    notes = tuple(source.problems[problems:])
    coverage = find_coverage(source, host, window, begin, after, notes)
    return Rates(labels, begin, after, seconds, deltas, coverage, median)


def _fill(
    values: dict[str, Integers],
    there: dict[str, npt.NDArray[np.bool_]],
    at: int,
    frame: ring_frames.Frame,
    place: dict[str, int],
) -> None:
    columns = {name: np.array(numbers, np.int64) for name, numbers in frame.values.items()}
    for k, key in enumerate(frame.keys):
        readings, own = frame.numbers_of(k)
        rows = at + np.array(readings, np.int64)
        for name, numbers in columns.items():
            values[name][rows, place[key]] = numbers[own]
            there[name][rows, place[key]] = True


def _refuse_mixed(signal: str, frames: list[ring_frames.Frame]) -> None:
    """Refuse columns that are read at different intervals: they have no readings in common."""
    sets = {frame.columns for frame in frames}
    if any(a != b and not set(a) & set(b) for a in sets for b in sets):
        raise errors.UsageError(
            f"the columns of {signal} are read at different intervals",
            why="; ".join(" ".join(columns) for columns in sorted(sets)),
            todo="choose columns of one interval at a time",
        )


def find_coverage(
    source: reader.Reader,
    host: str,
    window: Window,
    begin: Integers,
    end: Integers,
    notes: tuple[str, ...],
) -> Coverage:
    """Return the parts of the window that no interval covers, with the recorder's reasons."""
    missing: list[tuple[int, int, str]] = []
    gaps = source.gaps(host, window.begin_us, window.end_us)
    reached = window.begin_us
    for first, last in [*zip(begin.tolist(), end.tolist(), strict=True), (window.end_us,) * 2]:
        first_in, last_in = max(first, window.begin_us), min(last, window.end_us)
        if first_in > reached:
            reasons = [gap.why for gap in gaps if gap.begin_us < first_in and reached < gap.end_us]
            missing.append((reached, first_in, "; ".join(reasons) or "no reason is known"))
        reached = max(reached, last_in)
    absent = sum(last - first for first, last, _ in missing)
    covered = (window.end_us - window.begin_us - absent) / 1e6
    return Coverage(window, covered, tuple(missing), notes)
