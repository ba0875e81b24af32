"""Segments on disk: one folder each, written once, found by name; docs/profiles.md lists its files.

    HOME/profiles/v1/HOST/20261115/1794725459000000-1794725579000000-9f86d081/

The name holds begin and end in µs since the epoch, and a digest of the samples: the folders are the
catalogue, and a capture that is imported twice is stored once. Sums count the first event only. Older
segments, and imports of other formats, have no processes, no spawns, and no columns that refer to them. A segment
appears by one rename; a folder that begins with `.new-` is incomplete and can be deleted at any time, as
can the hour files beside the segments, which are derived from them (store.hours).
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import hashlib
import json
import math
import os
import pathlib
import re
import time
import zlib
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from overnight import errors
from overnight.model.selection import Damage, Window
from overnight.model.times import DAY_US, SECOND_NS, SECOND_US
from overnight.store import host_names
from overnight.store.ring import columns

if TYPE_CHECKING:
    import numpy.typing as npt

FORMAT = "overnight.segment/1"
VERSION = "v1"
MODES = ("busy", "kernel", "softirq", "idle")
FILES = ("samples.parquet", "nodes.parquet", "frames.parquet", "tasks.parquet", "seconds.npy")
NAME = re.compile(r"(-?\d{1,19})-(-?\d{1,19})-([0-9a-f]{8})")
NPY_HEADER = 128
MAX_CORES = 0x7FFF  # limit of the column; Linux supports at most 8192
SETTLED_NS = SECOND_NS
LONG = "00000000"  # the folder of segments that last a day or more; every query reads it


@dataclasses.dataclass(frozen=True)
class Meta:
    """The content of segment.json."""

    host: str
    begin_us: int
    end_us: int
    frequency: int
    cores: tuple[int, ...]
    events: tuple[str, ...]
    samples: int
    idle: int
    lost: int
    timed: bool
    gaps: tuple[tuple[int, int, str], ...]  # begin and end in µs, why
    notes: tuple[str, ...]
    source: str
    files: dict[str, tuple[int, str]]  # bytes, blake2b
    losses: tuple[tuple[int, int, int], ...] = ()  # begin and end in µs, samples; (): not known
    # By file, for queries: a fifth of blake2b's time (measured: 1.5 ms against 8.6 for 4.4 MB). Older stores
    # have none.
    crc32: dict[str, str] = dataclasses.field(default_factory=dict)
    # By module: unknown.Why of its functions without a name. Older stores have none.
    unknown: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, int]:
        """Return the clock seconds that the segment touches (1 without times), and its cores."""
        return clock_seconds(self.begin_us, self.end_us, timed=self.timed), len(self.cores)

    def as_json(self) -> dict[str, object]:
        """Return the stored form, with a checksum over itself."""
        document = {"format": FORMAT, **dataclasses.asdict(self)}
        return {**document, "digest": description_digest(document)}


def description_digest(document: dict[str, Any]) -> str:
    """Return the checksum of a description, its own field excluded."""
    plain = json.dumps({k: v for k, v in document.items() if k != "digest"}, sort_keys=True)
    return hashlib.blake2b(plain.encode(), digest_size=16).hexdigest()


def measure_file(path: pathlib.Path) -> tuple[int, str]:
    """Return size and checksum, as `Meta.files` has them."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16))
        return file.tell(), digest.hexdigest()


def sum_file(path: pathlib.Path) -> str:
    """Return the checksum of `Meta.crc32`."""
    return f"{zlib.crc32(path.read_bytes()):08x}"


@dataclasses.dataclass(frozen=True)
class Segment:
    """A stored segment; its files are read on demand."""

    path: pathlib.Path
    host: str
    begin_us: int
    end_us: int

    def meta(self) -> Meta:
        """Read the description; raise DamagedFileError."""
        file = self.path / "segment.json"
        try:
            document = json.loads(file.read_bytes())
            changed = document.get("digest", "") not in ("", description_digest(document))
            kind = document.pop("format")
        except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
            errors.raise_own(error)
            why = f"no segment description ({error})"
            raise errors.DamagedFileError(str(file), 0, why) from error
        if kind != FORMAT:
            raise errors.CannotError(
                f"{self.path} has the format {kind!r}",
                why=f"this overnight reads {FORMAT}",
                todo="open it with the overnight that wrote it, or a newer one",
            )
        if changed:
            raise errors.DamagedFileError(str(file), 0, "it has changed since it was written")
        try:
            return parse_description(document)
        except columns.INVALID as error:
            why = f"an incomplete description ({error})"
            raise errors.DamagedFileError(str(file), 0, why) from error

    def find_damage(self, meta: Meta, names: Collection[str]) -> str:
        """Compare the size of all files, and the content of `names`; return the difference, '' for none."""
        if (meta.begin_us, meta.end_us) != (self.begin_us, self.end_us):
            return "its description belongs to another segment"
        for name, (size, digest) in meta.files.items():
            path = self.path / name
            try:
                if (actual := path.stat().st_size) != size:
                    return f"{name} has {actual} bytes instead of {size}"
                if name not in names:
                    continue
                crc32 = meta.crc32.get(name)
                same = measure_file(path)[1] == digest if crc32 is None else sum_file(path) == crc32
            except (OSError, ValueError) as error:  # a name may be hostile
                errors.raise_own(error)
                return f"{name} cannot be read: {getattr(error, 'strerror', error)}"
            if not same:
                return f"{name} has changed since it was written"
        return ""

    def damage(self, why: str, meta: Meta | None, window: Window | None = None) -> Damage:
        """Return what is lost of a window, by default of all of it; None: no description is left."""
        begin = max(self.begin_us, window.begin_us) if window else self.begin_us
        end = min(self.end_us, window.end_us) if window else self.end_us
        share = (end - begin) / max(1, self.end_us - self.begin_us)
        samples = round(meta.samples * share) if meta else None
        return Damage(self.host, self.path.name, begin, end, (end - begin) / 1e6, samples, why)

    def seconds(self, mode: str, shape: tuple[int, int]) -> npt.NDArray[np.uint16]:
        """Read the samples of one mode by second and core; `shape` is seconds and cores."""
        path, length = self.path / "seconds.npy", 2 * math.prod(shape)
        offset = NPY_HEADER + length * MODES.index(mode)
        try:
            size = path.stat().st_size
            if size != NPY_HEADER + length * len(MODES):
                raise errors.DamagedFileError(str(path), size, "it has the wrong length")
            return np.fromfile(path, "<u2", count=length // 2, offset=offset).reshape(shape)
        except (OSError, ValueError) as error:
            errors.raise_own(error)
            raise errors.DamagedFileError(str(path), 0, str(error)) from error


def read_ahead(files: Iterable[tuple[pathlib.Path, int, int]]) -> None:
    """Let the kernel prefetch ranges (path, offset, length): one by one, 360 segments cost 130 ms (measured)."""
    for path, offset, length in files:
        # Only a hint: the read reports errors.
        with contextlib.suppress(OSError), path.open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), offset, length, os.POSIX_FADV_WILLNEED)


def parse_description(document: dict[str, Any]) -> Meta:
    """Parse a description; raise one of columns.INVALID."""
    number = columns.parse_number
    fields = {name: value for name, value in document.items() if name in Meta.__annotations__}
    fields["host"], fields["source"] = str(fields["host"]), str(fields["source"])
    for name in ("begin_us", "end_us", "frequency", "samples", "idle", "lost"):
        fields[name] = number(fields[name])
    # Without a loop of our own: a night of 96 cores has 35,000 of these numbers.
    cores = fields["cores"] = tuple(map(int, fields["cores"]))
    if cores and not (min(cores) >= -1 and max(cores) < MAX_CORES):
        raise ValueError("a core that no host has")
    fields["events"] = tuple(str(event) for event in fields["events"])
    fields["notes"] = tuple(str(note) for note in fields["notes"])
    fields["gaps"] = tuple((number(a), number(b), str(why)) for a, b, why in fields["gaps"])
    losses = fields.get("losses", ())
    fields["losses"] = tuple((number(a), number(b), number(n)) for a, b, n in losses)
    fields["files"] = {name: (int(a), str(b)) for name, (a, b) in fields["files"].items()}
    for name in ("crc32", "unknown"):
        fields[name] = {key: str(value) for key, value in fields.get(name, {}).items()}
    return Meta(**fields)


def host_folder(home: pathlib.Path, host: str) -> pathlib.Path:
    return home / "profiles" / VERSION / host_names.folder_name(host)


def _host_of(folder: pathlib.Path) -> str | None:
    """Return the host of a folder; None: not a host's. A name that was cut is read from a segment."""
    name = folder.name
    if "%~" in name:
        for file in folder.glob("*/[0-9]*/segment.json"):
            try:
                host = Segment(file.parent, "", 0, 0).meta().host
            except errors.OvernightError:
                continue
            if host_names.folder_name(host) == name:
                return host
        return None
    raw = re.sub(rb"%([0-9a-f]{2})", lambda m: bytes([int(m[1], 16)]), name.encode())
    try:
        host = "" if name == "%" else raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None
    return host if host_names.folder_name(host) == name else None


def day_of(us: int) -> str:
    """Return the day of a moment, UTC, as folders are named."""
    try:
        when = datetime.datetime.fromtimestamp(us // SECOND_US, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return "00000000" if us < 0 else "99999999"
    return f"{when.year:04}{when.month:02}{when.day:02}"


def day_folder(begin_us: int, end_us: int) -> str:
    """Return the folder of a segment within its host's folder."""
    return LONG if end_us - begin_us >= DAY_US else day_of(begin_us)


def clock_seconds(begin_us: int, end_us: int, *, timed: bool) -> int:
    return max(1, -(-end_us // SECOND_US) - begin_us // SECOND_US) if timed else 1


def in_folder(day: pathlib.Path, host: str) -> list[Segment]:
    """Return a day's segments, unordered."""
    return [Segment(day / name, host, begin, end) for name, begin, end in _list_day(day)]


def _list_day(day: pathlib.Path) -> list[tuple[str, int, int]]:
    """List name, begin and end of a day's segments; not as paths: 5 µs each, of 720 a day."""
    with os.scandir(day) as entries:
        names = [name for entry in entries if (name := NAME.fullmatch(entry.name))]
    return [(name[0], int(name[1]), int(name[2])) for name in names]


class Catalogue:
    """All segments of a data home; finds them by host and time without opening a file."""

    def __init__(self, home: pathlib.Path) -> None:
        self.home = home
        self._days: dict[
            pathlib.Path, tuple[int, list[tuple[str, int, int]]]
        ] = {}  # when changed, and what is in it

    def hosts(self) -> tuple[str, ...]:
        root = self.home / "profiles" / VERSION
        if not root.is_dir():
            return ()
        hosts = (_host_of(path) for path in root.iterdir() if path.is_dir())
        return tuple(sorted(host for host in hosts if host is not None))

    def segments(
        self, host: str, begin_us: int | None = None, end_us: int | None = None
    ) -> tuple[Segment, ...]:
        """Return a host's segments that overlap [begin, end), by time."""
        inside: list[Segment] = []
        folder = host_folder(self.home, host)
        if not folder.is_dir():
            return ()
        # A segment is in the folder of the day it began and lasts less than a day, or in LONG.
        first = day_of(begin_us - DAY_US) if begin_us is not None else ""
        last = day_of(end_us) if end_us is not None else "99999999"
        for day in folder.iterdir():
            if (day.name == LONG or first <= day.name <= last) and day.is_dir():
                inside += [
                    Segment(day / name, host, begin, end)
                    for name, begin, end in self._in_day(day)
                    if (end_us is None or begin < end_us) and (begin_us is None or end > begin_us)
                ]
        return tuple(sorted(inside, key=lambda segment: (segment.begin_us, segment.path.name)))

    def _in_day(self, day: pathlib.Path) -> list[tuple[str, int, int]]:
        """List a day's segments; again only when its folder changed: a diagnosis asks 500 times."""
        changed = day.stat().st_mtime_ns
        known = self._days.get(day)
        if known is not None and known[0] == changed:
            return known[1]
        found = _list_day(day)
        # Within a tick of the clock the folder may change once more without a new time.
        if time.time_ns() - changed > SETTLED_NS:
            self._days[day] = (changed, found)
        return found
