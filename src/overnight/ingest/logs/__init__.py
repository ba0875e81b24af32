"""Reads what other tools logged: kernel-log lines, and the CPU time of cores; one module per format, each a `Reader`.

A line that cannot be read is counted (`LogFile.damaged`) and skipped.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import pathlib
from collections.abc import Iterator, Mapping
from typing import Protocol

from overnight import errors
from overnight.ingest import formats
from overnight.model import times

MAX_LINE = 16 << 10  # bytes; a line of mpstat has 120, of journalctl -o json 2,000
MAX_WHOLE = 256 << 20  # of a file that is read at once
EARLIEST_US = 946_684_800 * times.SECOND_US  # the year 2000


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
    """One file: how its times are meant, and what its reader found out."""

    path: pathlib.Path
    zone: str | None = None  # of times without one; as `--timezone` has it
    host: str | None = None  # the host that the file names
    damaged: int = 0  # lines
    notes: dict[str, None] = dataclasses.field(default_factory=dict)  # in order, each once

    def __post_init__(self) -> None:
        self._instant = functools.lru_cache(maxsize=64)(self._parse_instant)

    def lines(self) -> Iterator[str]:
        """Yield the decompressed lines; one that is too long is counted as damaged."""
        rest, skipping = b"", False
        text = formats.Text(self.path)
        for piece in text:
            *whole, rest = (rest + piece).split(b"\n")
            for line in whole:
                if skipping or len(line) > MAX_LINE:
                    self.damaged, skipping = self.damaged + 1, False
                else:
                    yield line.decode("utf-8", "backslashreplace").rstrip("\r")
            if len(rest) > MAX_LINE:
                rest, skipping = b"", True
        if text.cut_short:
            self.note(formats.TRUNCATED)
        if skipping:
            self.damaged += 1
        elif rest:
            yield rest.decode("utf-8", "backslashreplace").rstrip("\r")

    def whole(self) -> bytes:
        return b"".join(formats.Text(self.path, MAX_WHOLE, has_lines=False))

    def note(self, text: str) -> None:
        self.notes[text] = None

    def local(self, when: datetime.datetime) -> int:
        """Return the µs since the epoch of a time without a zone; ask for the zone if none is known."""
        return self._instant(when)

    def _parse_instant(self, when: datetime.datetime) -> int:
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


def is_plausible(us: int) -> bool:
    """Return whether a host may have recorded it: after 2000 and, its clock set wrong, before 2100."""
    return EARLIEST_US <= us < 41 * EARLIEST_US // 10
