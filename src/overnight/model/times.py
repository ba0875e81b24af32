"""Durations and instants as operators write them, and time units."""

from __future__ import annotations

import datetime
import re
import time

from overnight import errors

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US
DAY_US = 24 * HOUR_US
NIGHT_US = 12 * HOUR_US  # a window across midnight is no longer, unless its end has a date
SECOND_NS = 1_000_000_000
MONTH_HOURS = 730.0
# Seconds between two round times.
STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)

UNITS = {"d": 86400.0, "h": 3600.0, "min": 60.0, "m": 60.0, "s": 1.0, "ms": 0.001}
NUMBER = r"\d{1,15}(?:\.\d{1,15})?"  # nobody means more digits
CLOCK = re.compile(r"\d{1,2}:\d\d\S*", re.ASCII)
DAYS = {"today": 0, "yesterday": 1}
PART = re.compile(rf"({NUMBER})(ms|min|[dhms])", re.ASCII)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def parse_duration(text: str) -> float:
    """Return seconds; a bare number is seconds.

    >>> parse_duration("10m20s"), parse_duration("1.5h"), parse_duration("90")
    (620.0, 5400.0, 90.0)
    """
    compact = "".join(text.split()).lower()
    if re.fullmatch(NUMBER, compact, re.ASCII):
        return float(compact)
    parts = PART.findall(compact)
    if not parts or "".join(number + unit for number, unit in parts) != compact:
        raise errors.UsageError(
            f"{text!r} is not a duration",
            why="a duration has units d, h, m, s or ms, or is a number of seconds",
            todo="write it as 30s, 10m20s or 12h",
        )
    return sum(float(number) * UNITS[unit] for number, unit in parts)


def format_duration(seconds: float, *, exact: bool = False) -> str:
    """Format for people, with the two largest units; `exact`: less than 100 s with three digits.

    >>> format_duration(620), format_duration(43200), format_duration(0.25), format_duration(0)
    ('10 min 20 s', '12 h', '250 ms', '0 s')
    >>> format_duration(11.72), format_duration(11.72, exact=True)
    ('12 s', '11.7 s')
    """
    if exact and seconds < 100:
        return f"{seconds:.3g} s"
    if 0 < seconds < 0.9995:
        return f"{round(seconds * 1000)} ms"
    left, parts = round(seconds), []
    for unit in ("d", "h", "min", "s"):
        size = int(UNITS[unit])
        if left >= size:
            parts.append(f"{left // size} {unit}")
            left %= size
    return " ".join(parts[:2]) or "0 s"


def list_round(begin_us: int, end_us: int, most: float) -> range:
    """Return the round times from `begin_us` to `end_us`, about `most` of them."""
    span_s = (end_us - begin_us) / SECOND_US
    step = next((s for s in STEPS if span_s / s <= most), STEPS[-1]) * SECOND_US
    return range(-(-begin_us // step) * step, end_us + 1, step)


def parse_instant(
    text: str, *, now_us: int, origin_us: int, before_us: int | None = None, begin_us: int | None = None
) -> int:  # fmt: skip
    """Return the µs since the epoch of a time as operators write it.

    ISO (`2026-11-15T03:14:07`), `yesterday 03:00`, `22:41` (the last one, by default before now), all UTC
    unless an offset or a zone follows: `22:41+01:00`, `22:41 Europe/Berlin`, `22:41 local`; epoch seconds,
    `now`, `3m ago`, and a bare duration since the recording began: `10m20s`. With `begin_us`, the time is the end
    of a window: `22:41` is on the day on which that begins, or the morning after it.

    >>> parse_instant("10m20s", now_us=0, origin_us=5_000_000)
    625000000
    >>> parse_instant("23:00", now_us=0, origin_us=0)
    -3600000000
    """
    words, zone = _split_zone(" ".join(text.split()))
    if words == "now":
        return now_us
    if words.endswith(" ago"):
        return now_us - round(parse_duration(words.removesuffix(" ago")) * 1e6)
    if re.fullmatch(r"\d{9,15}(\.\d{1,15})?", words, re.ASCII):
        import fractions  # with decimal, a megabyte: the uplink needs neither

        return round(fractions.Fraction(words) * 1_000_000)
    try:
        day, _, clock = f"{words} 00:00".rpartition(" ") if words in DAYS else words.rpartition(" ")
        if day in ("", *DAYS) and CLOCK.fullmatch(clock):
            limit_us = now_us if day or before_us is None else before_us
            return _parse_clock(day, clock, zone, limit_us, None if day else begin_us)
        return _since_epoch(datetime.datetime.fromisoformat(words), zone)
    except (ValueError, OverflowError):
        pass
    try:
        return origin_us + round(parse_duration(words.removeprefix("+")) * 1e6)
    except errors.UsageError:
        raise errors.UsageError(
            f"{text!r} is not a time",
            why="a time is 22:41, 'yesterday 03:00', ISO, seconds since 1970, 'now', '3m ago', or a duration "
            "into the recording; a zone may follow",
            todo="write it as 22:41, '22:41 local', 2026-11-15T03:14:07+01:00, '3m ago' or 10m20s",
        ) from None


def _split_zone(words: str) -> tuple[str, datetime.tzinfo | None]:
    """Split a zone off a time: UTC by default, None for the local one."""
    time, _, name = words.rpartition(" ")
    if not time or not name[0].isalpha() or name in ("ago", *DAYS, *UNITS):
        return words, datetime.UTC
    if name == "local":
        return time, None
    import zoneinfo

    try:
        return time, zoneinfo.ZoneInfo(name)
    except (OSError, ValueError, zoneinfo.ZoneInfoNotFoundError):
        if "/" not in name:  # any other word
            return words, datetime.UTC
        raise errors.UsageError(
            f"no time zone {name!r}",
            why="it is not in this host's time zone database",
            todo="write it as Europe/Berlin, UTC or local",
        ) from None


def _parse_clock(
    day: str, clock: str, zone: datetime.tzinfo | None, limit_us: int, begin_us: int | None
) -> int:
    """Return a time of day on a named day, its last occurrence until the limit, or the end of a window."""
    at = datetime.time.fromisoformat(clock if clock[2] == ":" else f"0{clock}")
    near_us = limit_us if begin_us is None else begin_us
    near = (EPOCH + datetime.timedelta(microseconds=near_us)).astimezone(at.tzinfo or zone)

    def on(days: int) -> int:
        date = near.date() + datetime.timedelta(days=days)
        return _since_epoch(datetime.datetime.combine(date, at), zone)

    us = on(-DAYS.get(day, 0))
    if begin_us is not None:
        return on(1) if us <= begin_us and on(1) - begin_us <= NIGHT_US else us
    return on(-1) if not day and us > limit_us else us


def _since_epoch(when: datetime.datetime, zone: datetime.tzinfo | None) -> int:
    if when.tzinfo is None:
        when = when.replace(tzinfo=zone) if zone else when.astimezone()
    return (when - EPOCH) // datetime.timedelta(microseconds=1)


def now_us() -> int:
    """Return µs since the epoch. Hosts share rows and marks, so this is the wall clock."""
    return time.time_ns() // 1000


def format_instant(us: int) -> str:
    """Format as ISO in UTC, to the millisecond.

    >>> format_instant(1_794_712_447_250_000)
    '2026-11-15T03:14:07.250Z'
    """
    try:
        when = EPOCH + datetime.timedelta(seconds=us // 1_000_000)
    except OverflowError:  # a damaged file may hold any number
        return f"{us / 1e6:.3f} s after 1970"
    return f"{when:%Y-%m-%dT%H:%M:%S}.{us % 1_000_000 // 1000:03}Z"
