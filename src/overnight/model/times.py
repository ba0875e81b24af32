"""Durations and instants as operators write them."""

from __future__ import annotations

import re

from overnight import errors

__all__ = ["format_duration", "parse_duration"]

UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[dhms])", re.ASCII)


def parse_duration(text: str) -> float:
    """Seconds; a bare number is seconds.

    >>> parse_duration("10m20s"), parse_duration("1.5h"), parse_duration("90")
    (620.0, 5400.0, 90.0)
    """
    compact = "".join(text.split()).lower()
    if re.fullmatch(r"\d+(\.\d+)?", compact, re.ASCII):
        return float(compact)
    parts = PART.findall(compact)
    if not parts or "".join(number + unit for number, unit in parts) != compact:
        raise errors.UsageError(
            f"{text!r} is not a duration",
            why="a duration is numbers with units d, h, m, s or ms, or a bare number of seconds",
            todo="write it like 30s, 10m20s or 12h",
        )
    return sum(float(number) * UNITS[unit] for number, unit in parts)


def format_duration(seconds: float) -> str:
    """The two largest units.

    >>> format_duration(620), format_duration(43200), format_duration(0.25)
    ('10m20s', '12h', '250ms')
    """
    if seconds < 1:
        return f"{round(seconds * 1000)}ms"
    left, parts = round(seconds), []
    for unit in ("d", "h", "m", "s"):
        size = int(UNITS[unit])
        if left >= size:
            parts.append(f"{left // size}{unit}")
            left %= size
    return "".join(parts[:2])
