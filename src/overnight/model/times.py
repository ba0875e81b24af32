"""Durations and instants as operators write them, and time units."""

from __future__ import annotations

import datetime
import fractions
import re

from overnight import errors

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US
DAY_US = 24 * HOUR_US
SECOND_NS = 1_000_000_000

UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
NUMBER = r"\d{1,15}(?:\.\d{1,15})?"  # nobody means more digits
PART = re.compile(rf"({NUMBER})(ms|[dhms])", re.ASCII)
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


def format_duration(seconds: float) -> str:
    """Format with the two largest units.

    >>> format_duration(620), format_duration(43200), format_duration(0.25)
    ('10m20s', '12h', '250ms')
    """
    if seconds < 0.9995:
        return f"{round(seconds * 1000)}ms"
    left, parts = round(seconds), []
    for unit in ("d", "h", "m", "s"):
        size = int(UNITS[unit])
        if left >= size:
            parts.append(f"{left // size}{unit}")
            left %= size
    return "".join(parts[:2])


def parse_instant(text: str, *, now_us: int, origin_us: int) -> int:
    """Return the µs since the epoch of a time as operators write it.

    ISO (`2026-11-15T03:14:07`, UTC unless it says otherwise), epoch seconds, `now`, `3m ago`, and a
    bare duration since the recording began: `10m20s`.

    >>> parse_instant("10m20s", now_us=0, origin_us=5_000_000)
    625000000
    """
    words = " ".join(text.split())
    if words == "now":
        return now_us
    if words.endswith(" ago"):
        return now_us - round(parse_duration(words.removesuffix(" ago")) * 1e6)
    if re.fullmatch(r"\d{9,15}(\.\d{1,15})?", words, re.ASCII):
        return round(fractions.Fraction(words) * 1_000_000)
    try:
        when = datetime.datetime.fromisoformat(words)
    except ValueError:
        pass
    else:
        if when.tzinfo is None:
            when = when.replace(tzinfo=datetime.UTC)
        return (when - EPOCH) // datetime.timedelta(microseconds=1)
    try:
        return origin_us + round(parse_duration(words.removeprefix("+")) * 1e6)
    except errors.UsageError:
        raise errors.UsageError(
            f"{text!r} is not a time",
            why="a time is ISO, seconds since 1970, 'now', '3m ago', or a duration into the recording",
            todo="write it as 2026-11-15T03:14:07, 1794712447, '3m ago' or 10m20s",
        ) from None


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
