r"""The kernel log, /dev/kmsg: one record per read, from the oldest kept to the newest.

The result of one read, a real record with its dictionary::

    6,193,299794,-;acpi PNP0A08:00: PCIe port services disabled\n SUBSYSTEM=acpi\n DEVICE=+acpi:PNP0A08:00\n

Before the semicolon: facility and level in one number, the sequence number, microseconds, flags, and on
some kernel builds the caller. The kernel writes `\xNN` for unprintable characters, including a newline in
the message: only the kernel itself can add a dictionary or a second line.

Facility 0 is the kernel's own. The kernel gives any other facility to what a process writes into
/dev/kmsg, whatever the process claims: it takes a kernel module to forge `from_user`.

A record without a trailing newline cannot be read, neither here nor with syslog(2), until the next record
is begun (measured on 6.18). It is then read late, with its own time, so `Drift` must not learn from it.

The microseconds are the scheduler's clock, which is not disciplined: CLOCK_MONOTONIC was 16.4 ms ahead
of it after 3.2 hours (1.4 ppm; a clock that NTP slews by 50 ppm is 30 s ahead in a week). So a record
also carries the clock at which it was read, and `Drift` learns the difference from lines that were read
as they were written.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from overnight import errors, sources
from overnight.model import clock, times
from overnight.model.text import printable

SIZE = 8192  # the longest record (CONSOLE_EXT_LOG_MAX, PRINTK_MESSAGE_MAX)
TEXT_LIMIT = 2048  # characters; the kernel's own limit for a message since 6.4, before that 1024
MAX_PROPERTIES = 8
DRIFT_WINDOW_US = 300 * times.SECOND_US
MAX_PPM = 100  # by which two clocks of one host differ; crystals are within 100
SLACK_US = times.SECOND_US
ESCAPE = re.compile(rb"\\x([0-9a-f]{2})")
NO_CLOCK = clock.Clock(0, 0)


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """One line of the kernel log. `text` has no control characters and at most 2048 characters."""

    sequence: int
    monotonic_us: int  # the kernel's own time stamp
    priority: int  # 0 emergency … 7 debug
    facility: int
    text: str
    properties: Mapping[str, str] = dataclasses.field(default_factory=dict)
    read_at: clock.Clock = NO_CLOCK
    ahead_us: int = 0  # how far CLOCK_MONOTONIC is ahead of the record's clock; 0 until known

    @property
    def from_user(self) -> bool:
        """Return whether a process wrote it into /dev/kmsg."""
        return self.facility != 0

    @property
    def device(self) -> str:
        """Return the bus address of the device in the record's dictionary, such as `0000:20:03.0`."""
        named = self.properties.get("DEVICE", "")
        return named.partition(":")[2] if named.startswith("+") else ""

    @property
    def instant(self) -> clock.Clock:
        """Return when it was written, on the host's other clocks; never later than it was read."""
        behind = max(0, self.read_at.monotonic_ns - (self.monotonic_us + self.ahead_us) * 1000)
        return clock.Clock(self.read_at.wall_ns - behind, self.read_at.monotonic_ns - behind)


class Drift:
    """Learns how far CLOCK_MONOTONIC is ahead of the kernel log's clock.

    A line cannot be read before it is written, so each reading is an upper bound, and the least of the
    last minutes is close: a reader that is woken by the line reads it within a millisecond.
    """

    def __init__(self) -> None:
        self._began = 0
        self._before: int | None = None
        self._least: int | None = None

    def restore(self, read_us: int, ahead_us: int) -> None:
        """Begin with what an earlier reader of this boot has learnt."""
        self._began, self._least = read_us, ahead_us

    def learn(self, read_us: int, stamp_us: int) -> None:
        """Take in a line that could not be read at the reading before."""
        ahead = read_us - stamp_us
        if ahead > SLACK_US + read_us * MAX_PPM // 1_000_000:
            return  # more than clocks drift since boot: the line was read long after it was written
        age = read_us - self._began
        if self._least is None or age >= DRIFT_WINDOW_US:
            # After a long silence the old value is too old to compare with.
            self._before = self._least if age < 2 * DRIFT_WINDOW_US else None
            self._least, self._began = ahead, read_us
        else:
            self._least = min(self._least, ahead)

    @property
    def ahead_us(self) -> int:
        """Return the best known value; 0 before any line was read as it was written."""
        if self._least is None:
            return 0
        return self._least if self._before is None else min(self._least, self._before)


def _message(raw: bytes) -> str:
    if b"\\" in raw:
        raw = ESCAPE.sub(lambda escape: bytes((int(escape[1], 16),)), raw)
    return printable(raw.decode("utf-8", "backslashreplace")[:TEXT_LIMIT])[:TEXT_LIMIT]


def _properties(lines: list[bytes]) -> dict[str, str]:
    properties = {}
    for line in lines[:MAX_PROPERTIES]:
        name, separator, value = line.strip().partition(b"=")
        if separator:
            properties[_message(name)[:64]] = _message(value)[:256]
    return properties


def parse_record(data: bytes, read_at: clock.Clock = NO_CLOCK, ahead_us: int = 0) -> Record | None:
    r"""Parse one record as /dev/kmsg returns it; None where it is not a record.

    >>> parse_record(b"12,371,1529,-;overnight rehearsal\n").text
    'overnight rehearsal'
    """
    head, separator, rest = data.partition(b";")
    parts = head.split(b",")
    if not separator or len(parts) < 4 or len(head) > 256:
        return None
    try:
        number, sequence, stamp = int(parts[0]), int(parts[1]), int(parts[2])
    except ValueError:
        return None
    message, *more = rest.split(b"\n")
    return Record(
        sequence=sequence,
        monotonic_us=stamp,
        priority=number & 7,
        facility=number >> 3,
        text=_message(message),
        properties=_properties(more) if more and more[0] else {},
        read_at=read_at,
        ahead_us=ahead_us,
    )


def _now() -> clock.Clock:
    return clock.Clock(time.time_ns(), time.monotonic_ns())


class KernelLog:
    """Reads the kernel log without blocking.

    Wait on `fileno()` with poll and read until `drained`: at 20,000 lines a second a ring of 1,200
    lines is overwritten in 60 ms (measured: reading every 10 ms on a busy machine lost half of them,
    reading when woken lost none).
    """

    def __init__(self, descriptor: int, now: Callable[[], clock.Clock] = _now) -> None:
        """Take over an open descriptor of /dev/kmsg, or of a pipe that returns one record per read."""
        self._descriptor = descriptor
        self.now = now
        self._expected: int | None = None
        self._unread: list[bytes] = []  # lines that `_skip` has read
        self._live = False  # whether the next line was not readable before
        self.drift = Drift()
        self.drained = False
        self.lines = 0  # lines read
        self.lost = 0  # lines overwritten before they were read, by the sequence numbers
        self.holes: list[tuple[int, int]] = []  # their first and last numbers; the caller clears it

    @classmethod
    def open(cls, root: pathlib.Path = sources.ROOT, after: int | None = None) -> KernelLog:
        """Open the log behind a sequence number of this boot; None: at its end."""
        path = root / "dev/kmsg"
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise sources.NoDataError(f"{path} does not exist") from error
        except OSError as error:
            errors.raise_own(error)
            raise errors.MissingPermissionError(
                f"{path} cannot be read",
                why=error.strerror or str(error),
                todo="run as root, or with CAP_SYSLOG; in a container: --device /dev/kmsg",
            ) from error
        log = cls(descriptor)
        log._live = after is None
        # A pipe in place of the device has no beginning to seek to.
        with contextlib.suppress(OSError):
            os.lseek(descriptor, 0, os.SEEK_SET)
            log._skip(after)
        return log

    def _skip(self, after: int | None) -> None:
        """Pass over the lines up to a number; without one over all, for the number of the last."""
        self._expected = None if after is None else after + 1
        last = None
        while not self._unread:
            try:
                data = self._read_line()
            except BrokenPipeError:
                continue
            if not data:
                # The end may come earlier than expected: a machine was set back to a snapshot.
                self._expected = self._expected if last is None else last + 1
                return
            numbers = _numbers(data)
            last = numbers[0] if numbers else last
            if after is not None and last is not None and last > after:
                self._unread.append(data)

    def _read_line(self) -> bytes:
        """Read a line, b"" at the end; raise BrokenPipeError where lines were overwritten before."""
        try:
            return os.read(self._descriptor, SIZE)
        except BlockingIOError:
            return b""

    def fileno(self) -> int:
        """Return the descriptor to poll: readable when there is a line."""
        return self._descriptor

    @property
    def position(self) -> int | None:
        """Return the number of the last line that was read or passed over; None until known."""
        return None if self._expected is None else self._expected - 1

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def read(
        self, limit: int = 1000, wanted: Callable[[bytes], object] | None = None
    ) -> list[Record]:
        """Read up to `limit` lines; `drained` is set when there were no more.

        With `wanted`, only lines for which it returns true are parsed; all are counted in `lines`.
        Lines that were overwritten before they could be read are counted in `lost`.
        """
        records, self._unread = self._unread, []
        overwritten = self.drained = False
        for _ in range(limit - len(records)):
            try:
                data = self._read_line()
            except BrokenPipeError:
                overwritten = True  # the next read returns the oldest remaining line
                continue
            if not data:
                self.drained = True
                break
            records.append(data)
        read_at = self.now()
        if records:
            self._account(records, overwritten, read_at)
        if self.drained:
            self._live = True
        ahead = self.drift.ahead_us
        kept = records if wanted is None else [data for data in records if wanted(data)]
        return [r for data in kept if (r := parse_record(data, read_at, ahead)) is not None]

    def _account(self, records: list[bytes], overwritten: bool, read_at: clock.Clock) -> None:
        """Count lines and losses: sequence numbers have no gaps, so the last one shows the losses."""
        self.lines += len(records)
        last = _numbers(records[-1])
        if last is None:
            return
        sequence, stamp = last
        if self._expected is None:
            first = _numbers(records[0])
            # Lines were overwritten between opening and the first read; their number is unknown.
            self._expected = sequence if first is None else first[0] - overwritten
        missing = max(0, sequence + 1 - self._expected - len(records))
        self.lost += missing
        if missing:
            self.holes += _find_holes(self._expected, records)
        self._expected = sequence + 1
        if self._live:
            self.drift.learn(read_at.monotonic_ns // 1000, stamp)


def _find_holes(expected: int, records: Iterable[bytes]) -> Iterator[tuple[int, int]]:
    for sequence, _ in filter(None, map(_numbers, records)):
        if sequence > expected:
            yield expected, sequence - 1
        expected = sequence + 1


def _numbers(data: bytes) -> tuple[int, int] | None:
    parts = data[:128].split(b",", 3)
    try:
        return int(parts[1]), int(parts[2])
    except (IndexError, ValueError):
        return None


def try_kmsg(root: pathlib.Path = sources.ROOT) -> OSError | None:
    """Try to read one record; return the error, or None on success."""
    try:
        descriptor = os.open(root / "dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        return error
    try:
        # An empty log is readable, and so is one whose oldest record was overwritten meanwhile.
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.read(descriptor, SIZE)
    except OSError as error:
        return error
    finally:
        os.close(descriptor)
    return None
