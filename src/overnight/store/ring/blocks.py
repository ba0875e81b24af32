"""Finished blocks: self-contained, found by their heads, each part with its own checksum.

    head       80 bytes: magic, version, flags, lengths, begin and end on both clocks, checksums
    directory  JSON, packed with zlib: the tables, and the place of each chunk
    chunks     columns, first values, times, facts; packed with lzma or plain

Blocks follow each other in a file. After a damaged one, the next is found by its magic.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import struct
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from overnight.store.ring import columns, layout

MAGIC = b"\xf7onring\n"
HEAD = struct.Struct("<8sHHIIIqqqqqI8s")
CHECKSUM = struct.Struct("<I")
HEAD_BYTES = HEAD.size + CHECKSUM.size
BEGINS_FACTS = 1  # flag: facts are stored in full, not as changes
SEARCH_BYTES = 1 << 20
MAX_DIRECTORY = 16 << 20  # 5000 cgroups need half a megabyte


class Head(NamedTuple):
    """A block's head; times in µs, the earliest and the latest of its readings."""

    version: int
    flags: int
    directory_bytes: int
    directory_checksum: int
    chunk_bytes: int
    stamp_us: int  # of the open block that it was made of
    begin_us: int
    end_us: int
    begin_mono_us: int
    end_mono_us: int
    readings: int
    boot: str

    @property
    def size(self) -> int:
        """Bytes of the whole block."""
        return HEAD_BYTES + self.directory_bytes + self.chunk_bytes


def read_head(data: bytes) -> Head | None:
    """Parse the head at the begin of `data`; None if it is missing, incomplete or damaged."""
    if len(data) < HEAD_BYTES or not data.startswith(MAGIC):
        return None
    (checksum,) = CHECKSUM.unpack_from(data, HEAD.size)
    if zlib.crc32(data[: HEAD.size]) != checksum:
        return None
    fields = HEAD.unpack_from(data)[1:]
    return Head._make((*fields[:-1], fields[-1].decode("ascii", "replace")))


class Damage(NamedTuple):
    """Bytes of a file that are not a block. `cut_off`: a block that ends past the end of the file."""

    path: pathlib.Path
    begin: int
    end: int
    cut_off: bool

    @property
    def what(self) -> str:
        return "is cut off" if self.cut_off else "is not a block"


class Block:
    """A block in an open file, or in memory (`descriptor` -1)."""

    def __init__(
        self, head: Head, path: pathlib.Path, descriptor: int, offset: int, data: bytes = b""
    ) -> None:
        self.head = head
        self.path = path
        self.offset = offset
        self._descriptor = descriptor
        self._data = data
        self._directory: dict[str, Any] | None = None

    def _read(self, offset: int, size: int) -> bytes:
        if not 0 <= size <= layout.MAX_BYTES or offset < 0:
            raise columns.DamagedError(f"claims {size} bytes at {offset}")
        if self._descriptor < 0:
            return self._data[self.offset + offset : self.offset + offset + size]
        return os.pread(self._descriptor, size, self.offset + offset)

    def directory(self) -> dict[str, Any]:
        """Return the tables and the places of their chunks; raise DamagedError."""
        if self._directory is None:
            if self.head.version > layout.VERSION:
                raise columns.NewerVersionError(self.head.version)
            stored = self._read(HEAD_BYTES, self.head.directory_bytes)
            if zlib.crc32(stored) != self.head.directory_checksum:
                raise columns.DamagedError("has a directory that changed since it was written")
            try:
                document = json.loads(columns.inflate(stored, MAX_DIRECTORY))
            except (ValueError, RecursionError) as error:
                raise columns.DamagedError("has an invalid directory") from error
            if not isinstance(document, dict):
                raise columns.DamagedError("has an invalid directory")
            self._directory = document
        return self._directory

    def chunk(self, place: list[int]) -> bytes:
        """Return a chunk, unpacked and verified; raise DamagedError."""
        try:
            offset, stored_bytes, size, codec, checksum = map(int, place)
        except columns.INVALID as error:
            raise columns.DamagedError("has an invalid directory") from error
        if offset < 0 or offset + stored_bytes > self.head.chunk_bytes:
            raise columns.DamagedError("has a chunk outside of its bounds")
        stored = self._read(HEAD_BYTES + self.head.directory_bytes + offset, stored_bytes)
        if zlib.crc32(stored) != checksum:
            raise columns.DamagedError("has a chunk that changed since it was written")
        return columns.expand(codec, stored, size)


class Builder:
    def __init__(self, *, packed: bool) -> None:
        self.tables: list[dict[str, Any]] = []
        self._packed = packed
        self._chunks: list[bytes] = []
        self._bytes = 0

    def add(self, data: bytes) -> list[int]:
        """Append a chunk; return its place."""
        codec, stored = columns.pack(data) if self._packed else (columns.PLAIN, data)
        place = [self._bytes, len(stored), len(data), codec, zlib.crc32(stored)]
        self._chunks.append(stored)
        self._bytes += len(stored)
        return place

    def finish(self, flags: int, what: tuple[int | bytes, ...], more: dict[str, Any]) -> bytes:
        """Return the whole block; `what` are the last fields of its head, `more` goes into its directory."""
        text = json.dumps({**more, "tables": self.tables}, separators=(",", ":")).encode("ascii")
        directory = zlib.compress(text, 9 if self._packed else 1)
        sizes = (len(directory), zlib.crc32(directory), self._bytes)
        head = HEAD.pack(MAGIC, layout.VERSION, flags, *sizes, *what)
        return b"".join([head, CHECKSUM.pack(zlib.crc32(head)), directory, *self._chunks])


def blocks_of(path: pathlib.Path, descriptor: int) -> Iterator[Block | Damage]:
    """Yield every block by its head, and the bytes that are not one, or one cut off or being appended."""
    size = os.fstat(descriptor).st_size
    at = 0
    while at < size:
        head = read_head(os.pread(descriptor, HEAD_BYTES, at))
        if head is not None and at + head.size <= size:
            yield Block(head, path, descriptor, at)
            at += head.size
            continue
        end = _next_head(descriptor, at + 1, size)
        short = head is not None or size - at < HEAD_BYTES
        yield Damage(path, at, end, cut_off=short and end == size)
        at = end


def _next_head(descriptor: int, begin: int, size: int) -> int:
    """Return the offset of the next valid head; the file's size if there is none."""
    at = begin
    while at < size:
        data = os.pread(descriptor, SEARCH_BYTES + HEAD_BYTES, at)
        for magic in re.finditer(re.escape(MAGIC), data):
            if read_head(data[magic.start() : magic.start() + HEAD_BYTES]) is not None:
                return at + magic.start()
        if not data:
            break
        at += SEARCH_BYTES
    return size
