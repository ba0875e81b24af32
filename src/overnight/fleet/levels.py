"""Rollups as columns, at three levels: as sent, in slots of 10 minutes, in slots of an hour. No I/O.

A slot has the greatest value of its intervals and the time of the busiest second: a core that was saturated for
one second stays visible in every level. Its mean is weighted by the seconds that were observed.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from overnight.model.times import SECOND_US
from overnight.model.uplink import SHARES, Rollup

SLOTS = (0, 600, 3_600)  # seconds of a slot, by level
TYPES = {
    "level": "u1", "begin_us": "i8", "seconds": "i4", "core": "u2",
    "mean": "u1", "max": "u1", "kernel_max": "u1", "worst_us": "i8",
}  # fmt: skip
Columns: TypeAlias = "dict[str, npt.NDArray[Any]]"


def from_rollups(rollups: Sequence[Rollup]) -> Columns:
    """Return a row for each interval and core."""
    lengths = [len(rollup.cores) for rollup in rollups]
    begins = np.repeat(np.array([rollup.begin_us for rollup in rollups], "i8"), lengths)
    lists = {"core": "cores", **{name: name for name in SHARES}, "worst_us": "worst_ms"}
    plain = {
        column: np.array([v for rollup in rollups for v in getattr(rollup, name)], "i8")
        for column, name in lists.items()
    }
    plain["worst_us"] = plain["worst_us"] * 1_000 + begins
    seconds = np.repeat(np.array([rollup.seconds for rollup in rollups], "i8"), lengths)
    return _typed({**plain, "level": 0 * begins, "begin_us": begins, "seconds": seconds})


def to_rollups(columns: Columns) -> tuple[Rollup, ...]:
    """Return the intervals of columns of one level, in order; a slot lasts as long as was observed of it."""
    sorted_ = take(columns, np.lexsort((columns["core"], columns["begin_us"])))
    worst = np.maximum(0, sorted_["worst_us"] - sorted_["begin_us"]) // 1_000
    starts = np.flatnonzero(np.diff(sorted_["begin_us"], prepend=-1))
    lists = [sorted_[name].tolist() for name in ("core", *SHARES)] + [worst.tolist()]
    begins, seconds = sorted_["begin_us"].tolist(), sorted_["seconds"].tolist()
    rollups = []
    for a, b in itertools.pairwise([*starts.tolist(), len(begins)]):
        cores, mean, top, kernel, late = (tuple(values[a:b]) for values in lists)
        rollups.append(Rollup(begins[a], max(seconds[a:b]), cores, mean, top, kernel, late))
    return tuple(rollups)


def merge(stored: Columns, new: Columns) -> Columns:
    """Return all levels of what is stored and what is new; an interval that both have counts once."""
    levels = [take(stored, stored["level"] == number) for number in range(len(SLOTS))]
    fine = _join(levels[0], new)
    _, first = np.unique(_keys(fine, SECOND_US // 1_000), return_index=True)
    fine = take(fine, first)
    merged = [fine]
    for number in range(1, len(SLOTS)):
        slot_us = SLOTS[number] * SECOND_US
        folded, old = _fold(fine, number), levels[number]
        # What is stored of a slot is used where intervals of it are no longer there.
        known = dict(zip(_keys(folded, slot_us).tolist(), folded["seconds"].tolist(), strict=True))
        covered = [known.get(key, 0) for key in _keys(old, slot_us).tolist()]
        left = take(old, old["seconds"] > np.array(covered, "i8"))
        merged.append(_fold(_join(folded, left), number))
    return _join(*merged)


def empty() -> Columns:
    return {name: np.zeros(0, kind) for name, kind in TYPES.items()}


def take(columns: Columns, rows: npt.NDArray[Any]) -> Columns:
    return {name: values[rows] for name, values in columns.items()}


def _typed(columns: Columns) -> Columns:
    return {name: columns[name].astype(kind) for name, kind in TYPES.items()}


def _join(*parts: Columns) -> Columns:
    return {name: np.concatenate([part[name] for part in parts]) for name in TYPES}


def _keys(columns: Columns, slot_us: int) -> npt.NDArray[np.int64]:
    """Return a number for each slot and core, in order of both."""
    keys: npt.NDArray[np.int64] = (columns["begin_us"] // slot_us << 12) + columns["core"]
    return keys


def _fold(rows: Columns, level: int) -> Columns:
    if not len(rows["core"]):
        return empty()
    slot_us = SLOTS[level] * SECOND_US
    keys = _keys(rows, slot_us)
    order = np.lexsort((rows["max"], keys))
    keys, rows = keys[order], take(rows, order)
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    busiest = np.append(starts[1:], len(keys)) - 1  # the last of each slot
    seconds = rows["seconds"].astype("i8")
    total = np.add.reduceat(seconds, starts)
    mean = np.add.reduceat(seconds * rows["mean"], starts) / np.maximum(1, total)
    return _typed(
        {
            "level": np.full(len(starts), level),
            "begin_us": rows["begin_us"][starts] // slot_us * slot_us,
            "seconds": np.minimum(total, SLOTS[level]),
            "core": rows["core"][starts],
            "mean": np.rint(mean),
            "max": rows["max"][busiest],
            "kernel_max": np.maximum.reduceat(rows["kernel_max"], starts),
            "worst_us": rows["worst_us"][busiest],
        }
    )
