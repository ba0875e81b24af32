"""Writes perf.data files that `perf script` reads, and finishes one whose writer was killed.

An unfinished file has a data size of zero. `complete` truncates it after its last whole record and adds what
its writer would have added, which makes it an ordinary segment.
"""

from __future__ import annotations

import dataclasses
import mmap
import os
import pathlib
import platform
import struct
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from overnight.model import files
from overnight.sources.perf import decode

if TYPE_CHECKING:
    from overnight.sources import perf

MAGIC = b"PERFILE2"
HEADER = struct.Struct("<8sQQQQQQQQ32s")
SECTION = struct.Struct("<QQ")
DATA_SIZE_AT, FEATURES_AT = 48, 72
LOST_START = struct.pack("<IH", decode.LOST, 0)

# tools/perf/util/header.h, enum HEADER_*: the numbers of the features.
HOSTNAME, OSRELEASE, ARCH, NRCPUS, CMDLINE = 3, 4, 6, 7, 11
SAMPLE_TIME, CLOCKID, CLOCK_DATA = 21, 23, 29
CLOCK_MONOTONIC = 1
STRING_ALIGN = 64

# The header holds the attrs and 8 bytes per event and core: 4 MiB is enough for 260,000 cores.
HEAD_LIMIT = 4 << 20


def _string(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogateescape") + b"\0"
    raw += b"\0" * (-len(raw) % STRING_ALIGN)
    return struct.pack("<I", len(raw)) + raw


def features(
    host: str, command: Iterable[str], cores: int, span: tuple[perf.Clock, perf.Clock] | None
) -> dict[int, bytes]:
    """Build the features after the records: the host, and how its clocks relate.

    `span` is when the segment began and ended, and includes every sample. Without it, for a segment of an
    earlier boot, the file has no clock data rather than wrong ones.
    """
    words = list(command)
    parts = {
        HOSTNAME: _string(host),
        OSRELEASE: _string(platform.release()),
        ARCH: _string(platform.machine()),
        NRCPUS: struct.pack("<II", max(os.cpu_count() or 1, cores), cores),
        CMDLINE: struct.pack("<I", len(words)) + b"".join(_string(word) for word in words),
        CLOCKID: struct.pack("<Q", 1),
    }
    if span is not None:
        began, ended = span
        parts[SAMPLE_TIME] = SECTION.pack(began.monotonic_ns, ended.monotonic_ns)
        clocks = SECTION.pack(began.wall_ns, began.monotonic_ns)
        parts[CLOCK_DATA] = struct.pack("<II", 1, CLOCK_MONOTONIC) + clocks
    return parts


def _finish(descriptor: int, data_offset: int, data_end: int, parts: dict[int, bytes]) -> None:
    """Write the features after the data, then the header, which marks the file as finished.

    A file without records stays unfinished, because a data size of zero means just that. On a full disk
    it is finished without features.
    """
    os.ftruncate(descriptor, data_end)
    if data_end == data_offset:
        return
    offset = data_end + SECTION.size * len(parts)
    table, body, bitmap = [], [], 0
    for number in sorted(parts):
        table.append(SECTION.pack(offset, len(parts[number])))
        body.append(parts[number])
        offset += len(parts[number])
        bitmap |= 1 << number
    try:
        _write_at(descriptor, b"".join(table + body), data_end)
    except OSError:
        os.ftruncate(descriptor, data_end)
        bitmap = 0
    _write_at(descriptor, bitmap.to_bytes(32, "little"), FEATURES_AT)
    _write_at(descriptor, struct.pack("<Q", data_end - data_offset), DATA_SIZE_AT)


def _write_at(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        count = os.pwrite(descriptor, view, offset)
        view, offset = view[count:], offset + count


@dataclasses.dataclass
class SegmentFile:
    """A perf.data file of one event that is being written; written data is in the page cache."""

    path: pathlib.Path
    descriptor: int
    data_offset: int
    end: int

    @classmethod
    def create(cls, path: pathlib.Path, attr: bytes, ids: Iterable[int]) -> SegmentFile:
        """Write header, event and its ids; the data size stays zero until `finish`."""
        packed_ids = b"".join(struct.pack("<Q", number) for number in ids)
        attrs_at = HEADER.size + len(packed_ids)
        attr_size = len(attr) + SECTION.size
        data_at = attrs_at + attr_size
        sections = (attrs_at, attr_size, data_at, 0, 0, 0)
        header = HEADER.pack(MAGIC, HEADER.size, attr_size, *sections, bytes(32))
        head = header + packed_ids + attr + SECTION.pack(HEADER.size, len(packed_ids))
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
        try:
            with files.named(path):
                _write_at(descriptor, head, 0)
        except OSError:
            os.close(descriptor)
            raise
        return cls(path, descriptor, data_at, data_at)

    def write(self, chunks: list[memoryview] | list[bytes]) -> None:
        """Append whole records; on a full disk the file keeps its previous contents."""
        size = sum(map(len, chunks))
        os.lseek(self.descriptor, self.end, os.SEEK_SET)
        try:
            # IOV_MAX is 1024 on Linux (include/uapi/linux/uio.h, UIO_MAXIOV).
            written = sum(
                os.writev(self.descriptor, chunks[at : at + 1024])
                for at in range(0, len(chunks), 1024)
            )
            if written < size:
                # A short write to a file means a full disk; writing the rest gives the error.
                rest = b"".join(bytes(chunk) for chunk in chunks)[written:]
                _write_at(self.descriptor, rest, self.end + written)
        except OSError:
            os.ftruncate(self.descriptor, self.end)
            raise
        self.end += size

    def finish(self, parts: dict[int, bytes]) -> None:
        """Add the features and close the file, also on an error."""
        try:
            _finish(self.descriptor, self.data_offset, self.end, parts)
        finally:
            os.close(self.descriptor)


def walk(stream: memoryview) -> Iterator[tuple[int, int, int]]:
    """Yield type, begin and end of each whole record, up to the first invalid one."""
    offset, limit = 0, len(stream)
    while offset + decode.RECORD.size <= limit:
        kind, _, size = decode.RECORD.unpack_from(stream, offset)
        if size < decode.RECORD.size or offset + size > limit:
            return
        yield kind, offset, offset + size
        offset += size


def sideband(stream: memoryview) -> bytes:
    """Return the records that are not samples: names, mappings, forks, exits."""
    records = (stream[begin:end] for kind, begin, end in walk(stream) if kind != decode.SAMPLE)
    return b"".join(records)


def read_head(path: pathlib.Path) -> bytes:
    """Read everything before the records; b"" when there is no valid header yet."""
    try:
        with path.open("rb") as file:
            header = _read_header(file.fileno())
            if header is None or not HEADER.size <= header[0] <= HEAD_LIMIT:
                return b""
            head = file.read(header[0])
    except OSError:
        return b""
    return head if len(head) == header[0] else b""


def _read_header(descriptor: int) -> tuple[int, int, int] | None:
    """Read offset and size of the data, and the bitmap of features; None without a valid header."""
    start = os.pread(descriptor, HEADER.size, 0)
    if len(start) < HEADER.size or not start.startswith(MAGIC):
        return None
    *_, data_offset, data_size, _, _, features = HEADER.unpack(start)
    return data_offset, data_size, int.from_bytes(features, "little")


def complete(
    path: pathlib.Path, parts: dict[int, bytes], head: bytes = b"", *, distrust: bool = False
) -> bool:
    """Finish a file that its writer abandoned; return whether that was necessary.

    With `distrust` also a finished one: on a full disk perf finishes its file with a hole in it. `head`
    replaces a header of zeros: after a switch perf writes the header of the new file only when it finishes
    it (perf 6.1, measured; perf_data__switch seeks past it), and it is the same for all files of one perf.
    """
    with path.open("r+b") as file:
        descriptor = file.fileno()
        if not os.pread(descriptor, len(MAGIC), 0).strip(b"\0") and head:
            _write_at(descriptor, head, 0)
            _write_at(descriptor, bytes(8), DATA_SIZE_AT)
            _write_at(descriptor, bytes(32), FEATURES_AT)
        header = _read_header(descriptor)
        if header is None:
            return False
        data_offset, data_size, _ = header
        size = os.fstat(descriptor).st_size
        if (data_size and not distrust) or data_offset > size:
            return False
        if data_size:
            size = min(size, data_offset + data_size)
            _write_at(descriptor, bytes(8), DATA_SIZE_AT)
            _write_at(descriptor, bytes(32), FEATURES_AT)
        end = data_offset
        if size > data_offset:
            with (
                mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as data,
                memoryview(data) as all_,
                all_[data_offset:size] as stream,
            ):
                for _, _, last in walk(stream):
                    end = data_offset + last
        _finish(descriptor, data_offset, end, parts)
    return True


def set_clock(path: pathlib.Path, began: perf.Clock) -> bool:
    """Correct the wall-clock reference of a finished file; return whether it was wrong.

    perf reads both clocks once, when it starts (record__init_clock): after a clock step every later file
    would have the wrong wall time. A millisecond is within the noise of the readings.
    """
    with path.open("r+b") as file:
        descriptor = file.fileno()
        header = _read_header(descriptor)
        if header is None:
            return False
        data_offset, data_size, bitmap = header
        size = os.fstat(descriptor).st_size
        if not data_size or data_offset + data_size > size or not bitmap >> CLOCK_DATA & 1:
            return False
        position = (bitmap & ((1 << CLOCK_DATA) - 1)).bit_count()
        table = data_offset + data_size
        section = os.pread(descriptor, SECTION.size, table + position * SECTION.size)
        if len(section) < SECTION.size:
            return False
        offset, length = SECTION.unpack(section)
        clock = os.pread(descriptor, 24, offset) if length == 24 and offset < size else b""
        if len(clock) < 24:
            return False
        wall, monotonic = SECTION.unpack_from(clock, 8)
        if abs(wall - monotonic - began.offset_ns) < 1_000_000:
            return False
        _write_at(descriptor, SECTION.pack(began.wall_ns, began.monotonic_ns), offset + 8)
    return True


def count_lost(path: pathlib.Path) -> int:
    """Sum the lost samples in the LOST records of a finished file.

    Searches for them instead of walking a million records, which takes Python a second. Bytes inside a
    stack that look like such a record are recognised by alignment, size, and the event id, which must be
    one of this file.
    """
    head = read_head(path)
    if not head:
        return 0
    ids = _event_ids(head)
    total = 0
    begin = len(head)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        end = min(begin + HEADER.unpack_from(head)[6], len(data))
        at = data.find(LOST_START, begin, end)
        while at >= 0:
            if (at - begin) % 8 == 0 and at + 24 <= end:
                size, event, lost = struct.unpack_from("<HQQ", data, at + 6)
                if 24 <= size <= 80 and event in ids:
                    total += lost
            at = data.find(LOST_START, at + 1, end)
    return total


def _event_ids(head: bytes) -> set[int]:
    """Read the ids of the events from the section that follows each event in the header."""
    _, _, attr_size, attrs, attrs_size, *_ = HEADER.unpack_from(head)
    ids: set[int] = set()
    if attr_size < SECTION.size or attrs + attrs_size > len(head):
        return ids
    for end in range(attrs + attr_size, attrs + attrs_size + 1, attr_size):
        offset, size = SECTION.unpack_from(head, end - SECTION.size)
        if offset + size <= len(head):
            ids.update(struct.unpack_from(f"<{size // 8}Q", head, offset))
    return ids
