"""Hour files: sums by second of an hour. A heatmap of a night reads 12 of them, not 720 segments.

    HOME/profiles/v1/HOST/20261115/498535.hour    498535 is the hour since the epoch

Derived from the segments that began in that hour, and optional: deleting one is always safe, and
segments that it lacks are read directly. It is written with the first segment of the next hour, and
removed before a segment appears in its hour.

    overnight.hour/1, the index's length as u64, its blake2b of 16 bytes
    index: JSON; the segments by name with their descriptions, in the order of their sums; a CRC-32 per mode
    u16[mode][segment][second][core]
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import math
import os
import pathlib
import struct
import tempfile
import zlib
from collections.abc import Iterable
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from overnight import errors
from overnight.model import files
from overnight.model.times import HOUR_US
from overnight.store import segments
from overnight.store.ring import columns

HEAD = struct.Struct("<16sQ16s")
MAGIC = b"overnight.hour/1"
MAX_INDEX = 64 << 20
USUAL_INDEX = 64 << 10  # few indexes are larger


@dataclasses.dataclass(frozen=True)
class Entry:
    """One segment: its description without checksums, and where its sums begin."""

    meta: segments.Meta
    first: int  # cells before it


@dataclasses.dataclass(frozen=True)
class Hour:
    """The index of an hour file; `entries` by the name of a segment's folder."""

    identity: tuple[int, int, int]  # of the file it was read from
    begins: int  # bytes before the sums
    cells: int
    entries: dict[str, Entry]
    crc32: dict[str, int]  # of the sums of each mode; older files have none


@dataclasses.dataclass(frozen=True)
class Plane:
    """The sums of one mode of all segments of an hour."""

    hour: Hour
    values: npt.NDArray[np.uint16]

    def of(self, name: str) -> npt.NDArray[np.uint16]:
        """Return one segment's sums, by second and core."""
        entry = self.hour.entries[name]
        shape = entry.meta.shape
        return self.values[entry.first : entry.first + math.prod(shape)].reshape(shape)


def hour_file(segment: segments.Segment) -> pathlib.Path:
    """Return the file that holds the segment's sums, if it exists."""
    return segment.path.with_name(f"{segment.begin_us // HOUR_US}.hour")


def read_ahead(paths: Iterable[pathlib.Path], mode: str) -> None:
    """Let the kernel prefetch what `read` will need."""
    ranges = []
    for path in paths:
        with contextlib.suppress(OSError):
            # The index is about a hundredth of the file: the sums of each mode are a quarter.
            quarter = path.stat().st_size // len(segments.MODES)
            begin = quarter * segments.MODES.index(mode)
            ranges += [(path, 0, USUAL_INDEX), (path, begin, quarter + USUAL_INDEX)]
    segments.read_ahead(ranges)


def read(path: pathlib.Path, mode: str, known: Hour | None = None) -> Plane | None:
    """Read the sums of one mode, with the index of `known` if the file is the same; None: use the segments."""
    try:
        with path.open("rb") as file:
            stat = os.fstat(file.fileno())
            identity = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            hour = known if known and known.identity == identity else _read_index(file, identity)
            file.seek(hour.begins + 2 * hour.cells * segments.MODES.index(mode))
            values = np.fromfile(file, "<u2", count=hour.cells)
    except (OSError, struct.error, *columns.INVALID):
        return None
    crc32 = zlib.crc32(values.data)
    intact = len(values) == hour.cells and crc32 == hour.crc32.get(mode, crc32)
    return Plane(hour, values) if intact else None


def _read_index(file: BinaryIO, identity: tuple[int, int, int]) -> Hour:
    magic, length, digest = HEAD.unpack(file.read(HEAD.size))
    if magic != MAGIC or length > MAX_INDEX:
        raise ValueError("not an hour file")
    index = file.read(length)
    if hashlib.blake2b(index, digest_size=16).digest() != digest:
        raise ValueError("its index has changed")
    document = json.loads(index)
    entries = {}
    first = 0
    for name, cores, description in document["segments"]:
        meta = segments.parse_description(
            {**description, "cores": document["cores"][cores], "files": {}}
        )
        entries[name] = Entry(meta, first)
        first += math.prod(meta.shape)
    begins = HEAD.size + length
    if identity[2] != begins + 2 * first * len(segments.MODES):
        raise ValueError("it has the wrong length")
    return Hour(identity, begins, first, entries, dict(document.get("crc32", {})))


def write_past(segment: segments.Segment) -> None:
    """Write the missing files of the hours before a segment, of its day and of the recorded day before."""
    hour, own = segment.begin_us // HOUR_US, segment.path.parent
    before = own.with_name(segments.day_of((hour - 1) * HOUR_US))
    if own.name == segments.LONG or (before / f"{hour - 1}.hour").exists():
        return
    hours: dict[pathlib.Path, list[segments.Segment]] = {}
    with contextlib.suppress(OSError, errors.OvernightError):  # the files are optional
        # The last hour of a day ends with the next segment, days later if the recording was paused.
        days = sorted(day for day in own.parent.iterdir() if segments.LONG < day.name <= own.name)
        for other in (each for day in days[-2:] for each in segments.in_folder(day, segment.host)):
            if other.begin_us // HOUR_US < hour:
                hours.setdefault(hour_file(other), []).append(other)
        for path, inside in hours.items():
            if not path.exists():
                _write(path, sorted(inside, key=lambda segment: segment.path.name))


def forget(segment: segments.Segment) -> int:
    """Remove the hour file before a segment appears or after it was removed; return its bytes."""
    path = hour_file(segment)
    try:
        size = path.stat().st_size
        path.unlink()
    except FileNotFoundError:
        return 0
    return size


def _write(path: pathlib.Path, inside: list[segments.Segment]) -> None:
    cores: dict[tuple[int, ...], int] = {}
    rows: list[tuple[str, int, dict[str, Any]]] = []
    planes: list[list[npt.NDArray[np.uint16]]] = [[] for _ in segments.MODES]
    for segment in inside:
        meta = segment.meta()
        if why := segment.find_damage(meta, ("seconds.npy",)):
            raise errors.DamagedFileError(str(segment.path), 0, why)
        for mode, sums in zip(segments.MODES, planes, strict=True):
            sums.append(segment.seconds(mode, meta.shape).ravel())
        document = dataclasses.asdict(meta)
        del document["cores"], document["files"], document["crc32"]
        rows.append((segment.path.name, cores.setdefault(meta.cores, len(cores)), document))
    stored = [np.concatenate(sums).tobytes() for sums in planes]
    crc32 = dict(zip(segments.MODES, map(zlib.crc32, stored), strict=True))
    index = json.dumps({"cores": list(cores), "segments": rows, "crc32": crc32}).encode()
    digest = hashlib.blake2b(index, digest_size=16).digest()
    # Not files.write_atomically: the lock tells `store check --clean` that the writer is alive.
    descriptor, fresh = tempfile.mkstemp(prefix=".new-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(HEAD.pack(MAGIC, len(index), digest) + index)
            file.writelines(stored)
            file.flush()
            os.fchmod(descriptor, files.folder_mode(path.parent) & 0o666)
            files.publish(pathlib.Path(fresh), path)
    finally:
        pathlib.Path(fresh).unlink(missing_ok=True)
