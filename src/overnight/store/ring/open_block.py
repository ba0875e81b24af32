"""The open block: a file to which each reading is appended, with a checksum per record.

    record   u32 checksum of the rest · u32 length of what follows the kind · u8 kind
    HEAD     JSON: version, host, boot, stamp_us, full (facts start anew)
    ROWS     a reading in full, with its keys: the first of a signal, and each with other keys
    DELTAS   a reading as differences from the one before, in byte planes
    FACTS    changes of a signal's facts

All numbers of a reading are subtracted at once, as one large integer with a lane of 64 bits for each:
2000 numbers in 25 µs; a loop takes 165.
"""

from __future__ import annotations

import array
import dataclasses
import functools
import itertools
import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from overnight.store.ring import columns, layout, records

RECORD, READING = records.RECORD, records.READING
HEAD, ROWS, DELTAS, FACTS = records.HEAD, records.ROWS, records.DELTAS, records.FACTS
WORTH_PACKING = 200
LANE = 1 << 64


class Reading(NamedTuple):
    """One reading, ordered by column, then by key: `values` in full, or `deltas` in `planes` planes."""

    wall_us: int
    mono_us: int
    keys: tuple[str, ...]
    values: array.array[int] | None
    planes: int
    deltas: bytes


class Changes(NamedTuple):
    """Changes of a signal's facts; `full`: all facts, those not listed are gone."""

    wall_us: int
    mono_us: int
    signal: str
    full: bool
    changed: dict[str, dict[str, object]]
    gone: list[str]


@dataclasses.dataclass
class Table:
    """The readings of one signal with the same columns."""

    signal: str
    columns: tuple[str, ...]
    readings: list[Reading] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class OpenBlock:
    """The valid content of an open block."""

    version: int = 0
    host: str = ""
    boot: str = ""
    stamp_us: int = 0
    full: bool = False
    tables: list[Table] = dataclasses.field(default_factory=list)
    facts: list[Changes] = dataclasses.field(default_factory=list)
    unpacked: int = 0  # bytes: many small bombs count as one
    rows: int = 0  # as well
    damage: str = ""  # what is wrong after the last whole record, if it is not only cut off


@functools.lru_cache(maxsize=64)
def _masks(lanes: int) -> tuple[int, int, int, int]:
    """Return per lane: the sign bit, the two top bits, all but the lowest byte, all but the lowest two."""
    return tuple(  # type: ignore[return-value]  # of four
        int.from_bytes(lane.to_bytes(8, "little") * lanes, "little")
        for lane in (1 << 63, 3 << 62, LANE - (1 << 8), LANE - (1 << 16))
    )


def record(kind: int, payload: bytes) -> bytes:
    rest = RECORD.pack(0, len(payload), kind)[4:] + payload
    return zlib.crc32(rest).to_bytes(4, "little") + rest


def head_record(host: str, boot: str, stamp_us: int, *, full: bool) -> bytes:
    head = {"version": layout.VERSION, "host": host, "boot": boot, "stamp_us": stamp_us}
    return record(HEAD, _text({**head, "full": full}))


def facts_record(changes: Changes) -> bytes:
    return record(FACTS, zlib.compress(_text(changes), 1))


def _text(value: object) -> bytes:
    # ASCII: any string of a source, unpaired surrogates included, is read back unchanged.
    return json.dumps(value, separators=(",", ":")).encode("ascii")


class TableWriter:
    """Encodes each reading of a signal against the last committed one: a failed write leaves no trace."""

    def __init__(self, number: int, signal: str, names: tuple[str, ...]) -> None:
        self.number = number
        self.signal = signal
        self.columns = names
        self._keys: tuple[str, ...] | None = None
        self._before = 0
        self._next: tuple[tuple[str, ...] | None, int] = (None, 0)

    def record(self, rows: Mapping[str, Sequence[int]], wall_us: int, mono_us: int) -> bytes:
        """Encode one reading; raise ValueError for rows that do not fit the columns."""
        keys = tuple(rows)
        # By column: zip transposes in C.
        flat = list(itertools.chain.from_iterable(zip(*rows.values(), strict=True)))
        count = len(keys) * len(self.columns)
        if len(flat) != count:
            raise ValueError(f"{self.signal}: {len(flat)} numbers instead of {count}")
        try:
            numbers = struct.pack(f"<{count}q", *flat)  # four times as fast as an array
        except struct.error:
            numbers = struct.pack(f"<{count}q", *map(columns.wrap, flat))
        now = int.from_bytes(numbers, "little")
        sign, top, wide, wider = _masks(count)
        # Lanes near the top could borrow from their neighbours: store such a reading, and the next, in full.
        self._next = (None, 0) if now & top else (keys, now)
        if keys == self._keys and not now & top:
            delta = ((now | sign) - self._before) ^ sign
            planes = 8 if delta & wider else 2 if delta & wide else 1
            data = delta.to_bytes(8 * count, "little")
            kind, body = DELTAS, b"".join([data[plane::8] for plane in range(planes)])
        else:
            names = _text([self.signal, self.columns, keys])
            kind, planes = ROWS, 8
            body = b"".join([len(names).to_bytes(4, "little"), names, *columns.split(numbers)])
        packed = len(body) >= WORTH_PACKING
        head = READING.pack(self.number, wall_us, mono_us, planes, packed)
        return record(kind, head + (zlib.compress(body, 1) if packed else body))

    def commit(self) -> None:
        """Mark the last record as written."""
        self._keys, self._before = self._next


def parse(data: bytes) -> OpenBlock:
    """Parse an open block up to the first invalid record; raise DamagedError if that is the head."""
    block = OpenBlock()
    tables: dict[int, Table] = {}
    at = 0
    while at + RECORD.size <= len(data):
        checksum, length, kind = RECORD.unpack_from(data, at)
        end = at + RECORD.size + length
        if end > len(data):
            break
        if zlib.crc32(memoryview(data)[at + 4 : end]) != checksum:
            block.damage = f"the record at byte {at} has changed since it was written"
            break
        try:
            _parse_record(block, tables, kind, data[at + RECORD.size : end])
        except (struct.error, *columns.INVALID) as error:
            block.damage = f"the record at byte {at} is invalid ({error})"
            break
        except columns.DamagedError as error:
            if at == 0:
                raise
            block.damage = f"the record at byte {at} {error}"
            break
        at = end
    if at == 0:
        if block.damage:
            raise columns.DamagedError(block.damage)
        raise columns.EmptyError("has no whole record")
    return block


def _parse_record(block: OpenBlock, tables: dict[int, Table], kind: int, payload: bytes) -> None:
    if not block.version and kind != HEAD:
        raise ValueError("no head before it")
    if kind == HEAD:
        head = json.loads(payload)
        version = int(head["version"])
        if version > layout.VERSION:
            raise columns.NewerVersionError(version)
        block.host, block.boot = str(head["host"]), str(head["boot"])
        block.stamp_us, block.full = columns.parse_number(head["stamp_us"]), bool(head["full"])
        block.version = version
    elif kind in (ROWS, DELTAS):
        number, wall, mono, planes, packed = READING.unpack_from(payload)
        body = payload[READING.size :]
        if packed:
            body = _inflate(block, body)
        if kind == ROWS:
            _parse_rows(block, tables, number, wall, mono, body)
            return
        table = tables[number]
        keys = table.readings[-1].keys
        if planes not in (1, 2, 8) or len(body) != planes * len(keys) * len(table.columns):
            raise ValueError("its size does not fit its keys")
        _append(block, table, Reading(wall, mono, keys, None, planes, body))
    elif kind == FACTS:
        wall, mono, signal, full, changed, gone = json.loads(_inflate(block, payload))
        facts = {str(key): dict(fact) for key, fact in changed.items()}
        names = [str(key) for key in gone]
        clocks = columns.parse_number(wall), columns.parse_number(mono)
        block.facts.append(Changes(*clocks, str(signal), bool(full), facts, names))
    else:
        raise ValueError(f"unknown kind {kind}")


def _inflate(block: OpenBlock, stored: bytes) -> bytes:
    left = 2 * layout.MAX_BYTES - block.unpacked
    data = columns.inflate(stored, min(left, layout.MAX_BYTES))
    block.unpacked += len(data)
    return data


def _parse_rows(
    block: OpenBlock, tables: dict[int, Table], number: int, wall: int, mono: int, body: bytes
) -> None:
    size = 4 + int.from_bytes(body[:4], "little")
    signal, names, keys = json.loads(body[4:size])
    names, keys = tuple(map(str, names)), tuple(map(str, keys))
    if len(set(keys)) < len(keys) or len(set(names)) < len(names):
        raise ValueError("a name occurs twice")
    numbers = columns.decode(body[size:], 8, False, len(names) * len(keys))
    table = tables.get(number)
    if table is None or (table.signal, table.columns) != (signal, names):
        table = tables[number] = Table(str(signal), names)
        block.tables.append(table)
    _append(block, table, Reading(wall, mono, keys, array.array("q", numbers), 0, b""))


def _append(block: OpenBlock, table: Table, reading: Reading) -> None:
    block.rows += len(reading.keys)
    if block.rows > layout.MAX_NUMBERS:
        raise ValueError("too many rows")
    table.readings.append(reading)
