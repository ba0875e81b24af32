"""Text of `mpstat -P ALL N` and `sar -P ALL`, in any locale, with a 12 or 24 h clock, for several days.

A sample::

    Linux 6.1.0-18-amd64 (db-7)     11/16/26        _x86_64_        (2 CPU)

    11:59:56 PM  CPU    %usr   %nice    %sys %iowait    %irq   %soft  %steal  %guest  %gnice   %idle
    11:59:57 PM  all    0.51    0.00    9.09    1.01    0.00    0.51    0.00    0.00    0.00   88.89
    11:59:57 PM    0    0.00    0.00    9.09    2.02    0.00    1.01    0.00    0.00    0.00   87.88

The time of a heading is that of the reading before.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence

from overnight.ingest import logs
from overnight.model import cpu

NAME = "sysstat"
HEADER = re.compile(
    r"Linux \S{1,255} \((?P<host>[^)]{1,255})\)\s+(?P<date>\S{6,12})\s+_\S{1,32}_\s"
)
CLOCK = re.compile(r"(\d\d):(\d\d):(\d\d)\s+(?:([AaPp])\.?[Mm]\.?\s+)?(.*)", re.ASCII)
DATES = (
    "%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%m/%d/%y", "%m/%d/%Y", "%d/%m/%y", "%d/%m/%Y", "%d.%m.%y", "%d.%m.%Y",
    "%d-%m-%y", "%d-%m-%Y",
)  # fmt: skip
MAX_CORES = 1 << 16
# A time of day that is this much earlier is of the next day; one that is a little earlier is damage.
NEXT_DAY = datetime.timedelta(hours=6)
# sar's short table has the guests in user and nice, and interrupts in system, as its manual page states.
MODES = {**cpu.MPSTAT, "user": "user", "system": "system"}


def sniff(head: bytes) -> bool:
    return HEADER.match(head.decode("utf-8", "replace").lstrip("\n\r\ufeff")) is not None


def read(file: logs.LogFile) -> Iterator[logs.Reading]:
    rows = itertools.groupby(_read_rows(file), key=lambda row: row[:2])
    for (begin_us, end_us), cores in rows:
        if begin_us < end_us:
            yield logs.Reading(begin_us, end_us, {core: modes for *_, core, modes in cores})
        else:
            file.damaged += 1


def _read_rows(file: logs.LogFile) -> Iterator[tuple[int, int, int, dict[str, float]]]:
    """Yield begin, end, core and modes of each row whose begin is known."""
    clock, columns = Clock(file), tuple[str, ...]()
    begin_us: int | None = None
    end_us: int | None = None
    for text in file.lines():
        if (header := HEADER.match(text)) is not None:
            file.host = file.host or header["host"]
            clock.begin(header["date"])
            columns = ()
        if (match := CLOCK.match(text)) is None:
            continue
        words = match[5].split()
        try:
            time_us = clock.parse(match)
            if words[:1] == ["CPU"] and "%idle" in words:
                columns, begin_us, end_us = tuple(words[1:]), time_us, None
            elif "RESTART" in words:
                begin_us = end_us = None
            elif words and not words[-1][0].isdigit() and words[-1] != "-nan":
                columns = ()  # the heading of another table
            elif columns and words[:1] != ["all"]:
                core, modes = _parse_row(columns, words)
                if end_us not in (None, time_us):
                    begin_us = end_us
                end_us = time_us
                if begin_us is not None:
                    yield begin_us, end_us, core, modes
        except (ValueError, IndexError, OverflowError):
            file.damaged += 1


def _parse_row(columns: Sequence[str], words: Sequence[str]) -> tuple[int, dict[str, float]]:
    percent = (float(word.replace(",", ".")) for word in words[1:])
    names = (column.lstrip("%") for column in columns)
    if not 0 <= int(words[0]) < MAX_CORES:
        raise ValueError(words[0])
    return int(words[0]), to_modes(dict(zip(names, percent, strict=True)))


class Clock:
    """The times of day of a file, whose heading has the date of the first."""

    def __init__(self, file: logs.LogFile) -> None:
        self._file = file
        self._last: datetime.datetime | None = None  # of any line

    def begin(self, date: str) -> None:
        try:
            self._last = datetime.datetime.combine(parse_date(self._file, date), datetime.time())
        except ValueError:
            self._last = None
            self._file.damaged += 1

    def parse(self, clock: re.Match[str] | None) -> int:
        """Return the time of a match of CLOCK; raise ValueError where date or time is missing."""
        if self._last is None or clock is None:
            raise ValueError(clock)
        hour = int(clock[1])
        if clock[4]:
            hour = hour % 12 + 12 * (clock[4] in "Pp")
        when = self._last.replace(hour=hour, minute=int(clock[2]), second=int(clock[3]))
        if self._last - when > NEXT_DAY:
            when += datetime.timedelta(days=1)
        self._last = when
        return self._file.local(when)


def to_modes(percent: Mapping[str, float]) -> dict[str, float]:
    """Return percent by the modes of /proc/stat; raise ValueError where it is not a share of time.

    >>> to_modes({"usr": 10.0, "guest": 5.0, "idle": 85.0})
    {'user': 15.0, 'guest': 5.0, 'idle': 85.0}
    """
    modes = {MODES[name]: value for name, value in percent.items() if name in MODES}
    if not all(0 <= value <= 101 for value in modes.values()) or not 90 <= sum(modes.values()) <= 110:  # fmt: skip
        raise ValueError(percent)
    if "usr" in percent:  # unlike the kernel's user, without the guests
        for mode, guest in (("user", "guest"), ("nice", "guest_nice")):
            if guest in modes:
                modes[mode] = modes.get(mode, 0.0) + modes[guest]
    return modes


def parse_date(file: logs.LogFile, text: str) -> datetime.date:
    """Parse a date as the host's locale writes it."""
    dates = set[datetime.date]()
    for form in DATES:
        with contextlib.suppress(ValueError):
            dates.add(logs.parse_naive(text.rstrip("."), form).date())
    if not dates:
        raise ValueError(text)
    date = min(dates, key=lambda each: abs(each - file.modified.date()))
    if len(dates) > 1:
        file.note(f"{text} is read as {date}, the closest to the file's modification time")
    return date
