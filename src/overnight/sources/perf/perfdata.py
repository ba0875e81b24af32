"""Reads perf.data files: their headers, and their records as one plain stream.

Layout as perf writes it (tools/perf/Documentation/perf.data-file-format.txt)::

    magic "PERFILE2", header size, attr size, {attrs, data, event types: offset, size}, features
    attrs:    struct perf_event_attr, then the section of its event ids
    data:     records, each {u32 type, u16 misc, u16 size}, and its own fields
    features: a table of {offset, size} after the data, one for each bit that is set

A file whose writer was killed has a data size of zero: its records extend to the end of the file, and there
are no features. A pipe (`perf record -o -`) has a header of 16 bytes, and everything else is a record.
"""

from __future__ import annotations

import contextlib
import dataclasses
import mmap
import pathlib
import struct
from collections.abc import Callable, Iterator

from overnight import errors
from overnight.sources.perf import compressed, decode, segmentfile

try:
    from overnight.sources.perf import _perfdata
except ImportError:  # installed without a C compiler
    HAS_EXTENSION = False
    decode_stream = decode.decode
else:
    HAS_EXTENSION = True
    decode_stream = _perfdata.decode

HEADER = struct.Struct("<8sQQQQQQQQ")
RECORD = decode.RECORD
ATTR = struct.Struct("<IIQQQQQ")
HEADER_ATTR, TRACING_DATA, AUXTRACE, FEATURE = 64, 66, 71, 80
FEATURES = {3: "hostname", 4: "release", 7: "cores", 12: "events", 29: "clock"}
FLAG_FREQUENCY, FLAG_SAMPLE_ID_ALL, FLAG_BUILD_ID = 1 << 10, 1 << 18, 1 << 34
NAMES = {(0, 0): "cycles", (0, 1): "instructions", (1, 0): "cpu-clock", (1, 1): "task-clock"}
DUMMY = (1, 9)  # type and config of the software event that takes no samples
# Event numbers are a byte; there is an id for each event on each core.
EVENTS_LIMIT, IDS_LIMIT, CORES_LIMIT = 256, 1 << 20, 1 << 16


@dataclasses.dataclass(frozen=True)
class Event:
    name: str
    sample_type: int
    read_format: int
    sample_id_all: bool
    build_ids: bool  # records of mapped files may have the build id instead of the inode
    frequency: int  # 0 where the event has a fixed period
    ids: tuple[int, ...]
    dummy: bool = False  # takes no samples: perf uses it for process records


@dataclasses.dataclass(frozen=True)
class Clock:
    """One instant on two clocks: the samples' own and the wall clock, in ns."""

    samples: int
    wall: int


@dataclasses.dataclass(frozen=True)
class PerfData:
    path: pathlib.Path
    events: tuple[Event, ...]
    hostname: str
    cores: int  # online when it was recorded; 0 if unknown
    clock: Clock | None
    finished: bool
    stream: memoryview
    stream_offset: int | None  # of the stream in the file; None where it was unpacked

    def decode(self) -> decode.Decoded:
        """Decode every sample; raise DamagedFileError with the offset of the damage."""
        first = next((event for event in self.events if not event.dummy), self.events[0])
        # If no event asks for build ids, the flag in a record is that of another recording: the kernel sets
        # it in a header that all recordings of a host share (88a16a130933; measured on 6.18).
        build_ids = any(event.build_ids for event in self.events)
        ids = sorted((number, i) for i, event in enumerate(self.events) for number in event.ids)
        try:
            return decode_stream(
                self.stream,
                first.sample_type,
                first.read_format,
                first.sample_id_all,
                build_ids,
                struct.pack(f"<{len(ids)}Q", *(number for number, _ in ids)),
                bytes(i for _, i in ids),
                self._forget,
            )
        except ValueError as error:
            problem, offset = error.args
            where = "" if self.stream_offset is not None else " of the unpacked records"
            at = offset + (self.stream_offset or 0)
            raise errors.DamagedFileError(str(self.path), at, problem + where) from error
        finally:
            self._forget(len(self.stream))

    def _forget(self, offset: int) -> None:
        """Release the pages up to `offset`: mapped pages count as memory of this process."""
        if isinstance(self.stream.obj, mmap.mmap) and self.stream_offset is not None:
            end = (self.stream_offset + offset) // mmap.PAGESIZE * mmap.PAGESIZE
            # A released page is read from the file again when needed.
            self.stream.obj.madvise(mmap.MADV_DONTNEED, 0, end)


@dataclasses.dataclass(frozen=True)
class _Reader:
    """A file's bytes; every read is checked against its end."""

    path: pathlib.Path
    data: memoryview
    create_decompressor: Callable[[], compressed.Decompress] | None

    def damaged(self, offset: int, problem: str) -> errors.DamagedFileError:
        return errors.DamagedFileError(str(self.path), offset, problem)

    def unpack(self, form: struct.Struct, offset: int) -> tuple[int, ...]:
        if offset + form.size > len(self.data):
            raise self.damaged(min(offset, len(self.data)), "the file ends too early")
        return form.unpack_from(self.data, offset)

    def take(self, offset: int, size: int) -> memoryview:
        if offset + size > len(self.data):
            raise self.damaged(min(offset, len(self.data)), "a section is past the end of the file")
        return self.data[offset : offset + size]


@contextlib.contextmanager
def open_perfdata(
    path: pathlib.Path, decompress: Callable[[], compressed.Decompress] | None = None
) -> Iterator[PerfData]:
    """Map a perf.data file, finished or not, from a file or a pipe, plain or `-z`.

    `decompress` creates a zstd decompressor for one file; without it `-z` files are refused.
    """
    with path.open("rb") as file:
        try:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:  # an empty file cannot be mapped
            raise errors.DamagedFileError(str(path), 0, "the file is empty") from error
        with contextlib.ExitStack() as stack:
            stack.callback(_close, mapped)
            whole = stack.enter_context(memoryview(mapped))
            reader = _Reader(path, whole, decompress)
            if bytes(whole[:8]) != segmentfile.MAGIC:
                raise reader.damaged(0, "the file does not begin with PERFILE2")
            header_size = reader.unpack(decode.U64, 8)[0]
            perfdata = _open_pipe(reader) if header_size == 16 else _open_file(reader)
            stack.enter_context(perfdata.stream)
            yield perfdata


def _close(mapped: mmap.mmap) -> None:
    # The traceback of an error holds views of the file, which is unmapped with the traceback.
    with contextlib.suppress(BufferError):
        mapped.close()


def _open_file(reader: _Reader) -> PerfData:
    _, _, attr_size, attrs, attrs_size, start, length, *_ = reader.unpack(HEADER, 0)
    if attr_size < ATTR.size + segmentfile.SECTION.size or attrs_size < attr_size:
        raise reader.damaged(16, f"no room for an event in {attrs_size} bytes")
    if start > len(reader.data):
        raise reader.damaged(40, "the records begin past the end of the file")
    events: list[Event] = []
    for at in range(attrs, min(attrs + attrs_size, len(reader.data) - attr_size + 1), attr_size):
        ids_at, ids_size = reader.unpack(
            segmentfile.SECTION, at + attr_size - segmentfile.SECTION.size
        )
        _add_event(reader, at, events, reader.take(ids_at, ids_size - ids_size % 8))
    finished = length > 0 and start + length <= len(reader.data)
    length = min(length or len(reader.data), len(reader.data) - start)
    features = _features(reader, start + length) if finished else {}
    return _assemble(reader, events, features, finished, start, start + length)


def _features(reader: _Reader, table: int) -> dict[str, tuple[int, bytes]]:
    bits = int.from_bytes(reader.take(72, 32), "little")
    features = {}
    for number in range(bits.bit_length()):
        if bits >> number & 1:
            offset, size = reader.unpack(segmentfile.SECTION, table)
            table += segmentfile.SECTION.size
            if number in FEATURES:
                features[FEATURES[number]] = offset, bytes(reader.take(offset, size))
    return features


def _open_pipe(reader: _Reader) -> PerfData:
    events: list[Event] = []
    features: dict[str, tuple[int, bytes]] = {}
    offset, end = 16, len(reader.data)
    start = offset
    while offset + RECORD.size <= end:
        kind, _, size = RECORD.unpack_from(reader.data, offset)
        if size < RECORD.size:
            raise reader.damaged(offset, f"a record of {size} bytes")
        samples = (decode.SAMPLE, compressed.COMPRESSED, compressed.COMPRESSED2)
        if kind in samples or offset + size > end:
            break
        if kind == HEADER_ATTR:
            if size < RECORD.size + ATTR.size:
                raise reader.damaged(offset, f"no room for an event in {size} bytes")
            attr_size = reader.unpack(ATTR, offset + 8)[1]
            ids = reader.data[offset + 8 + attr_size : offset + size]
            _add_event(reader, offset + 8, events, ids[: len(ids) - len(ids) % 8])
        elif kind == FEATURE and size >= 16:
            number = reader.unpack(decode.U64, offset + 8)[0]
            if number in FEATURES:
                content = bytes(reader.data[offset + 16 : offset + size])
                features[FEATURES[number]] = offset + 16, content
        elif kind in (TRACING_DATA, AUXTRACE):
            # Followed by data that is not a record: the stream begins after it.
            size += reader.unpack(decode.U64, offset + 8)[0] & 0xFFFFFFFF
            start = offset + size
        offset += size
    if start > end:
        raise reader.damaged(16, "trace data runs past the end of the file")
    # A pipe has no end mark: whether it is complete is unknown.
    return _assemble(reader, events, features, True, start, end)


def _add_event(reader: _Reader, at: int, events: list[Event], raw_ids: memoryview) -> None:
    count = len(raw_ids) // 8
    if len(events) == EVENTS_LIMIT or count + sum(len(e.ids) for e in events) > IDS_LIMIT:
        raise reader.damaged(at, f"more than {EVENTS_LIMIT} events, or {IDS_LIMIT} ids of them,")
    kind, _, config, period, sample_type, read_format, flags = reader.unpack(ATTR, at)
    if flags & FLAG_FREQUENCY and period > 10**9:
        raise reader.damaged(at + 16, f"{period} samples a second")
    events.append(
        Event(
            name=NAMES.get((kind, config), f"event {kind}:{config:#x}"),
            sample_type=sample_type,
            read_format=read_format,
            sample_id_all=bool(flags & FLAG_SAMPLE_ID_ALL),
            build_ids=bool(flags & FLAG_BUILD_ID),
            frequency=period if flags & FLAG_FREQUENCY else 0,
            ids=struct.unpack(f"<{count}Q", raw_ids),
            dummy=(kind, config) == DUMMY,
        )
    )


def _assemble(
    reader: _Reader,
    events: list[Event],
    features: dict[str, tuple[int, bytes]],
    finished: bool,
    start: int,
    end: int,
) -> PerfData:
    view = reader.data[start:end]
    unpacked = compressed.unpack(view, start, reader.create_decompressor, reader.damaged)
    if not events:
        raise reader.damaged(16, "the file does not describe an event")
    kinds = {(e.sample_type, e.read_format, e.sample_id_all) for e in events if not e.dummy}
    tails = {(e.sample_type & decode.TAIL, e.sample_id_all) for e in events}
    if len(kinds) > 1 or len(tails) > 1:
        raise reader.damaged(24, "events with different sample fields are not supported")
    content = {name: part for name, (_, part) in features.items()}
    names = _event_names(content.get("events", b""))
    if len(names) == len(events):
        events = [dataclasses.replace(e, name=n) for e, n in zip(events, names, strict=True)]
    clock = None
    if len(content.get("clock", b"")) >= 24:
        _, _, wall, samples = struct.unpack_from("<IIQQ", content["clock"])
        if max(wall, samples) >= 2**62:
            raise reader.damaged(features["clock"][0], "a clock in the year 2116 or later")
        clock = Clock(samples, wall)
    # NRCPUS: available cores, online cores, u32 each.
    cores = int.from_bytes(content.get("cores", b"")[4:8], "little")
    if cores > CORES_LIMIT:
        raise reader.damaged(features["cores"][0], f"a host of {cores} cores")
    return PerfData(
        path=reader.path,
        events=tuple(events),
        hostname=_string(content.get("hostname", b"")[4:]),  # after its length
        cores=cores,
        clock=clock,
        finished=finished,
        stream=view if unpacked is None else unpacked,
        stream_offset=start if unpacked is None else None,
    )


def _string(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "replace")


def _event_names(field: bytes) -> list[str]:
    """Parse the EVENT_DESC feature: count, attr size, then {attr, ids, name, ids…} each."""
    names: list[str] = []
    try:
        count, attr_size = struct.unpack_from("<II", field)
        at = 8
        for _ in range(min(count, 256)):
            ids, length = struct.unpack_from("<II", field, at + attr_size)
            at += attr_size + 8
            names.append(_string(field[at : at + length]))
            at += length + 8 * ids
    except struct.error:
        return []
    return names
