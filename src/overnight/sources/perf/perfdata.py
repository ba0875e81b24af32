"""perf.data files: what their headers say, and their records as one plain stream.

Layout as perf writes it (tools/perf/Documentation/perf.data-file-format.txt)::

    magic "PERFILE2", header size, attr size, {attrs, data, event types: offset, size}, features
    attrs:    struct perf_event_attr, then the section of its event ids
    data:     records, each {u32 type, u16 misc, u16 size}, and its own fields
    features: a table of {offset, size} behind the data, one for each bit that is set

A file whose writer was killed has a data size of zero: its records run to the end of the file, and
there are no features. A pipe (`perf record -o -`) has a header of 16 bytes, and everything else is a
record.
"""

from __future__ import annotations

import contextlib
import dataclasses
import mmap
import pathlib
import struct
from collections.abc import Callable, Iterator
from typing import TypeAlias

from overnight import errors
from overnight.sources.perf import decode

try:
    from overnight.sources.perf import _perfdata
except ImportError:  # installed without a C compiler
    HAS_EXTENSION = False
    decode_stream = decode.decode
else:
    HAS_EXTENSION = True
    decode_stream = _perfdata.decode

__all__ = ["HAS_EXTENSION", "Clock", "Decompress", "Event", "PerfData", "open_perfdata"]

# Given a compressed piece, all that it adds to the stream; one instance a file.
Decompress: TypeAlias = Callable[[bytes], bytes]

MAGIC = b"PERFILE2"
HEADER = struct.Struct("<8sQQQQQQQQ")
RECORD = struct.Struct("<IHH")
SECTION = struct.Struct("<QQ")
ATTR = struct.Struct("<IIQQQQQ")
SAMPLE, HEADER_ATTR, TRACING_DATA, AUXTRACE, FEATURE, COMPRESSED, COMPRESSED2 = (
    9, 64, 66, 71, 80, 81, 83,
)  # fmt: skip
FEATURES = {3: "hostname", 4: "release", 7: "cores", 12: "events", 29: "clock"}
FLAG_FREQUENCY, FLAG_SAMPLE_ID_ALL = 1 << 10, 1 << 18
SAMPLE_IDENTIFIER = 1 << 16
NAMES = {(0, 0): "cycles", (0, 1): "instructions", (1, 0): "cpu-clock", (1, 1): "task-clock"}
# `-z` reaches 8 to 1 on real captures (measured); 100 to 1 is a bomb.
EXPANSION, EXPANSION_FLOOR = 100, 64 << 20


@dataclasses.dataclass(frozen=True)
class Event:
    """One event that was sampled."""

    name: str
    sample_type: int
    read_format: int
    sample_id_all: bool
    frequency: int  # 0 where a fixed period was asked for
    ids: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Clock:
    """One instant on two clocks: the samples' own and the wall's, in ns."""

    samples: int
    wall: int


@dataclasses.dataclass(frozen=True)
class PerfData:
    """An open perf.data file."""

    path: pathlib.Path
    events: tuple[Event, ...]
    hostname: str
    cores: int  # online when it was recorded; 0: not said
    clock: Clock | None
    finished: bool
    stream: memoryview
    stream_offset: int | None  # of the stream in the file; None where it was put together

    def decode(self) -> decode.Decoded:
        """Every sample; raises DamagedFileError naming the byte."""
        first = self.events[0]
        ids = sorted(
            (number, i) for i, event in enumerate(self.events[:256]) for number in event.ids
        )
        try:
            return decode_stream(
                self.stream,
                first.sample_type,
                first.read_format,
                first.sample_id_all,
                struct.pack(f"<{len(ids)}Q", *(number for number, _ in ids)),
                bytes(i for _, i in ids),
            )
        except ValueError as error:
            problem, offset = error.args
            where = "" if self.stream_offset is not None else " of the unpacked records"
            at = offset + (self.stream_offset or 0)
            raise errors.DamagedFileError(str(self.path), at, problem + where) from error
        finally:
            # Its pages count as our memory, and nobody will look at most of them again.
            if isinstance(self.stream.obj, mmap.mmap):
                self.stream.obj.madvise(mmap.MADV_DONTNEED)


class _Reader:
    """A file's bytes, with every read checked against its end."""

    def __init__(self, path: pathlib.Path, data: memoryview) -> None:
        self.path, self.data = path, data

    def damaged(self, offset: int, problem: str) -> errors.DamagedFileError:
        return errors.DamagedFileError(str(self.path), offset, problem)

    def unpack(self, form: struct.Struct, offset: int) -> tuple[int, ...]:
        if offset + form.size > len(self.data):
            raise self.damaged(min(offset, len(self.data)), "the file ends too early")
        return form.unpack_from(self.data, offset)

    def take(self, offset: int, size: int) -> memoryview:
        if offset + size > len(self.data):
            raise self.damaged(min(offset, len(self.data)), "a section lies past the end")
        return self.data[offset : offset + size]


@contextlib.contextmanager
def open_perfdata(
    path: pathlib.Path, decompress: Callable[[], Decompress] | None = None
) -> Iterator[PerfData]:
    """Map a perf.data file, finished or not, from a file or a pipe, plain or `-z`.

    `decompress` makes a zstd decompressor for one file; without it `-z` files are refused.
    """
    with path.open("rb") as file:
        try:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:  # an empty file cannot be mapped
            raise errors.DamagedFileError(str(path), 0, "the file is empty") from error
        with contextlib.ExitStack() as stack:
            stack.enter_context(mapped)
            whole = stack.enter_context(memoryview(mapped))
            reader = _Reader(path, whole)
            if bytes(whole[:8]) != MAGIC:
                raise reader.damaged(0, "it does not begin with PERFILE2")
            header_size = reader.unpack(struct.Struct("<Q"), 8)[0]
            if header_size == 16:
                found = _open_pipe(reader, decompress)
            else:
                found = _open_file(reader, decompress)
            stack.enter_context(found.stream)
            yield found


def _open_file(reader: _Reader, decompress: Callable[[], Decompress] | None) -> PerfData:
    _, _, attr_size, attrs, attrs_size, start, length, *_ = reader.unpack(HEADER, 0)
    if attr_size < ATTR.size + SECTION.size or attrs_size < attr_size:
        raise reader.damaged(16, f"no room for an event in {attrs_size} bytes")
    if start > len(reader.data):
        raise reader.damaged(40, "the records begin past the end of the file")
    events = []
    for at in range(attrs, min(attrs + attrs_size, len(reader.data) - attr_size + 1), attr_size):
        ids_at, ids_size = reader.unpack(SECTION, at + attr_size - SECTION.size)
        ids = bytes(reader.take(ids_at, ids_size - ids_size % 8))
        events.append(_event(reader, at, struct.unpack(f"<{len(ids) // 8}Q", ids)))
    finished = length > 0 and start + length <= len(reader.data)
    length = min(length or len(reader.data), len(reader.data) - start)
    features = _features(reader, start + length) if finished else {}
    view = reader.data[start : start + length]
    compressed = _plain(reader, view, start, decompress)
    if compressed is not None:
        return _assemble(reader, events, features, finished, compressed, None)
    return _assemble(reader, events, features, finished, view, start)


def _features(reader: _Reader, table: int) -> dict[str, bytes]:
    bits = int.from_bytes(reader.take(72, 32), "little")
    found = {}
    for number in range(bits.bit_length()):
        if bits >> number & 1:
            offset, size = reader.unpack(SECTION, table)
            table += SECTION.size
            if number in FEATURES:
                found[FEATURES[number]] = bytes(reader.take(offset, size))
    return found


def _open_pipe(reader: _Reader, decompress: Callable[[], Decompress] | None) -> PerfData:
    events, features = [], {}
    offset, end = 16, len(reader.data)
    start = offset
    while offset + RECORD.size <= end:
        kind, _, size = RECORD.unpack_from(reader.data, offset)
        if size < RECORD.size:
            raise reader.damaged(offset, f"a record of {size} bytes")
        if kind in (SAMPLE, COMPRESSED, COMPRESSED2) or offset + size > end:
            break
        if kind == HEADER_ATTR:
            attr_size = reader.unpack(ATTR, offset + 8)[1]
            ids = bytes(reader.data[offset + 8 + attr_size : offset + size])
            ids = ids[: len(ids) - len(ids) % 8]
            events.append(_event(reader, offset + 8, struct.unpack(f"<{len(ids) // 8}Q", ids)))
        elif kind == FEATURE and size >= 16:
            number = reader.unpack(struct.Struct("<Q"), offset + 8)[0]
            if number in FEATURES:
                features[FEATURES[number]] = bytes(reader.data[offset + 16 : offset + size])
        elif kind in (TRACING_DATA, AUXTRACE):
            # Followed by data that is no record: the stream begins behind it.
            size += reader.unpack(struct.Struct("<Q"), offset + 8)[0] & 0xFFFFFFFF
            start = offset + size
        offset += size
    if start > end:
        raise reader.damaged(16, "trace data runs past the end of the file")
    view = reader.data[start:]
    compressed = _plain(reader, view, start, decompress)
    # A pipe has no end mark: whether its writer was cut off cannot be told.
    if compressed is not None:
        return _assemble(reader, events, features, True, compressed, None)
    return _assemble(reader, events, features, True, view, start)


def _event(reader: _Reader, at: int, ids: tuple[int, ...]) -> Event:
    kind, _, config, period, sample_type, read_format, flags = reader.unpack(ATTR, at)
    return Event(
        name=NAMES.get((kind, config), f"event {kind}:{config:#x}"),
        sample_type=sample_type,
        read_format=read_format,
        sample_id_all=bool(flags & FLAG_SAMPLE_ID_ALL),
        frequency=period if flags & FLAG_FREQUENCY else 0,
        ids=ids,
    )


def _assemble(
    reader: _Reader,
    events: list[Event],
    features: dict[str, bytes],
    finished: bool,
    stream: memoryview,
    stream_offset: int | None,
) -> PerfData:
    if not events:
        raise reader.damaged(16, "no event is described")
    kinds = {(event.sample_type, event.read_format, event.sample_id_all) for event in events}
    if len(kinds) > 1:
        raise reader.damaged(24, "its events carry different fields, which is not supported")
    names = _event_names(features.get("events", b""))
    if len(names) == len(events):
        events = [dataclasses.replace(e, name=n) for e, n in zip(events, names, strict=True)]
    clock = None
    if len(features.get("clock", b"")) >= 24:
        _, _, wall, samples = struct.unpack_from("<IIQQ", features["clock"])
        clock = Clock(samples, wall)
    cores = features.get("cores", b"")
    return PerfData(
        path=reader.path,
        events=tuple(events),
        hostname=_string(features.get("hostname", b"")),
        cores=struct.unpack_from("<I", cores)[0] if len(cores) >= 8 else 0,
        clock=clock,
        finished=finished,
        stream=stream,
        stream_offset=stream_offset,
    )


def _string(field: bytes) -> str:
    """Perf's strings: u32 length with padding, then text to the first zero."""
    return field[4:].partition(b"\0")[0].decode("utf-8", "replace")


def _event_names(field: bytes) -> list[str]:
    """The EVENT_DESC feature: count, attr size, then {attr, ids, name, ids…} each."""
    names: list[str] = []
    try:
        count, attr_size = struct.unpack_from("<II", field)
        at = 8
        for _ in range(min(count, 256)):
            ids, length = struct.unpack_from("<II", field, at + attr_size)
            at += attr_size + 8
            names.append(field[at : at + length].partition(b"\0")[0].decode("utf-8", "replace"))
            at += length + 8 * ids
    except struct.error:
        return []
    return names


def _plain(
    reader: _Reader, view: memoryview, start: int, make: Callable[[], Decompress] | None
) -> memoryview | None:
    """The stream with what `-z` packed unpacked; None where nothing is packed.

    A record may be cut in two by the end of a packed piece; plain records may stand in between. So
    the halves of packed records are joined before anything else follows.
    """
    first = _first_packed(view)
    if first is None:
        return None
    if make is None:
        raise reader.damaged(start + first, "compressed records, and no zstd to unpack them")
    unpack = make()
    limit = EXPANSION_FLOOR + EXPANSION * len(view)
    out, half = bytearray(view[:first]), b""
    offset = first
    while offset + RECORD.size <= len(view):
        kind, _, size = RECORD.unpack_from(view, offset)
        if size < RECORD.size or offset + size > len(view):
            break
        if kind not in (COMPRESSED, COMPRESSED2):
            out += view[offset : offset + size]
            offset += size
            continue
        piece = bytes(view[offset + 8 : offset + size])
        if kind == COMPRESSED2:  # since perf 6.16: its true length first, then padding
            piece = piece[8 : 8 + int.from_bytes(piece[:8], "little")]
        try:
            packed = half + unpack(piece)
        except Exception as error:
            raise reader.damaged(start + offset, f"compressed records: {error}") from error
        whole = _whole_records(packed)
        out += packed[:whole]
        half = packed[whole:]
        if len(out) > limit:
            raise reader.damaged(start + offset, f"unpacks to over {limit >> 20} MiB")
        offset += size
    return memoryview(bytes(out))


def _first_packed(view: memoryview) -> int | None:
    """Where the first compressed record is. They come before any plain sample, or not at all."""
    offset = 0
    while offset + RECORD.size <= len(view):
        kind, _, size = RECORD.unpack_from(view, offset)
        if kind in (COMPRESSED, COMPRESSED2):
            return offset
        if kind == SAMPLE or size < RECORD.size:
            return None
        offset += size
    return None


def _whole_records(packed: bytes) -> int:
    """How many bytes are whole records."""
    offset = 0
    while offset + RECORD.size <= len(packed):
        size = int.from_bytes(packed[offset + 6 : offset + 8], "little")
        if size < RECORD.size or offset + size > len(packed):
            break
        offset += size
    return offset
