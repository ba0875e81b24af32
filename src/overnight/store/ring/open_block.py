"""The open block: a file to which each look is appended in a light form, a checksum a record.

    record   u32 checksum of the rest · u32 length of what follows the kind · u8 kind
    HEAD     JSON: version, host, boot, stamp_us, full (whether the facts begin anew)
    ROWS     a look in full, with its keys: the first of a signal, and each with other keys
    DELTAS   a look as differences from the one before, in byte planes
    FACTS    what changed among a signal's facts

Differences are taken of all numbers of a look at once, as one large integer with a lane of 64 bits
for each: 2000 numbers in 25 µs, where a loop takes 165.
"""

from __future__ import annotations

import array
import functools
import itertools
import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from overnight.store.ring import columns, layout

__all__ = ["Changes", "Look", "OpenBlock", "Table", "TableWriter", "head_record", "parse", "record"]

RECORD = struct.Struct("<IIB")
LOOK = struct.Struct(
    "<HqqBB"
)  # table, wall and monotonic in µs, planes, whether the body is packed
HEAD, ROWS, DELTAS, FACTS = range(4)
WORTH_PACKING = 200
LANE = 1 << 64


class Look(NamedTuple):
    """One look as it stands in an open block: `values` in full, or `deltas` in `planes` planes.

    Numbers stand column by column, in each column key by key.
    """

    wall_us: int
    mono_us: int
    keys: tuple[str, ...]
    values: array.array[int] | None
    planes: int
    deltas: bytes


class Changes(NamedTuple):
    """What changed among a signal's facts; `full`: everything there is, what is not named is gone."""

    wall_us: int
    mono_us: int
    signal: str
    full: bool
    set: dict[str, dict[str, object]]
    gone: list[str]


class Table:
    """The looks of one signal that have the same columns."""

    def __init__(self, signal: str, names: tuple[str, ...]) -> None:
        self.signal = signal
        self.columns = names
        self.looks: list[Look] = []


class OpenBlock:
    """What an open block holds, as far as it can be trusted."""

    def __init__(self) -> None:
        self.version = 0
        self.host = ""
        self.boot = ""
        self.stamp_us = 0
        self.full = False
        self.tables: list[Table] = []
        self.facts: list[Changes] = []
        self.left = 2 * layout.MOST_BYTES  # that may still be unpacked: many small bombs are one
        self.good_bytes = 0
        self.cut = 0  # bytes behind the last whole record
        self.damage = ""  # what is wrong with them, if they are not just cut off


@functools.lru_cache(maxsize=64)
def _masks(lanes: int) -> tuple[int, int, int, int]:
    """Per lane: the sign bit, the two top bits, all but the lowest byte, all but the lowest two."""
    return tuple(  # type: ignore[return-value]  # of four
        int.from_bytes(lane.to_bytes(8, "little") * lanes, "little")
        for lane in (1 << 63, 3 << 62, LANE - (1 << 8), LANE - (1 << 16))
    )


def record(kind: int, payload: bytes) -> bytes:
    """A record with its checksum."""
    rest = RECORD.pack(0, len(payload), kind)[4:] + payload
    return zlib.crc32(rest).to_bytes(4, "little") + rest


def head_record(host: str, boot: str, stamp_us: int, *, full: bool) -> bytes:
    """The first record of an open block."""
    said = {"version": layout.VERSION, "host": host, "boot": boot, "stamp_us": stamp_us}
    return record(HEAD, _text({**said, "full": full}))


def facts_record(changes: Changes) -> bytes:
    """A record of facts that changed."""
    return record(FACTS, zlib.compress(_text(changes), 1))


def _text(said: object) -> bytes:
    # ASCII: any string a source finds, unpaired surrogates included, comes back as it was.
    return json.dumps(said, separators=(",", ":")).encode("ascii")


def _body(body: bytes) -> tuple[bool, bytes]:
    if len(body) >= WORTH_PACKING:
        return True, zlib.compress(body, 1)
    return False, body


class TableWriter:
    """Turns the looks of one signal into records; a look counts as written once it is `commit`ted.

    So one that the disk did not take is as if it had never been: the next is told against the one before.
    """

    def __init__(self, number: int, signal: str, names: tuple[str, ...]) -> None:
        self.number = number
        self.signal = signal
        self.columns = names
        self._keys: tuple[str, ...] | None = None
        self._before = 0
        self._next: tuple[tuple[str, ...] | None, int] = (None, 0)

    def record(self, rows: Mapping[str, Sequence[int]], wall_us: int, mono_us: int) -> bytes:
        """The record of one look; raises ValueError for rows that do not fit the columns."""
        keys = tuple(rows)
        # By column: zip turns rows round in C.
        flat = list(itertools.chain.from_iterable(zip(*rows.values(), strict=True)))
        count = len(keys) * len(self.columns)
        if len(flat) != count:
            raise ValueError(f"{self.signal}: {len(flat)} numbers instead of {count}")
        try:
            numbers = struct.pack(f"<{count}q", *flat)  # four times as fast as an array
        except struct.error:
            numbers = struct.pack(f"<{count}q", *[_wrapped(number) for number in flat])
        now = int.from_bytes(numbers, "little")
        sign, top, wide, wider = _masks(count)
        # Lanes near the top could borrow from their neighbours: such a look, and the next, stand in full.
        self._next = (None, 0) if now & top else (keys, now)
        if keys == self._keys and not now & top:
            delta = ((now | sign) - self._before) ^ sign
            planes = 8 if delta & wider else 2 if delta & wide else 1
            data = delta.to_bytes(8 * count, "little")
            packed, body = _body(b"".join([data[plane::8] for plane in range(planes)]))
            head = LOOK.pack(self.number, wall_us, mono_us, planes, packed)
            return record(DELTAS, head + body)
        said = _text([self.signal, self.columns, keys])
        packed, body = _body(len(said).to_bytes(4, "little") + said + columns.planes_of(numbers))
        return record(ROWS, LOOK.pack(self.number, wall_us, mono_us, 8, packed) + body)

    def commit(self) -> None:
        """The last record is on its way to the disk."""
        self._keys, self._before = self._next


def _wrapped(number: int) -> int:
    return ((number + (1 << 63)) % LANE) - (1 << 63)


def parse(data: bytes) -> OpenBlock:
    """What an open block's bytes say, up to the first record that is not whole.

    Raises DamagedError where the beginning makes no sense, or is of a later version.
    """
    made = OpenBlock()
    tables: dict[int, Table] = {}
    at = 0
    while at + RECORD.size <= len(data):
        checksum, length, kind = RECORD.unpack_from(data, at)
        end = at + RECORD.size + length
        if end > len(data):
            break
        if zlib.crc32(memoryview(data)[at + 4 : end]) != checksum:
            made.damage = f"the record at byte {at} has changed since it was written"
            break
        try:
            _take(made, tables, kind, data[at + RECORD.size : end])
        except (ValueError, TypeError, KeyError, IndexError, struct.error, RecursionError) as error:
            made.damage = f"the record at byte {at} makes no sense ({error})"
            break
        except columns.DamagedError as error:
            if at == 0:
                raise
            made.damage = f"the record at byte {at} {error}"
            break
        at = end
    if at == 0:
        raise columns.DamagedError(made.damage or "has no whole record")
    made.good_bytes, made.cut = at, len(data) - at
    return made


def _take(made: OpenBlock, tables: dict[int, Table], kind: int, payload: bytes) -> None:
    if not made.version and kind != HEAD:
        raise ValueError("no head before it")
    if kind == HEAD:
        said = json.loads(payload)
        version = int(said["version"])
        if version > layout.VERSION:
            raise columns.DamagedError(
                f"is of version {version}, this overnight reads up to {layout.VERSION}: "
                "update overnight"
            )
        made.host, made.boot = str(said["host"]), str(said["boot"])
        made.stamp_us, made.full = int(said["stamp_us"]), bool(said["full"])
        made.version = version
    elif kind in (ROWS, DELTAS):
        number, wall, mono, planes, packed = LOOK.unpack_from(payload)
        body = payload[LOOK.size :]
        if packed:
            body = _inflated(made, body)
        if kind == ROWS:
            _take_rows(made, tables, number, wall, mono, body)
            return
        table = tables[number]
        keys = table.looks[-1].keys
        if planes not in (1, 2, 8) or len(body) != planes * len(keys) * len(table.columns):
            raise ValueError("its size is not that of its keys")
        table.looks.append(Look(wall, mono, keys, None, planes, body))
    elif kind == FACTS:
        wall, mono, signal, full, changed, gone = json.loads(_inflated(made, payload))
        made.facts.append(
            Changes(
                int(wall),
                int(mono),
                str(signal),
                bool(full),
                {str(key): dict(fact) for key, fact in changed.items()},
                [str(key) for key in gone],
            )
        )
    else:
        raise ValueError(f"kind {kind} is not known")


def _inflated(made: OpenBlock, stored: bytes) -> bytes:
    data = columns.inflate(stored, min(made.left, layout.MOST_BYTES))
    made.left -= len(data)
    return data


def _take_rows(
    made: OpenBlock, tables: dict[int, Table], number: int, wall: int, mono: int, body: bytes
) -> None:
    size = 4 + int.from_bytes(body[:4], "little")
    signal, names, keys = json.loads(body[4:size])
    names, keys = tuple(map(str, names)), tuple(map(str, keys))
    if len(set(keys)) < len(keys) or len(set(names)) < len(names):
        raise ValueError("a name stands there twice")
    numbers = columns.decode(body[size:], 8, False, len(names) * len(keys))
    table = tables.get(number)
    if table is None or (table.signal, table.columns) != (signal, names):
        table = tables[number] = Table(str(signal), names)
        made.tables.append(table)
    table.looks.append(Look(wall, mono, keys, array.array("q", numbers), 0, b""))
