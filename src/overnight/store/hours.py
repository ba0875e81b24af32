"""Hour files: sums by second of an hour. A heatmap of a night reads 12 of them, not 720 segments.

    HOME/profiles/v1/HOST/20261115/498535.hour    498535 is the hour since the epoch

Derived from the segments that began in that hour, and optional: deleting one is always safe. What it
lacks (a segment stored later) is read from the segments. It is written once, with the first segment of
a later hour, and removed before a segment appears in its hour.

    overnight.hour/1, the index's length as u64, its blake2b of 16 bytes
    index: JSON; the segments by name with their descriptions, in the order of their sums
    u16[mode][segment][second][core]
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import pathlib
import re
import struct
import tempfile
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from overnight import errors
from overnight.model import files
from overnight.model.times import HOUR_US
from overnight.store import segments

HEAD = struct.Struct("<16sQ16s")
MAGIC = b"overnight.hour/1"
NAME = re.compile(r"(-?\d{1,10})\.hour")
MAX_INDEX = 64 << 20
INDEX = 64 << 10  # as many bytes as it has at most, mostly
LEFT_OUT = ("cores", "files")


@dataclasses.dataclass(frozen=True)
class Entry:
    """One segment: its description without checksums, and where its sums begin."""

    meta: segments.Meta
    shape: tuple[int, int]  # seconds, cores
    first: int  # cells before it


@dataclasses.dataclass(frozen=True)
class Hour:
    """What an hour's file holds, by the name of a segment's folder."""

    identity: tuple[int, int, int]  # of the file it was read from
    begins: int  # bytes before the sums
    cells: int
    entries: dict[str, Entry]


@dataclasses.dataclass(frozen=True)
class Plane:
    """The sums of one mode of all segments of an hour."""

    hour: Hour
    values: npt.NDArray[np.uint16]

    def of(self, name: str) -> npt.NDArray[np.uint16]:
        """One segment's, by second and core."""
        entry = self.hour.entries[name]
        seconds, cores = entry.shape
        return self.values[entry.first : entry.first + seconds * cores].reshape(entry.shape)


def hour_file(segment: segments.Segment) -> pathlib.Path:
    """Return the file that holds the segment's sums, if it exists."""
    return segment.path.with_name(f"{segment.begin_us // HOUR_US}.hour")


def read_ahead(paths: Iterable[pathlib.Path], mode: str) -> None:
    """Let the kernel prefetch what `read` will need."""
    ranges = []
    for path in paths:
        with contextlib.suppress(OSError):
            size = path.stat().st_size
            # The index is about a hundredth of the file: the sums of each mode are a quarter.
            begin = max(0, size * segments.MODES.index(mode) // len(segments.MODES))
            ranges += [(path, 0, INDEX), (path, begin, size // len(segments.MODES) + INDEX)]
    segments.read_ahead(ranges)


def read(path: pathlib.Path, mode: str, known: Hour | None = None) -> Plane | None:
    """Read the sums of one mode; None: the file is missing or incomplete, use the segments.

    `known` is the result of an earlier call: its index is reused if the file is the same.
    """
    try:
        with path.open("rb") as file:
            stat = os.fstat(file.fileno())
            hour = known
            identity = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if hour is None or hour.identity != identity:
                hour = _parse_index(file.read(HEAD.size), file.read, identity)
            file.seek(hour.begins + 2 * hour.cells * segments.MODES.index(mode))
            values = np.fromfile(file, "<u2", count=hour.cells)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, struct.error):
        return None
    return Plane(hour, values) if len(values) == hour.cells else None


def _parse_index(head: bytes, more: Callable[[int], bytes], identity: tuple[int, int, int]) -> Hour:
    magic, length, digest = HEAD.unpack(head)
    if magic != MAGIC or length > MAX_INDEX:
        raise ValueError("no file of an hour")
    index = more(length)
    if hashlib.blake2b(index, digest_size=16).digest() != digest:
        raise ValueError("its index has changed")
    document = json.loads(index)
    entries = {}
    first = 0
    for name, cores, description in document["segments"]:
        meta = segments.parse_description(
            {**description, "cores": document["cores"][cores], "files": {}}
        )
        shape = (
            segments.clock_seconds(meta.begin_us, meta.end_us, timed=meta.timed),
            len(meta.cores),
        )
        entries[name] = Entry(meta, shape, first)
        first += shape[0] * shape[1]
    begins = HEAD.size + length
    if identity[2] != begins + 2 * first * len(segments.MODES):
        raise ValueError("it is not as long as it should be")
    return Hour(identity, begins, first, entries)


def write_missing(catalogue: segments.Catalogue) -> tuple[pathlib.Path, ...]:
    """Write the missing files of all hours before the last one of each host."""
    written: list[pathlib.Path] = []
    for host in catalogue.hosts():
        found = catalogue.segments(host)
        last = max((segment.begin_us // HOUR_US for segment in found), default=0)
        written += _write_hours(s for s in found if s.begin_us // HOUR_US < last)
    return tuple(written)


def keep_up(segment: segments.Segment) -> None:
    """Write the files of past hours of the day; called after a segment was written.

    The files are optional: errors are ignored.
    """
    day = segment.path.parent
    hour = segment.begin_us // HOUR_US
    if day.name == segments.LONG or (day / f"{hour - 1}.hour").exists():
        return
    with contextlib.suppress(OSError, errors.OvernightError):
        _write_hours(
            s for s in segments.in_folder(day, segment.host) if s.begin_us // HOUR_US < hour
        )


def forget(segment: segments.Segment) -> int:
    """Remove the hour file before a segment appears or after it was removed; return its bytes."""
    path = hour_file(segment)
    try:
        size = path.stat().st_size
        path.unlink()
    except FileNotFoundError:
        return 0
    return size


def _write_hours(found: Iterable[segments.Segment]) -> list[pathlib.Path]:
    hours: dict[pathlib.Path, list[segments.Segment]] = {}
    for segment in found:
        if segment.path.parent.name != segments.LONG:
            hours.setdefault(hour_file(segment), []).append(segment)
    missing = {path: some for path, some in hours.items() if not path.exists()}
    for path, some in missing.items():
        _write(path, sorted(some, key=lambda segment: segment.path.name))
    return list(missing)


def _write(path: pathlib.Path, found: list[segments.Segment]) -> None:
    cores: dict[tuple[int, ...], int] = {}
    rows: list[tuple[str, int, dict[str, Any]]] = []
    planes: list[list[npt.NDArray[np.uint16]]] = [[] for _ in segments.MODES]
    for segment in found:
        meta = segment.meta()
        shape = (
            segments.clock_seconds(meta.begin_us, meta.end_us, timed=meta.timed),
            len(meta.cores),
        )
        for mode, some in zip(segments.MODES, planes, strict=True):
            some.append(segment.seconds(mode, shape).ravel())
        document = {k: v for k, v in dataclasses.asdict(meta).items() if k not in LEFT_OUT}
        rows.append((segment.path.name, cores.setdefault(meta.cores, len(cores)), document))
    index = json.dumps({"cores": list(cores), "segments": rows}).encode()
    digest = hashlib.blake2b(index, digest_size=16).digest()
    # Synced before the rename: readers check the length of the sums, not their content. Not
    # files.write_atomically: the lock tells `store check --clean` that the writer is alive.
    descriptor, fresh = tempfile.mkstemp(prefix=".new-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(HEAD.pack(MAGIC, len(index), digest) + index)
            for some in planes:
                file.write(np.concatenate(some).tobytes())
            file.flush()
            os.fchmod(descriptor, 0o644)
            os.fsync(descriptor)
            pathlib.Path(fresh).rename(path)
        files.sync_folder(path.parent)
    finally:
        pathlib.Path(fresh).unlink(missing_ok=True)
