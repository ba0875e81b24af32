"""perf.data files: the header here, the records in C (`_perfdata`) or in Python (`records`).

Layout as perf writes it (tools/perf/Documentation/perf.data-file-format.txt)::

    magic "PERFILE2", header size, attr size, {attrs, data, event types: offset, size}, features
    attrs:  struct perf_event_attr, then the section of its event ids
    data:   records, each {u32 type, u16 misc, u16 size}, and its own fields

A file whose writer was killed has a data size of zero: its records run to the end of the file.
"""

from __future__ import annotations

import dataclasses
import mmap
import pathlib
import struct

from overnight import errors
from overnight.sources.perf import records

try:
    from overnight.sources.perf import _perfdata
except ImportError:  # installed without a C compiler
    HAS_EXTENSION = False
    decode_records = records.decode_records
else:
    HAS_EXTENSION = True
    decode_records = _perfdata.decode_records

__all__ = ["HAS_EXTENSION", "Header", "Samples", "parse_header", "read_samples"]

MAGIC = b"PERFILE2"
HEADER = struct.Struct("<8sQQQQQQQQ")
ATTR_START = struct.Struct("<IIQQQQQ")


@dataclasses.dataclass(frozen=True)
class Header:
    """Where the records are, and what each sample in them carries."""

    data_offset: int
    data_size: int
    sample_type: int
    finished: bool


@dataclasses.dataclass(frozen=True)
class Samples:
    """The samples of one file, a column each, in file order. `mode` is 1 kernel, 2 user."""

    time: memoryview
    cpu: memoryview
    pid: memoryview
    tid: memoryview
    mode: memoryview
    comms: dict[int, str]
    lost: int
    finished: bool

    def __len__(self) -> int:
        return len(self.time)


def parse_header(data: bytes | mmap.mmap, path: str) -> Header:
    """The header of a perf.data file; raises DamagedFileError naming the byte."""
    size = len(data)
    if size < HEADER.size:
        raise errors.DamagedFileError(path, size, "the file ends inside its header")
    magic, _, attr_size, attrs, attrs_size, start, length, *_ = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise errors.DamagedFileError(path, 0, "it does not begin with PERFILE2")
    if attr_size < ATTR_START.size or attrs_size < attr_size:
        raise errors.DamagedFileError(path, 16, f"no room for an event in {attrs_size} bytes")
    if attrs + attr_size > size or start > size:
        raise errors.DamagedFileError(path, 24, "a section lies past the end of the file")
    sample_type = ATTR_START.unpack_from(data, attrs)[4]
    finished = length > 0
    return Header(start, min(length or size, size - start), sample_type, finished)


def read_samples(path: pathlib.Path) -> Samples:
    """Every sample of a perf.data file, also of one whose recorder was killed."""
    with path.open("rb") as file:
        try:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:  # an empty file cannot be mapped
            raise errors.DamagedFileError(str(path), 0, "the file is empty") from error
        with data:
            header = parse_header(data, str(path))
            end = header.data_offset + header.data_size
            with memoryview(data) as whole, whole[header.data_offset : end] as stream:
                try:
                    time, cpu, pid, tid, mode, names, lost = decode_records(
                        stream, header.sample_type
                    )
                except ValueError as error:
                    problem, offset = error.args
                    at = header.data_offset + offset
                    raise errors.DamagedFileError(str(path), at, problem) from error
    comms = {tid_: name.decode("utf-8", "replace") for tid_, name in names}
    comms[0] = "swapper"
    return Samples(
        time=memoryview(time).cast("Q"),
        cpu=memoryview(cpu).cast("I"),
        pid=memoryview(pid).cast("i"),
        tid=memoryview(tid).cast("i"),
        mode=memoryview(mode),
        comms=comms,
        lost=lost,
        finished=header.finished,
    )
