"""Stack samples: the perf_event_open system call, the perf binary, and perf.data files.

A `Recorder` writes *segments* into a spool folder: self-contained perf.data files, each with the names and
mappings of the processes that already ran when it began, timed with CLOCK_MONOTONIC. A finished segment
appears under its final name at once; an unfinished one ends in `.writing`, and `current.json` holds its start
on both clocks. Each recorder is one module.
"""

from __future__ import annotations

import dataclasses
import datetime
import pathlib
import platform
import re
import time
from typing import Protocol

from overnight.model import clock, files, process_identity
from overnight.model.times import SECOND_NS

SUFFIX = ".perf.data"
WRITING = ".writing"
CURRENT = "current.json"

NAME = re.compile(r"(?P<host>.+)-(?P<start>\d{8}T\d{6}\.\d{3})Z-(?P<boot>[0-9a-f]{8})\.perf\.data")
MILLISECOND_NS = 1_000_000

Clock = clock.Clock


@dataclasses.dataclass(frozen=True)
class Gap:
    """Time without samples, and why; wall clock, nanoseconds since the epoch.

    A gap of length 0 is still open; one that ends before it begins is a clock that was set back.
    """

    begin_ns: int
    end_ns: int
    why: str


@dataclasses.dataclass(frozen=True)
class Identity:
    """The host's name in file names, and its boot: monotonic times compare only within one boot."""

    host: str
    boot: str

    def name_segment(self, began: Clock) -> SegmentName:
        return SegmentName(self.host, began.wall_ns, self.boot)


@dataclasses.dataclass(frozen=True)
class SegmentName:
    """The parts of a finished segment's file name."""

    host: str
    start_ns: int
    boot: str

    def __str__(self) -> str:
        seconds, rest = divmod(self.start_ns, SECOND_NS)
        start = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
        milliseconds = rest // MILLISECOND_NS
        return f"{self.host}-{start:%Y%m%dT%H%M%S}.{milliseconds:03}Z-{self.boot[:8]}{SUFFIX}"


@dataclasses.dataclass(frozen=True)
class Progress:
    """The results since the last poll.

    `failed` is why recording ended unexpectedly; it stays ended until `start`.
    """

    finished: tuple[pathlib.Path, ...] = ()
    gaps: tuple[Gap, ...] = ()
    failed: str = ""


class Recorder(Protocol):
    """Records the stacks of all cores into a spool, segment after segment without a gap.

    Call it from one thread. `start` may follow `stop` or a failure.
    """

    @property
    def alive(self) -> bool:
        """Return whether samples are being taken."""

    @property
    def lost(self) -> int:
        """Return the samples that the kernel dropped since the first start."""

    @property
    def written(self) -> int:
        """Return the bytes written into segments since the first start."""

    @property
    def processes(self) -> tuple[int, ...]:
        """Return the child processes that do the work."""

    def start(self, spool: pathlib.Path) -> None:
        """Begin a segment; samples are being taken on return. Raises OvernightError."""

    def poll(self, timeout: float) -> Progress:
        """Wait at most `timeout` seconds for work, do it, and report progress."""

    def switch(self) -> None:
        """End the segment and continue in a new one; `poll` reports when it is finished."""

    def stop(self) -> Progress:
        """Stop recording; every segment is finished and readable on return."""


def read_clock() -> Clock:
    """Read both clocks within some hundred nanoseconds: the closest of three readings."""
    readings = []
    for _ in range(3):
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        readings.append((after - before, Clock(wall, (before + after) // 2)))
    return min(readings, key=lambda reading: reading[0])[1]


def read_identity(root: pathlib.Path = pathlib.Path("/")) -> Identity:
    host = re.sub(r"[^A-Za-z0-9._-]", "_", platform.node()) or "host"
    boot = process_identity.read_boot(root).replace("-", "")
    return Identity(host, boot if re.fullmatch(r"[0-9a-f]{32}", boot) else "0" * 32)


def parse_segment_name(name: str) -> SegmentName | None:
    """Parse a finished segment's file name; None for any other file.

    >>> parse_segment_name("db-7-20260301T020304.056Z-0123abcd.perf.data").host
    'db-7'
    """
    match = NAME.fullmatch(name)
    if match is None:
        return None
    try:
        start = datetime.datetime.strptime(match["start"] + "+0000", "%Y%m%dT%H%M%S.%f%z")
    except ValueError:
        return None
    milliseconds = round(start.timestamp() * 1000)
    return SegmentName(match["host"], milliseconds * MILLISECOND_NS, match["boot"])


def publish(written: pathlib.Path, name: SegmentName) -> pathlib.Path:
    """Sync a finished segment to disk, then give it its final name.

    After a clock was set back, two segments may begin in the same millisecond: the later one takes the
    next free name and never replaces the first.
    """
    final = written.parent / str(name)
    while final.exists():
        name = dataclasses.replace(name, start_ns=name.start_ns + MILLISECOND_NS)
        final = written.parent / str(name)
    files.publish(written, final)
    return final
