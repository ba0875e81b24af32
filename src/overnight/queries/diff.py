"""Compare a window with a baseline by rates, with a confidence interval for each change.

Counts are divided by the core-seconds they were sampled in, so that windows of different length and
hosts of different size compare. The interval is that of the sampling: how far the true CPU use in
these two windows may be from the counts (Poisson, Byar's approximation of Garwood's exact bounds,
combined by Newcombe's square-and-add). Whether a change is unusual for the host is another question
and needs many windows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from overnight.model.flame import FrameKind
from overnight.model.selection import Coverage, Selection, Window
from overnight.queries import reader, top
from overnight.store import parquet, segments


@dataclasses.dataclass(frozen=True)
class Change:
    """One function. Rates are cores used per core: 0.5 is half of every core.

    If sampling rate or cores are unknown, rates are shares of all samples.
    """

    name: str
    module: str
    kernel: bool
    samples: int
    baseline_samples: int
    rate: float
    baseline_rate: float
    difference: float
    low: float
    high: float
    status: str  # "new", "vanished", "more", "less"; "unclear" if the interval includes zero
    own_difference: float  # of the samples that end in it


@dataclasses.dataclass(frozen=True)
class Difference:
    """Changes, ordered by the end of their interval that is nearer to zero, the largest first."""

    changes: tuple[Change, ...]
    others: int
    coverage: Coverage
    baseline: Coverage

    def rank_own(self, most: int) -> list[Change]:
        """Return changes by what each function did itself: its callers all have the same change."""
        clear = [each for each in self.changes if each.status != "unclear"]
        return sorted(clear or self.changes, key=lambda each: -abs(each.own_difference))[:most]

    def as_json(self) -> dict[str, object]:
        return {"schema": "overnight.diff/1", **dataclasses.asdict(self)}


def diff(
    source: reader.Reader,
    window: Window,
    baseline: Window,
    chosen: Selection = Selection(),
    *,
    hosts: Iterable[str] = (),
    baseline_hosts: Iterable[str] = (),
    limit: int = 50,
) -> Difference:
    """Compare every function of either window, also those that vanished."""
    names = source.hosts(hosts)
    wanted = tuple(baseline_hosts)
    others = source.hosts(wanted) if wanted else names
    chosen = source.resolved(chosen, names, window, source.metas(others, baseline))
    numbers: dict[_Frame, int] = {}
    now, coverage = _count(source, names, window, chosen, numbers)
    before, base = _count(source, others, baseline, chosen, numbers)
    sums = [_sum(pieces, n, len(numbers)) for pieces in (now, before) for n in (1, 2)]
    columns = _compare(sums, coverage, base)
    frames = list(numbers)
    kept = tuple(_change(frames[i], columns, i) for i in _select_largest(columns, frames, limit))
    return Difference(kept, len(frames) - len(kept), coverage, base)


Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
_Frame = tuple[str, str, int]
_Piece = tuple[Integers, Integers, Integers]  # frames' numbers, own and whole samples
_Columns = dict[str, npt.NDArray[np.number]]  # the numbers of every function, by field of Change


def _count(
    source: reader.Reader,
    hosts: tuple[str, ...],
    window: Window,
    chosen: Selection,
    numbers: dict[_Frame, int],
) -> tuple[list[_Piece], Coverage]:
    """Count samples by frame; add the frames to `numbers`."""
    chosen = source.resolved(chosen, hosts, window)
    parts = list(source.parts_or_sums(hosts, window, chosen))
    counted = [top.function_columns(part) for part in parts if isinstance(part, reader.Part)]
    if summed := [part.segment for part in parts if isinstance(part, reader.Sums)]:
        counted.append(_read_sums(summed))
    pieces = [
        (np.array([numbers.setdefault(f, len(numbers)) for f in frames], np.int64), own, whole)
        for frames, own, whole in counted
    ]
    return pieces, source.cover_parts(hosts, window, parts, chosen)


def _read_sums(touched: list[segments.Segment]) -> tuple[list[_Frame], Integers, Integers]:
    """Read the functions of whole segments from the sums written at ingest."""
    rows = parquet.query(
        "SELECT name, module, kind, sum(own)::BIGINT AS own, sum(whole)::BIGINT AS whole "  # noqa: S608 - our own paths
        f"FROM {parquet.table(*(segment.path / 'frames.parquet' for segment in touched))} "
        f"WHERE kind <> {FrameKind.PROCESS} AND whole > 0 GROUP BY name, module, kind"
    )
    frames = zip(*(rows[name].tolist() for name in ("name", "module", "kind")), strict=True)
    return list(frames), rows["own"], rows["whole"]


def _sum(pieces: list[_Piece], column: int, size: int) -> Integers:
    total = np.zeros(size, np.int64)
    for piece in pieces:
        np.add.at(total, piece[0], piece[column])
    return total


def _compare(sums: list[Integers], coverage: Coverage, base: Coverage) -> _Columns:
    own, whole, own_before, before = sums
    # The share of the cores' time that one sample stands for; of the samples if the rate is unknown.
    if coverage.capacity and base.capacity:
        unit, base_unit = 1 / coverage.capacity, 1 / base.capacity
    else:
        unit, base_unit = 1 / (coverage.samples or 1), 1 / (base.samples or 1)
    rate = whole.astype(np.float64) * unit
    base_rate = before.astype(np.float64) * base_unit
    low, high = (bound * unit for bound in _bounds(whole))
    base_low, base_high = (bound * base_unit for bound in _bounds(before))
    difference = rate - base_rate
    return {
        "samples": whole,
        "baseline_samples": before,
        "rate": rate,
        "baseline_rate": base_rate,
        "difference": difference,
        "low": difference - np.hypot(rate - low, base_high - base_rate),
        "high": difference + np.hypot(high - rate, base_rate - base_low),
        "own_difference": own * unit - own_before * base_unit,
    }


def _select_largest(columns: _Columns, frames: list[_Frame], limit: int) -> list[int]:
    """Return the changes to show in order; equal ones by name."""
    low, high = columns["low"], columns["high"]
    # The smallest size of the change at 95 % confidence; zero if there may be none.
    least = np.minimum(np.abs(low), np.abs(high))
    sure = -np.where((low <= 0) & (high >= 0), 0.0, least)
    size = -np.abs(columns["difference"])
    order = np.lexsort((size, sure))
    if len(order) > limit > 0:
        last = order[limit - 1]
        level = (sure == sure[last]) & (size == size[last])
        order = np.concatenate([order[:limit][~level[order[:limit]]], np.flatnonzero(level)])
    return sorted(order.tolist(), key=lambda i: (sure[i], size[i], frames[i]))[:limit]


def _change(frame: _Frame, columns: _Columns, i: int) -> Change:
    numbers = {name: column[i].item() for name, column in columns.items()}
    if numbers["low"] <= 0 <= numbers["high"]:
        status = "unclear"
    elif numbers["difference"] > 0:
        status = "more" if numbers["baseline_samples"] else "new"
    else:
        status = "less" if numbers["samples"] else "vanished"
    name, module, kind = frame
    return Change(name, module, kind == FrameKind.KERNEL, status=status, **numbers)


def poisson_bounds(count: int) -> tuple[float, float]:
    """Return the 95 % interval of a Poisson mean after `count` was observed.

    Byar's approximation of the exact (Garwood) bounds: the upper one within 1 % of it, the lower one
    within 1 % from 5 on and within 0.02 samples below.
    """
    lower, upper = _bounds(np.array([count]))
    return float(lower[0]), float(upper[0])


def _bounds(count: Integers) -> tuple[Floats, Floats]:
    z = 1.959964
    more = count + 1.0
    upper = more * (1 - 1 / (9 * more) + z / (3 * np.sqrt(more))) ** 3
    some = np.maximum(count, 1.0)
    lower = some * (1 - 1 / (9 * some) - z / (3 * np.sqrt(some))) ** 3
    return np.where(count > 0, np.maximum(0.0, lower), 0.0), upper
