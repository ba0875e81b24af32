"""Encodes an open block as a finished one, in steps short enough for the agent's loop."""

from __future__ import annotations

import array
import itertools
import json
import operator
from collections.abc import Generator, Sequence
from typing import Any

from overnight.model.event import boot_name
from overnight.store.ring import blocks, columns, open_block

# Columns share a chunk until it has this many bytes: a small host has few numbers in a column.
CHUNK_BYTES = 16 << 10
REST = "idle"

Steps = Generator[None, None, bytes]


def pack_at_once(block: open_block.OpenBlock, *, packed: bool = True) -> bytes:
    """Encode in one go; `packed=False` is fast, for a reader of a block that is still open."""
    steps = pack(block, packed=packed)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return bytes(done.value)


def pack(block: open_block.OpenBlock, *, packed: bool = True) -> Steps:
    """Encode the block; yield between two chunks. Removes the readings from `block` on the way."""
    builder = blocks.Builder(packed=packed)
    clocks: dict[tuple[int, int], int] = {}
    for table in block.tables:
        for reading in table.readings:
            clocks.setdefault((reading.wall_us, reading.mono_us), len(clocks))
    for changes in block.facts:
        clocks.setdefault((changes.wall_us, changes.mono_us), len(clocks))
    count = sum(len(table.readings) for table in block.tables)
    while block.tables:  # each is freed when encoded: 192 cores have 10 MB of them
        yield from _table(builder, block.tables.pop(0), clocks)
    walls = [wall for wall, _ in clocks] or [block.stamp_us]
    monos = [mono for _, mono in clocks] or [0]
    more: dict[str, Any] = {"host": block.host, "boot": block.boot, "clocks": len(clocks)}
    # Both clocks advance at the same pace: store one as steps, the other as its offset.
    more["mono"] = _sequence(builder, monos if clocks else [])
    more["offset"] = _sequence(builder, [wall - mono for wall, mono in clocks])
    if block.facts:
        facts = [[clocks[c.wall_us, c.mono_us], *c[2:]] for c in block.facts]
        more["facts"] = builder.add(json.dumps(facts, separators=(",", ":")).encode("ascii"))
    yield
    times = (block.stamp_us, min(walls), max(walls), min(monos), max(monos))
    what = (*times, min(count, 0xFFFFFFFF), boot_name(block.boot).encode("ascii"))
    return builder.finish(blocks.BEGINS_FACTS if block.full else 0, what, more)


def _sequence(builder: blocks.Builder, numbers: Sequence[int]) -> list[Any]:
    """Encode a sequence as its steps: planes, zigzag, place."""
    return _add(builder, array.array("q", map(_step, numbers, itertools.chain((0,), numbers))))


def _add(builder: blocks.Builder, numbers: array.array[int]) -> list[Any]:
    coded = columns.code(columns.split(numbers.tobytes()))
    return [coded.planes, coded.zigzag, builder.add(coded.data)]


def _step(now: int, before: int) -> int:
    return columns.wrap(now - before)


def _table(
    builder: blocks.Builder, table: open_block.Table, clocks: dict[tuple[int, int], int]
) -> Generator[None, None, None]:
    at = [clocks[reading.wall_us, reading.mono_us] for reading in table.readings]
    entry: dict[str, Any] = {
        "signal": table.signal,
        "columns": table.columns,
        "looks": len(table.readings),
        "at": _sequence(builder, at),
    }
    regular = all(reading.values is None for reading in table.readings[1:])
    coded: list[columns.Coded] = []
    if regular:
        first = table.readings[0].values
        assert first is not None, "a table begins with a reading in full"
        entry["keys"] = table.readings[0].keys
        entry["first"] = builder.add(b"".join(columns.split(first.tobytes())))
        for column in _regular(table):
            coded.append(column)
            yield
    else:
        yield from _irregular(builder, table, entry, coded)
    total = _put_total(table.columns, coded)
    entry["coded"] = [[column.planes, column.zigzag] for column in coded]
    entry["total"] = total
    entry["chunks"] = []
    begin = 0
    while begin < len(coded):
        end, size = begin, 0
        while end < len(coded) and (end == begin or size + len(coded[end].data) <= CHUNK_BYTES):
            size += len(coded[end].data)
            end += 1
        place = builder.add(b"".join(column.data for column in coded[begin:end]))
        entry["chunks"].append([end, place])
        begin = end
        yield
    builder.tables.append(entry)


def _regular(table: open_block.Table) -> Generator[columns.Coded, None, None]:
    """Yield the columns of a table whose keys never changed: strides through the joined readings."""
    keys = len(table.readings[0].keys)
    lanes = keys * len(table.columns)
    rest = table.readings[1:]
    count = max((reading.planes for reading in rest), default=1)
    # A reading with fewer planes is padded with zeros.
    joined = [
        b"".join([r.deltas[plane * lanes : (plane + 1) * lanes].ljust(lanes, b"\0") for r in rest])
        for plane in range(count)
    ]
    for column in range(len(table.columns)):
        own = range(column * keys, (column + 1) * keys)
        yield columns.code([b"".join([plane[lane::lanes] for lane in own]) for plane in joined])


def _irregular(
    builder: blocks.Builder,
    table: open_block.Table,
    entry: dict[str, Any],
    coded: list[columns.Coded],
) -> Generator[None, None, None]:
    """Encode a table whose keys come and go: for each key its readings, and the steps between them."""
    slots: dict[str, list[tuple[int, int]]] = {}
    whole: list[array.array[int]] = []
    for number, reading in enumerate(table.readings):
        values = reading.values if reading.values is not None else _applied(whole[-1], reading)
        whole.append(values)
        for position, key in enumerate(reading.keys):
            slots.setdefault(key, []).append((number, position))
    entry["keys"] = list(slots)
    entry["counts"] = _sequence(builder, [len(where) for where in slots.values()])
    gaps: list[int] = []
    for where in slots.values():
        numbers = [number for number, _ in where]
        gaps.append(numbers[0])
        gaps.extend(now - before - 1 for before, now in itertools.pairwise(numbers))
    entry["gaps"] = _add(builder, array.array("q", gaps))
    yield
    first = array.array("q")
    for column in range(len(table.columns)):
        steps = array.array("q")
        for where in slots.values():
            series = [whole[n][column * len(table.readings[n].keys) + at] for n, at in where]
            first.append(series[0])
            steps.extend(_step(now, before) for before, now in itertools.pairwise(series))
        coded.append(columns.code(columns.split(steps.tobytes())))
        yield
    entry["first"] = builder.add(b"".join(columns.split(first.tobytes())))


def _applied(before: array.array[int], reading: open_block.Reading) -> array.array[int]:
    deltas = columns.decode(reading.deltas, reading.planes, False, len(before))
    return array.array("q", map(columns.wrap, map(operator.add, before, deltas)))


def _put_total(names: Sequence[str], coded: list[columns.Coded]) -> list[int]:
    """Replace the column of idle ticks, if there is one, by the sum of the row, which hardly changes.

    Columns that fall or leap are not summed. Return the summed columns, the idle one first, or none.
    """
    if REST not in names:
        return []
    rest = names.index(REST)
    summed = [n for n, column in enumerate(coded) if not column.zigzag and 1 <= column.planes <= 2]
    if rest not in summed or len(summed) < 2:
        return []
    count = len(coded[rest].data) // coded[rest].planes
    total = columns.code_lanes(sum(columns.lanes(coded[n], count) for n in summed), count)
    if total.planes > coded[rest].planes:
        return []
    coded[rest] = total
    return [rest, *(n for n in summed if n != rest)]
