"""Sizes in bytes as operators write them."""

from __future__ import annotations

import fractions
import re

from overnight import errors

UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12,
         "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40}  # fmt: skip
SIZE = re.compile(r"(\d{1,30}(?:\.\d{1,30})?)\s*([kmgt]i?)?b?", re.ASCII | re.IGNORECASE)


def parse_size(text: str) -> int:
    """Return bytes.

    >>> parse_size("20GiB"), parse_size("1.5 MB"), parse_size("512")
    (21474836480, 1500000, 512)
    """
    match = SIZE.fullmatch(text.strip())
    if match is None:
        raise errors.UsageError(
            f"{text!r} is not a size",
            why="a size is a number with a unit: B, kB, MB, GB, TB, KiB, MiB, GiB, TiB",
            todo="write it as 20GiB",
        )
    return round(fractions.Fraction(match[1]) * UNITS[(match[2] or "").lower()])


def format_size(size: float) -> str:
    """Format with three significant digits.

    >>> format_size(21474836480), format_size(999), format_size(999_600)
    ('21.5 GB', '999 B', '1 MB')
    """
    if round(size) < 1000:
        return f"{size:.0f} B"
    for unit in ("kB", "MB", "GB"):
        size /= 1000
        if size < 999.5:
            return f"{size:.3g} {unit}"
    size /= 1000
    return f"{size:.3g} TB" if size < 999.5 else f"{size:.0f} TB"
