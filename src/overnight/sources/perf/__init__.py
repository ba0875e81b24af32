"""Stack samples: the perf_event_open system call, the perf binary, and perf.data files.

A `Recorder` writes *segments* into a spool folder: perf.data files that stand alone, each with the
names and mappings of the processes that already ran when it began, timed with CLOCK_MONOTONIC. A
finished segment appears under its final name at once; what is being written ends in `.writing`,
and `current.json` says since when on both clocks. One module a recorder; both keep this promise.
"""

from __future__ import annotations

import dataclasses
import datetime
import os
import pathlib
import platform
import re
import time
from typing import Protocol

from overnight.model import clock

__all__ = [
    "CURRENT",
    "SUFFIX",
    "WRITING",
    "Clock",
    "Gap",
    "Identity",
    "Progress",
    "Recorder",
    "SegmentName",
    "parse_segment_name",
    "publish",
    "read_clock",
    "read_identity",
]

SUFFIX = ".perf.data"
WRITING = ".writing"
CURRENT = "current.json"

NAME = re.compile(r"(?P<host>.+)-(?P<start>\d{8}T\d{6}\.\d{3})Z-(?P<boot>[0-9a-f]{8})\.perf\.data")
MILLISECOND = 1_000_000

Clock = clock.Clock


@dataclasses.dataclass(frozen=True)
class Gap:
    """Time of which no samples exist, and why; wall clock, nanoseconds since the epoch.

    One of no length is still open; one that ends before it begins is a clock set back.
    """

    begin_ns: int
    end_ns: int
    why: str


@dataclasses.dataclass(frozen=True)
class Identity:
    """The host as file names tell it, and its boot: monotonic times compare only within one."""

    host: str
    boot: str


@dataclasses.dataclass(frozen=True)
class SegmentName:
    """What the name of a finished segment says."""

    host: str
    start_ns: int
    boot: str

    def __str__(self) -> str:
        seconds, rest = divmod(self.start_ns, 1_000_000_000)
        start = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
        milliseconds = rest // MILLISECOND
        return f"{self.host}-{start:%Y%m%dT%H%M%S}.{milliseconds:03}Z-{self.boot[:8]}{SUFFIX}"


@dataclasses.dataclass(frozen=True)
class Progress:
    """What happened since the last look.

    `failed` says why recording ended without being asked to; it stays ended until `start`.
    """

    finished: tuple[pathlib.Path, ...] = ()
    gaps: tuple[Gap, ...] = ()
    failed: str = ""


class Recorder(Protocol):
    """Records the stacks of all cores into a spool, segment after segment, without a gap between.

    One thread calls it. `start` may follow `stop` or a failure.
    """

    @property
    def alive(self) -> bool:
        """Whether samples are being taken now."""

    @property
    def lost(self) -> int:
        """Samples that the kernel could not hand over, since the first start."""

    @property
    def written(self) -> int:
        """Bytes written into segments since the first start."""

    @property
    def processes(self) -> tuple[int, ...]:
        """The processes besides this one that do the work."""

    def start(self, spool: pathlib.Path) -> None:
        """Begin a segment; samples are being taken on return. Raises OvernightError."""

    def poll(self, timeout: float) -> Progress:
        """Wait at most `timeout` seconds for something to do, do it, and tell."""

    def switch(self) -> None:
        """End the segment here and go on in a new one; `poll` tells when it is finished."""

    def stop(self) -> Progress:
        """End recording; every segment is finished and readable on return."""


def read_clock() -> Clock:
    """Both clocks now, to some hundred nanoseconds: the closest of three readings."""
    readings = []
    for _ in range(3):
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        readings.append((after - before, Clock(wall, (before + after) // 2)))
    return min(readings, key=lambda reading: reading[0])[1]


def read_identity(root: pathlib.Path = pathlib.Path("/")) -> Identity:
    """The host and the boot we run in."""
    host = re.sub(r"[^A-Za-z0-9._-]", "_", platform.node()) or "host"
    try:
        boot = (root / "proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
    except OSError:
        boot = ""
    return Identity(host, boot if re.fullmatch(r"[0-9a-f]{32}", boot) else "0" * 32)


def parse_segment_name(name: str) -> SegmentName | None:
    """The meaning of a finished segment's file name; None for any other file.

    >>> parse_segment_name("db-7-20260301T020304.056Z-0123abcd.perf.data").host
    'db-7'
    """
    found = NAME.fullmatch(name)
    if found is None:
        return None
    try:
        start = datetime.datetime.strptime(found["start"] + "+0000", "%Y%m%dT%H%M%S.%f%z")
    except ValueError:
        return None
    seconds = int(start.replace(microsecond=0).timestamp())
    return SegmentName(
        found["host"], seconds * 1_000_000_000 + start.microsecond * 1000, found["boot"]
    )


def publish(written: pathlib.Path, name: SegmentName) -> pathlib.Path:
    """Give a finished segment its final name at once, on disk before it shows.

    A clock set back may make two segments begin in the same millisecond: the later one then takes
    the next free name, and never the place of the first.
    """
    final = written.parent / str(name)
    while final.exists():
        name = dataclasses.replace(name, start_ns=name.start_ns + MILLISECOND)
        final = written.parent / str(name)
    descriptor = os.open(written, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    written.rename(final)
    folder = os.open(final.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return final
