r"""The kernel log, /dev/kmsg: one record a read, from the oldest kept to the newest.

What one read gives, a real record with its dictionary::

    6,193,299794,-;acpi PNP0A08:00: PCIe port services disabled\n SUBSYSTEM=acpi\n DEVICE=+acpi:PNP0A08:00\n

Before the semicolon: facility and level in one number, the sequence number, microseconds, flags, and
where the kernel was built so the caller. The kernel writes `\xNN` for whatever cannot be printed, a
newline in the message included: only the kernel itself can add a dictionary, or a second line.

Facility 0 is the kernel's own. It makes any other of what a process writes into /dev/kmsg, whatever
that process claims: `from_user` cannot be forged by less than a kernel module.

A record that does not end in a newline cannot be read until the next one is begun (seen on 6.18): who
writes a line into /dev/kmsg, to rehearse, ends it with one.

The microseconds are the scheduler's clock, which nobody disciplines: CLOCK_MONOTONIC was 16.4 ms
ahead of it after 3.2 hours (1.4 ppm; a clock that NTP slews by 50 ppm is 30 s ahead in a week). So
every record is given the clock at its reading too, and `Drift` knows the distance from lines that
were read as they came.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import re
import time
from collections.abc import Callable, Mapping

from overnight import errors, sources
from overnight.model import clock

__all__ = ["Drift", "KernelLog", "Record", "parse_record", "try_kmsg", "visible"]

SIZE = 8192  # the kernel gives no longer record (CONSOLE_EXT_LOG_MAX, PRINTK_MESSAGE_MAX)
TEXT_LIMIT = 2048  # characters; the kernel's own limit for a message since 6.4, before that 1024
PROPERTIES = 8
DRIFT_SECONDS = 300
ESCAPE = re.compile(rb"\\x([0-9a-f]{2})")
NO_CLOCK = clock.Clock(0, 0)


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """One line of the kernel log. `text` holds no control character, and is cut at 2048 characters."""

    sequence: int
    monotonic_us: int  # as the kernel says it
    priority: int  # 0 emergency … 7 debug
    facility: int
    text: str
    continued: bool = False  # a piece of a line, printed by itself
    caller: str = ""  # T and a thread, or C and a core; only where the kernel was built to say so
    properties: Mapping[str, str] = dataclasses.field(default_factory=dict)
    read_at: clock.Clock = NO_CLOCK
    ahead_us: int = 0  # what CLOCK_MONOTONIC is ahead of the record's own clock, as far as is known

    @property
    def from_user(self) -> bool:
        """Whether a process wrote it into /dev/kmsg."""
        return self.facility != 0

    @property
    def device(self) -> str:
        """The bus address of the device that the kernel says it is about, as `0000:20:03.0`."""
        named = self.properties.get("DEVICE", "")
        return named.partition(":")[2] if named.startswith("+") else ""

    @property
    def instant(self) -> clock.Clock:
        """When it was written, on the clocks of everything else; never after it was read."""
        behind = self.read_at.monotonic_ns - (self.monotonic_us + self.ahead_us) * 1000
        behind = max(0, behind)
        return clock.Clock(self.read_at.wall_ns - behind, self.read_at.monotonic_ns - behind)


class Drift:
    """How far CLOCK_MONOTONIC is ahead of the kernel log's clock.

    A line cannot be read before it is written, so each reading is an upper bound, and the least of the
    last minutes is near the truth: a reader that is woken by the line is there within a millisecond.
    """

    def __init__(self) -> None:
        self._began = 0
        self._before: int | None = None
        self._least: int | None = None

    def tell(self, read_us: int, stamp_us: int) -> None:
        """A line with that stamp was read then, and was not there at the reading before."""
        ahead = read_us - stamp_us
        age = read_us - self._began
        if self._least is None or age >= DRIFT_SECONDS * 1_000_000:
            # After a long silence what was known is too old to be compared with.
            self._before = self._least if age < 2 * DRIFT_SECONDS * 1_000_000 else None
            self._least, self._began = ahead, read_us
        else:
            self._least = min(self._least, ahead)

    @property
    def ahead_us(self) -> int:
        """The best that is known; 0 before any line was read as it came."""
        if self._least is None:
            return 0
        return self._least if self._before is None else min(self._least, self._before)


def visible(text: str) -> str:
    r"""Text without control characters: each is shown as an escape, a newline too.

    >>> visible("a\x1b[31m\nb")
    'a\\x1b[31m\\nb'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _message(raw: bytes) -> str:
    if b"\\" in raw:
        raw = ESCAPE.sub(lambda found: bytes((int(found[1], 16),)), raw)
    return visible(raw.decode("utf-8", "backslashreplace")[:TEXT_LIMIT])[:TEXT_LIMIT]


def _properties(lines: list[bytes]) -> dict[str, str]:
    found = {}
    for line in lines[:PROPERTIES]:
        name, separator, value = line.strip().partition(b"=")
        if separator:
            found[_message(name)[:64]] = _message(value)[:256]
    return found


def parse_record(data: bytes, read_at: clock.Clock = NO_CLOCK, ahead_us: int = 0) -> Record | None:
    r"""One record as read; None for bytes that are none.

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
    caller = next((p[7:] for p in parts[4:] if p.startswith(b"caller=")), b"")
    return Record(
        sequence=sequence,
        monotonic_us=stamp,
        priority=number & 7,
        facility=number >> 3,
        text=_message(message),
        continued=parts[3] in (b"c", b"+"),
        caller=_message(caller),
        properties=_properties(more) if more and more[0] else {},
        read_at=read_at,
        ahead_us=ahead_us,
    )


def _now() -> clock.Clock:
    return clock.Clock(time.time_ns(), time.monotonic_ns())


class KernelLog:
    """Reads the kernel log without ever waiting for it.

    Wait on `fileno()` with poll and read until `drained`: at 20,000 lines a second a ring of 1,200
    lines is overwritten in 60 ms (measured: reading every 10 ms on a busy machine lost half of them,
    reading when woken lost none). The descriptor is closed with `close`, or by `with`.
    """

    def __init__(self, descriptor: int, now: Callable[[], clock.Clock] = _now) -> None:
        """Takes over an open descriptor of /dev/kmsg, or of something that gives records as it does."""
        self._descriptor = descriptor
        self._now = now
        self._expected: int | None = None
        self._live = False  # whether the next line is one that was not there before
        self.drift = Drift()
        self.drained = False
        self.lines = 0  # read in all
        self.lost = 0  # overwritten before they were read, by the sequence numbers

    @classmethod
    def open(cls, root: pathlib.Path = sources.ROOT, *, from_boot: bool = False) -> KernelLog:
        """From now on; or from the oldest line that the kernel still has."""
        path = root / "dev/kmsg"
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise sources.NoDataError(f"{path} is not there") from error
        except OSError as error:
            raise errors.MissingPermissionError(
                f"{path} cannot be read",
                why=error.strerror or str(error),
                todo="run as root, or with CAP_SYSLOG; in a container: --device /dev/kmsg",
            ) from error
        if not from_boot:
            # A pipe that stands in for the device has no end to go to.
            with contextlib.suppress(OSError):
                os.lseek(descriptor, 0, os.SEEK_END)
        log = cls(descriptor)
        log._live = not from_boot
        return log

    def fileno(self) -> int:
        """To wait for: readable when there is a line."""
        return self._descriptor

    def close(self) -> None:
        """Let the descriptor go."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> KernelLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(
        self, limit: int = 1000, wanted: Callable[[bytes], object] | None = None
    ) -> list[Record]:
        """Up to `limit` lines, as many as there are; `drained` tells that there was no more.

        With `wanted` only the lines whose bytes it likes are parsed; the others are counted in `lines`.
        What was overwritten before it could be read is counted in `lost`.
        """
        taken: list[bytes] = []
        overwritten = self.drained = False
        for _ in range(limit):
            try:
                data = os.read(self._descriptor, SIZE)
            except BlockingIOError:
                self.drained = True
                break
            except BrokenPipeError:
                overwritten = True  # the next read gives the oldest that is left
                continue
            if not data:
                self.drained = True
                break
            taken.append(data)
        read_at = self._now()
        if taken:
            self._account(taken, overwritten, read_at)
        if self.drained:
            self._live = True
        ahead = self.drift.ahead_us
        kept = taken if wanted is None else [data for data in taken if wanted(data)]
        return [r for data in kept if (r := parse_record(data, read_at, ahead)) is not None]

    def _account(self, taken: list[bytes], overwritten: bool, read_at: clock.Clock) -> None:
        """Lines are numbered without a gap, so the last number tells how many were lost."""
        self.lines += len(taken)
        last = _numbers(taken[-1])
        if last is None:
            return
        sequence, stamp = last
        if self._expected is None:
            first = _numbers(taken[0])
            # Overwritten between the opening and the first reading: how many, nobody knows.
            self._expected = sequence if first is None else first[0] - overwritten
        self.lost += max(0, sequence + 1 - self._expected - len(taken))
        self._expected = sequence + 1
        if self._live:
            self.drift.tell(read_at.monotonic_ns // 1000, stamp)


def _numbers(data: bytes) -> tuple[int, int] | None:
    parts = data[:128].split(b",", 3)
    try:
        return int(parts[1]), int(parts[2])
    except (IndexError, ValueError):
        return None


def try_kmsg(root: pathlib.Path = sources.ROOT) -> OSError | None:
    """Really read one record; the error says why it cannot be done, None that it can."""
    try:
        descriptor = os.open(root / "dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        return error
    try:
        os.read(descriptor, SIZE)
    except BlockingIOError:
        return None  # an empty log is readable
    except BrokenPipeError:
        return None  # the record was overwritten while we read: the log is readable and busy
    except OSError as error:
        return error
    finally:
        os.close(descriptor)
    return None
