"""How the host's memory is used, from /proc/meminfo.

One level a line, in kB::

    MemTotal:       24684100 kB
    MemAvailable:   23918888 kB
    Percpu:              712 kB

Percpu and Slab are where memory cgroups that were left behind show: each costs some 75 kB on 32 cores.
"""

from __future__ import annotations

import pathlib

from overnight import sources

__all__ = ["FIELDS", "SIGNALS", "open_memory", "parse_memory", "read_memory"]

# column -> the kernel's word
FIELDS = {
    "total": "MemTotal",
    "free": "MemFree",
    "available": "MemAvailable",
    "cached": "Cached",
    "anonymous": "AnonPages",
    "shared": "Shmem",
    "slab": "Slab",
    "reclaimable": "SReclaimable",
    "percpu": "Percpu",
    "dirty": "Dirty",
    "writeback": "Writeback",
    "swap_free": "SwapFree",
}


def parse_memory(data: bytes) -> tuple[int, ...]:
    """The levels of FIELDS in kB, in that order; zero where this kernel does not tell one.

    >>> parse_memory(b"MemTotal:       24684100 kB\\nMemFree:  21777604 kB\\n")[:3]
    (24684100, 21777604, 0)
    """
    words = data.split()
    levels = {
        word: words[i]
        for i, word in enumerate(words, 1)
        if word.endswith(b":") and i < len(words) and words[i].isdigit()
    }
    return tuple(int(levels.get(b"%s:" % field.encode("ascii"), b"0")) for field in FIELDS.values())


def open_memory(root: pathlib.Path = sources.ROOT) -> sources.Reader:
    """The look at the whole host."""
    file = sources.KeptFile(root / "proc/meminfo")
    return lambda: {"": parse_memory(file.read())}


def read_memory(root: pathlib.Path = sources.ROOT) -> sources.Rows:
    """One look, now."""
    return open_memory(root)()


SIGNALS = (
    sources.Signal(
        "memory",
        10.0,
        "",
        tuple(sources.Column(name, "gauge", "kB") for name in FIELDS),
        open_memory,
        "/proc/meminfo: what memory is used for; slab and per-core memory that only grows is a leak",
    ),
)
