"""Follow the CPU readings that the flight recorder appends to its open block, in little memory.

The ring's reader parses all signals of ten minutes. This reads the new records of one signal.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import pathlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from overnight.store.ring import records

SIGNAL = b'["cpu",'
MAX_BYTES = 4 << 20  # of a reading; 4,096 cores have 330 kB


Place = tuple[str, int]  # a file, and the offset of a record


class Reading(NamedTuple):
    """Ticks since boot, `ticks[column]` by core."""

    boot: str
    wall_us: int
    mono_us: int
    cores: tuple[int, ...]
    ticks: Mapping[str, Sequence[int]]
    place: Place = ("", 0)


class _DamagedError(Exception):
    """The rest of a file cannot be read."""


class CpuTail:
    """Yields the readings from a place on: of its file, and all that follow."""

    def __init__(self, folder: pathlib.Path, place: Place = ("", 0)) -> None:
        self._folder = folder
        self._changed = 0
        self._seen: set[str] = set()
        self._waiting: list[str] = []
        self._descriptor = -1
        self._name, self._resume = place
        self._offset = 0
        self._reset()
        with contextlib.suppress(OSError):
            before = (folder / self._name).stat().st_mtime_ns if self._name else 0
            self._list_files()
            self._waiting = [name for name in self._waiting if self._mtime(name) >= before]
        if self._name in self._waiting:
            self._waiting.remove(self._name)
            self._open(self._name)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def poll(self) -> Iterator[Reading]:
        """Yield the new readings."""
        while True:
            # Before the rest of this file is read: once another exists, this one is complete.
            with contextlib.suppress(OSError):
                self._list_files()
            try:
                yield from self._read_new()
            except (_DamagedError, OSError, ValueError, KeyError, TypeError, zlib.error):
                self.close()
            if not self._waiting:
                return
            self._resume = 0
            self._open(self._waiting.pop(0))

    def _list_files(self) -> None:
        changed = self._folder.stat().st_mtime_ns
        if changed == self._changed:
            return
        names = [name for name in os.listdir(self._folder) if name.endswith(".open")]  # noqa: PTH208 - each second
        fresh = [name for name in names if name not in self._seen]
        # By the time of the last write, not by the name: the clock may have been set back.
        self._waiting += sorted(fresh, key=self._mtime)
        self._seen = set(names)
        self._changed = changed

    def _mtime(self, name: str) -> int:
        try:
            return (self._folder / name).stat().st_mtime_ns
        except OSError:
            return 0

    def _open(self, name: str) -> None:
        self.close()
        self._name, self._offset = name, 0
        self._reset()
        with contextlib.suppress(OSError):
            # It stays readable when it is packed and removed.
            self._descriptor = os.open(self._folder / name, os.O_RDONLY | os.O_CLOEXEC)

    def _reset(self) -> None:
        self._boot = ""
        self._tables: dict[int, bool] = {}  # by number: whether it holds the CPU readings
        self._columns: tuple[str, ...] = ()
        self._cores: tuple[int, ...] = ()
        self._numbers = array.array("q")  # a list of 960 integers takes five times as much

    def _read_new(self) -> Iterator[Reading]:
        if self._descriptor < 0:
            return
        size = os.fstat(self._descriptor).st_size
        header, reading_size = records.RECORD.size, records.READING.size
        while self._offset + header <= size:
            begin = os.pread(self._descriptor, header + reading_size, self._offset)
            checksum, length, kind = records.RECORD.unpack_from(begin)
            end = self._offset + header + length
            if end > size:
                return
            reading = None
            if kind == records.HEAD:
                boot = str(json.loads(self._payload(length, checksum))["boot"])
                self._boot = boot[:8]  # as in the ring's blocks
            elif kind in (records.ROWS, records.DELTAS):
                number, wall, mono, planes, packed = records.READING.unpack_from(begin, header)
                # The signal of a table is in its rows, which come before the deltas.
                if self._tables.get(number, kind == records.ROWS):
                    reading = self._parse(kind, number, planes, packed, length, checksum)
            at, self._offset = self._offset, end
            if reading is not None and at >= self._resume:
                yield reading._replace(wall_us=wall, mono_us=mono, place=(self._name, at))

    def _payload(self, length: int, checksum: int) -> bytes:
        if length > MAX_BYTES:
            raise _DamagedError
        data = os.pread(self._descriptor, records.RECORD.size + length, self._offset)
        if zlib.crc32(memoryview(data)[4:]) != checksum:
            raise _DamagedError
        return data[records.RECORD.size :]

    def _parse(
        self, kind: int, number: int, planes: int, packed: int, length: int, checksum: int
    ) -> Reading | None:
        """Return a reading without its times; None for another signal."""
        body = self._payload(length, checksum)[records.READING.size :]
        if kind == records.ROWS and number not in self._tables:
            start = zlib.decompressobj().decompress(body, 64) if packed else body[:64]
            self._tables[number] = start[4:].startswith(SIGNAL)
            if not self._tables[number]:
                return None
        if packed:
            body = zlib.decompressobj().decompress(body, MAX_BYTES)
        if kind == records.ROWS:
            size = 4 + int.from_bytes(body[:4], "little")
            _, names, keys = json.loads(body[4:size])
            self._columns, self._cores = tuple(names), tuple(map(int, keys))
            self._numbers = array.array("q", _join(body[size:], 8, len(names) * len(keys)))
        else:
            steps = _join(body, planes, len(self._numbers))
            self._numbers = array.array("q", map(int.__add__, self._numbers, steps))
        width = len(self._cores)
        ticks = {
            name: self._numbers[n * width : (n + 1) * width] for n, name in enumerate(self._columns)
        }
        return Reading(self._boot, 0, 0, self._cores, ticks)


def _join(data: bytes, planes: int, count: int) -> Sequence[int]:
    """Return numbers of which all low bytes come first, then all next ones."""
    if planes not in (1, 2, 8) or len(data) != planes * count:
        raise _DamagedError
    if planes == 1:
        return data
    parts = [data[plane * count : (plane + 1) * count] for plane in range(planes)]
    return records.join_planes(parts, "H" if planes == 2 else "q")
