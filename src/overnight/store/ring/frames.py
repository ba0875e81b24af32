"""Numbers read back from the ring: absolute, as the source read them."""

from __future__ import annotations

import array
import bisect
import dataclasses
import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from overnight.store.ring import blocks, columns, layout

MAX_TABLES, MAX_LOOKS = 1000, 1 << 20  # in a block; ten minutes of a host have about 50 and 30,000

Clocks = tuple["array.array[int]", "array.array[int]"]


@dataclasses.dataclass(frozen=True)
class Frame:
    """Consecutive readings of one signal in one block.

    `values[column]` holds all numbers of the first key, then of the second: those of `keys[k]` are
    `[starts[k]:starts[k + 1]]`. `readings` is the reading of each number, an index into the times; None:
    every key is in every reading. Columns recorded at different intervals come in separate frames.
    """

    signal: str
    boot: str
    columns: tuple[str, ...]
    keys: tuple[str, ...]
    wall_us: array.array[int]
    monotonic_ns: array.array[int]  # to the microsecond
    starts: array.array[int]
    readings: array.array[int] | None
    values: dict[str, array.array[int]]

    def numbers_of(self, k: int) -> tuple[Sequence[int], slice]:
        """Return the readings that have key number k, and where its numbers are in each column."""
        own = slice(self.starts[k], self.starts[k + 1])
        return range(len(self.wall_us)) if self.readings is None else self.readings[own], own

    def series(self, key: str, column: str) -> tuple[array.array[int], array.array[int]]:
        """Return times (wall clock, µs) and numbers of one key; raise KeyError if it is missing."""
        if key not in self.keys:
            raise KeyError(key)
        readings, own = self.numbers_of(self.keys.index(key))
        return array.array("q", [self.wall_us[n] for n in readings]), self.values[column][own]


def _numbers(steps: Sequence[int], first: int | None = None) -> array.array[int]:
    """Return running sums, wrapped to 64 bits."""
    sums = list(itertools.accumulate(steps, initial=first))
    try:
        return array.array("q", sums)
    except OverflowError:
        return array.array("q", map(columns.wrap, sums))


def _sequence(block: blocks.Block, value: Any, count: int) -> array.array[int]:
    planes, zigzag, place = value
    return _numbers(columns.decode(block.chunk(place), int(planes), bool(zigzag), count))


def _count(value: Any) -> int:
    count = int(value)
    if not 0 <= count <= layout.MAX_NUMBERS:
        raise columns.DamagedError(f"claims {count} numbers")
    return count


def tables_of(block: blocks.Block) -> list[dict[str, Any]]:
    """Return the directory's entries of the tables; raise DamagedError, or one of columns.INVALID."""
    tables: list[dict[str, Any]] = block.directory()["tables"]
    if len(tables) > MAX_TABLES or sum(_count(entry["looks"]) for entry in tables) > MAX_LOOKS:
        raise columns.DamagedError("claims too many readings")
    return tables


def clocks_of(block: blocks.Block) -> Clocks:
    """Return wall and monotonic times of all readings of a block, in µs; raise DamagedError."""
    directory = block.directory()
    try:
        count = _count(directory["clocks"])
        mono = _sequence(block, directory["mono"], count)
        offset = _sequence(block, directory["offset"], count)
        return array.array("q", map(sum, zip(mono, offset, strict=True))), mono
    except columns.INVALID as error:
        raise columns.DamagedError(f"has invalid times ({error})") from error


def times_of(block: blocks.Block, signal: str | None = None) -> Iterator[int]:
    """Yield the wall-clock times of a signal's readings, or of all readings of a block; raise DamagedError."""
    walls, _ = clocks_of(block)
    if signal is None:
        yield from walls
    for entry in tables_of(block):
        if entry["signal"] == signal:
            yield from (walls[n] for n in _sequence(block, entry["at"], _count(entry["looks"])))


def frames_of(
    block: blocks.Block,
    clocks: Clocks,
    signal: str,
    window: tuple[int, int],
    keys: Collection[str] | None = None,
    names: Collection[str] | None = None,
) -> list[Frame]:
    """Return a signal's frames of one block, cut to [begin, end) of the wall clock; raise DamagedError."""
    try:
        found: list[Frame] = []
        for entry in tables_of(block):
            if entry["signal"] == signal and (
                names is None or any(name in names for name in entry["columns"])
            ):
                found += _frame(block, clocks, entry, window, keys, names)
                _count(sum(len(column) for frame in found for column in frame.values.values()))
    except columns.INVALID as error:
        raise columns.DamagedError(f"has invalid numbers of {signal} ({error})") from error
    return found


def _frame(
    block: blocks.Block,
    clocks: Clocks,
    entry: dict[str, Any],
    window: tuple[int, int],
    wanted: Collection[str] | None,
    names: Collection[str] | None,
) -> Iterator[Frame]:
    count = _count(entry["looks"])
    at = _sequence(block, entry["at"], count)
    walls = array.array("q", [clocks[0][n] for n in at])
    inside = [n for n, wall in enumerate(walls) if window[0] <= wall < window[1]]
    if not inside:
        return
    # Contiguous: when the clock is set, a new file begins.
    low, high = inside[0], inside[-1] + 1
    monos = array.array("q", [1000 * clocks[1][n] for n in at[low:high]])
    keys = [str(key) for key in entry["keys"]]
    chosen = [k for k, key in enumerate(keys) if wanted is None or key in wanted]
    if "gaps" in entry:
        counts = _sequence(block, entry["counts"], len(keys))
        if min(counts, default=1) < 1:
            raise columns.DamagedError("has a key without readings")
    else:
        counts = array.array("q", [count]) * len(keys)
    total = sum(counts)
    _count(total * len(entry["columns"]))
    starts = array.array("q", itertools.accumulate(counts, initial=0))
    readings = _readings(block, entry, starts, total, count) if "gaps" in entry else None
    kept: list[tuple[int, int, int]] = []  # key, and the range of its numbers inside the window
    for k in chosen:
        begin, end = low, high
        if readings is not None:  # ascending within a key
            begin = bisect.bisect_left(readings, low, starts[k], starts[k + 1]) - starts[k]
            end = bisect.bisect_left(readings, high, starts[k], starts[k + 1]) - starts[k]
        if begin < end:
            kept.append((k, begin, end))
    cut = None
    if readings is not None:
        cut = array.array(
            "q", [n - low for k, b, e in kept for n in readings[starts[k] + b : starts[k] + e]]
        )
    stored = [str(name) for name in entry["columns"]]
    fields = [n for n, name in enumerate(stored) if names is None or name in names]
    values = _values(block, entry, fields, starts, kept)
    yield Frame(
        signal=str(entry["signal"]),
        boot=str(block.directory().get("boot", "")),
        columns=tuple(stored[n] for n in fields),
        keys=tuple(keys[k] for k, _, _ in kept),
        wall_us=walls[low:high],
        monotonic_ns=monos,
        starts=array.array("q", itertools.accumulate((e - b for _, b, e in kept), initial=0)),
        readings=cut,
        values={stored[n]: values[n] for n in fields},
    )


def _readings(
    block: blocks.Block, entry: dict[str, Any], starts: array.array[int], total: int, count: int
) -> array.array[int]:
    """Return the reading of each number of a table whose keys come and go."""
    planes, zigzag, place = entry["gaps"]
    gaps = columns.decode(block.chunk(place), int(planes), bool(zigzag), total)
    readings = array.array("q")
    for begin, end in itertools.pairwise(starts):
        steps = (gap + 1 for gap in gaps[begin + 1 : end])
        readings.extend(itertools.accumulate(steps, initial=gaps[begin]))
    if total and not 0 <= min(readings) <= max(readings) < count:
        raise columns.DamagedError("has a number of a missing reading")
    return readings


def _values(
    block: blocks.Block,
    entry: dict[str, Any],
    fields: Sequence[int],
    starts: array.array[int],
    kept: Sequence[tuple[int, int, int]],
) -> dict[int, array.array[int]]:
    keys = len(starts) - 1
    steps = starts[-1] - keys
    first = columns.decode(block.chunk(entry["first"]), 8, False, keys * len(entry["columns"]))
    summed = [int(n) for n in entry["total"]]
    needed = set(fields)
    if summed and summed[0] in needed:
        needed.update(summed)
    coded = _coded(block, entry, needed, steps)
    if summed and summed[0] in needed:
        lanes = [columns.lanes(coded[n], steps) for n in summed]
        coded[summed[0]] = columns.code_lanes(lanes[0] - sum(lanes[1:]), steps)
    values = {}
    for n in fields:
        numbers = columns.decode(*coded[n], steps)
        column = array.array("q")
        for k, begin, end in kept:
            # The first number of each key is stored separately.
            steps_of_key = numbers[starts[k] - k : starts[k + 1] - k - 1]
            column.extend(_numbers(steps_of_key[: end - 1], first[n * keys + k])[begin:end])
        values[n] = column
    return values


def _coded(
    block: blocks.Block, entry: dict[str, Any], needed: Collection[int], steps: int
) -> dict[int, columns.Coded]:
    coded: dict[int, columns.Coded] = {}
    begin = 0
    for end, place in entry["chunks"]:
        if any(begin <= n < end for n in needed):
            data = block.chunk(place)
            at = 0
            for n in range(begin, end):
                planes, zigzag = int(entry["coded"][n][0]), bool(entry["coded"][n][1])
                if not 0 <= planes <= 8:
                    raise columns.DamagedError(f"has a column of {planes} planes")
                if n in needed:
                    part = data[at : at + planes * steps]
                    coded[n] = columns.Coded(part, planes, zigzag)
                at += planes * steps
        begin = end
    return coded
