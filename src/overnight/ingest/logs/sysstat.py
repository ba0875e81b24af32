"""Text of `mpstat -P ALL N` and `sar -P ALL`, in any locale, with a 12 or 24 h clock, for several days.

A sample::

    Linux 6.1.0-18-amd64 (db-7)     11/16/26        _x86_64_        (2 CPU)

    11:59:56 PM  CPU    %usr   %nice    %sys %iowait    %irq   %soft  %steal  %guest  %gnice   %idle
    11:59:57 PM  all    0.51    0.00    9.09    1.01    0.00    0.51    0.00    0.00    0.00   88.89
    11:59:57 PM    0    0.00    0.00    9.09    2.02    0.00    1.01    0.00    0.00    0.00   87.88

The time of a heading is that of the reading before.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping, Sequence

from overnight.ingest import logs
from overnight.model import cpu

NAME = "sysstat"
HEADER = re.compile(
    r"Linux \S{1,255} \((?P<host>[^)]{1,255})\)\s+(?P<date>\S{6,12})\s+_\S{1,32}_\s"
)
CLOCK = re.compile(r"(\d\d):(\d\d):(\d\d)\s+(?:([AaPp])\.?[Mm]\.?\s+)?(.*)", re.ASCII)
DATE = re.compile(r"(\d{1,4})([-./])(\d{1,2})[-./](\d{2,4})\.?", re.ASCII)
MAX_CORES = 1 << 16
# A time of day that is this much earlier is of the next day; one that is a little earlier is damage.
NEXT_DAY = datetime.timedelta(hours=6)
# sar's short table has the guests in user and nice, and interrupts in system, as its manual page states.
MODES = {**cpu.MPSTAT, "user": "user", "system": "system"}


def sniff(head: bytes) -> bool:
    return HEADER.match(head.decode("utf-8", "replace").lstrip("\n\r\ufeff")) is not None


def read(file: logs.LogFile) -> Iterator[logs.Reading]:
    table = _Table(file)
    for text in file.lines():
        if (header := HEADER.match(text)) is not None:
            yield from table.finish()
            file.host = file.host or header["host"]
            table.begin_file(parse_date(file, header["date"]))
        elif (clock := CLOCK.match(text)) is not None:
            yield from table.add(clock)
    yield from table.finish()


class _Table:
    def __init__(self, file: logs.LogFile) -> None:
        self._file = file
        self._columns: tuple[str, ...] = ()
        self._day: datetime.date | None = None
        self._last: datetime.datetime | None = None  # of any line
        self._begin_us: int | None = None
        self._end_us: int | None = None
        self._cores: dict[int, dict[str, float]] = {}

    def begin_file(self, day: datetime.date | None) -> None:
        self._day, self._last, self._columns = day, None, ()
        self._begin_us = self._end_us = None

    def add(self, clock: re.Match[str]) -> Iterator[logs.Reading]:
        words = clock[5].split()
        try:
            time_us = self._parse_time(clock)
        except (ValueError, OverflowError):
            self._file.damaged += 1
            return
        if words[:1] == ["CPU"] and "%idle" in words:
            yield from self.finish()
            self._columns = tuple(word.lstrip("%") for word in words[1:])
            self._begin_us = time_us
        elif "RESTART" in words:
            yield from self.finish()
            self._begin_us = None
        elif words and not words[-1][0].isdigit() and words[-1] != "-nan":
            yield from self.finish()  # the heading of another table
            self._columns = ()
        elif self._columns and words[:1] != ["all"]:
            if time_us != self._end_us:
                yield from self.finish()
            self._add_core(time_us, words)

    def _add_core(self, time_us: int, words: Sequence[str]) -> None:
        try:
            core, percent = int(words[0]), [float(word.replace(",", ".")) for word in words[1:]]
            if not 0 <= core < MAX_CORES:
                raise ValueError(core)
            modes = to_modes(dict(zip(self._columns, percent, strict=True)))
        except (ValueError, IndexError):
            self._file.damaged += 1
            return
        self._cores[core], self._end_us = modes, time_us

    def finish(self) -> Iterator[logs.Reading]:
        """Yield the reading of the rows so far."""
        begin_us, end_us, cores = self._begin_us, self._end_us, self._cores
        if end_us is not None:
            self._begin_us = end_us
        self._end_us, self._cores = None, {}
        if begin_us is None or end_us is None or not cores:
            return
        if end_us > begin_us:
            yield logs.Reading(begin_us, end_us, cores)
        else:
            self._file.damaged += 1

    def _parse_time(self, clock: re.Match[str]) -> int:
        if self._day is None:
            raise ValueError("no date")
        hour = int(clock[1])
        if clock[4]:
            hour = hour % 12 + 12 * (clock[4] in "Pp")
        time = datetime.time(hour, int(clock[2]), int(clock[3]))
        when = datetime.datetime.combine(self._day, time)
        if self._last is not None and self._last - when > NEXT_DAY:
            self._day += datetime.timedelta(days=1)
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


def parse_date(file: logs.LogFile, text: str) -> datetime.date | None:
    """Parse a date as the host's locale writes it; None where it is not one."""
    parts = DATE.fullmatch(text)
    if parts is None:
        file.damaged += 1
        return None
    first, separator, second, third = parts.groups()
    if len(first) == 4:
        orders = [(first, second, third)]
    elif separator == "/":
        orders = [(third, first, second), (third, second, first)]  # American, British
    else:
        orders = [(third, second, first)]
    dates = []
    for year, month, day in orders:
        try:
            dates.append(datetime.date(int(year) + 2000 * (len(year) == 2), int(month), int(day)))
        except ValueError:
            continue
    if not dates:
        file.damaged += 1
        return None
    if len(set(dates)) > 1:
        modified = file.modified.date()
        dates.sort(key=lambda date: abs(date - modified))
        file.note(f"{text} is read as {dates[0]}, the closest to the file's modification time")
    return dates[0]
