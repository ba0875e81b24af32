"""Reads what other tools logged: kernel-log lines, and the CPU time of cores; one module per format, each a `Reader`.

A line that cannot be read is counted (`LogFile.damaged`) and skipped.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import itertools
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Protocol

from overnight import errors
from overnight.ingest import formats
from overnight.model import times

MAX_LINE = 16 << 10  # bytes; a line of mpstat has 120, of journalctl -o json 2,000
MAX_WHOLE = 256 << 20  # of a file that is read at once
EARLIEST_US, LATEST_US = (s * times.SECOND_US for s in (946_684_800, 4_102_444_800))  # 2000, 2100


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """One line of a kernel log; `wall_us` is None where the file has only the time since boot."""

    wall_us: int | None
    monotonic_us: int | None
    text: str
    by_process: bool = False  # a process wrote it into /dev/kmsg, where the format tells


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """Percent of each core's time between two instants, by the modes of `model.cpu`."""

    begin_us: int
    end_us: int
    cores: Mapping[int, Mapping[str, float]]


Entry = Line | Reading


@dataclasses.dataclass
class LogFile:
    """One file: how its times are meant, and what was found out about it."""

    path: pathlib.Path
    zone: str | None = None  # of times without one; as `--timezone` has it
    host: str | None = None  # the host that the file names
    damaged: int = 0  # lines
    notes: dict[str, None] = dataclasses.field(default_factory=dict)  # in order, each once
    entries: int = 0  # accepted
    begin_us: int = LATEST_US  # of the accepted
    end_us: int = EARLIEST_US

    def __post_init__(self) -> None:
        self.local = functools.lru_cache(maxsize=64)(self._parse_local)

    def lines(self) -> Iterator[str]:
        """Yield the decompressed lines; one that is too long is counted as damaged."""
        rest, text = b"", formats.Text(self.path)
        for piece in itertools.chain(text, (b"\n",)):
            *whole, rest = (rest + piece).split(b"\n")
            for line in whole:
                if len(line) > MAX_LINE:
                    self.damaged += 1
                else:
                    yield line.decode("utf-8", "backslashreplace").rstrip("\r")
            rest = rest[: MAX_LINE + 1]
        if text.cut_short:
            self.note(formats.TRUNCATED)

    def whole(self) -> bytes:
        return b"".join(formats.Text(self.path, MAX_WHOLE, has_lines=False))

    def note(self, text: str) -> None:
        self.notes[text] = None

    def accept(self, begin_us: int, end_us: int) -> bool:
        """Count an entry, as damaged where no host can have recorded it: its clock was set wrong."""
        if not EARLIEST_US <= begin_us <= end_us < LATEST_US:
            self.damaged += 1
            return False
        self.begin_us, self.end_us = min(self.begin_us, begin_us), max(self.end_us, end_us)
        self.entries += 1
        return True

    def _parse_local(self, when: datetime.datetime) -> int:
        """Return the µs since the epoch of a time without a zone; ask for the zone if none is known."""
        if self.zone is None:
            raise errors.UsageError(
                f"the times in {self.path} have no time zone",
                why=f"{when.isoformat(' ')} may be the local time of any host",
                todo="name the zone of that host: --timezone UTC, --timezone Europe/Berlin or --timezone +02:00",
            )
        return parse_local(when, self.zone)

    @functools.cached_property
    def modified(self) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self.path.stat().st_mtime, datetime.UTC)


class Reader(Protocol):
    """One format. Each module of this package is a reader."""

    NAME: str

    def sniff(self, head: bytes) -> bool:
        """Return whether a file with these first bytes, decompressed, has this format."""

    def read(self, file: LogFile) -> Iterator[Entry]:
        """Read the whole file. Raise DamagedFileError, or UsageError where a time zone is missing."""


def parse_local(when: datetime.datetime, zone: str) -> int:
    """Return the µs since the epoch of a time in a zone; raise UsageError for an unknown zone.

    >>> parse_local(datetime.datetime(1970, 1, 1, 3), "+02:00")
    3600000000
    """
    separator = "" if zone[:1] in ("+", "-") else " "
    try:
        return times.parse_instant(f"{when.isoformat()}{separator}{zone}", now_us=0, origin_us=0)
    except errors.UsageError:
        raise errors.UsageError(
            f"no time zone {zone!r}",
            why="it is neither an offset nor in this host's time zone database",
            todo="write it as Europe/Berlin, UTC, +02:00 or local",
        ) from None


def parse_naive(text: str, form: str) -> datetime.datetime:
    """Parse a time of a host whose zone is not in the text."""
    return datetime.datetime.strptime(text, form)  # noqa: DTZ007 - callers add the zone


def parse_iso(text: str) -> int:
    """Return the µs since the epoch of a time with a zone and, as dmesg writes it, a decimal comma."""
    when = datetime.datetime.fromisoformat(text.replace(",", "."))
    return (when - times.EPOCH) // datetime.timedelta(microseconds=1)


def find_line(pattern: re.Pattern[str], head: bytes) -> re.Match[str] | None:
    """Return the first line of a format, after at most a few that are cut off."""
    lines = head.decode("utf-8", "replace").splitlines()[:5]
    return next(filter(None, map(pattern.match, lines)), None)
