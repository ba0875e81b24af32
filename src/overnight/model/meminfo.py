"""The host's memory counters, as /proc/meminfo writes them."""

from __future__ import annotations

import pathlib


def parse_meminfo(text: str) -> dict[str, int]:
    """Return bytes by name; counts without a unit (`HugePages_Total`) stay counts.

    >>> parse_meminfo("MemTotal:       24684100 kB\\nHugePages_Total:       3\\n")
    {'MemTotal': 25276518400, 'HugePages_Total': 3}
    """
    values = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdecimal():
            values[name] = int(words[0]) * (1024 if words[1:] == ["kB"] else 1)
    return values


def read_available(root: pathlib.Path = pathlib.Path("/")) -> int:
    """Return the bytes that can be allocated without swapping: MemAvailable."""
    return parse_meminfo((root / "proc/meminfo").read_text())["MemAvailable"]
