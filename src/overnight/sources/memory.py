"""How the host's memory is used, from /proc/meminfo.

Dying memory cgroups show in Percpu and Slab: each costs some 75 kB on 32 cores.
"""

from __future__ import annotations

import pathlib

from overnight import sources
from overnight.model import meminfo

# column -> the kernel's name
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
    """Parse the levels of FIELDS in kB, in that order; 0 where this kernel does not have one.

    >>> parse_memory(b"MemTotal:       24684100 kB\\nMemFree:  21777604 kB\\n")[:3]
    (24684100, 21777604, 0)
    """
    levels = meminfo.parse_meminfo(data.decode("utf-8", "replace"))
    return tuple(levels.get(field, 0) // 1024 for field in FIELDS.values())


def open_memory(root: pathlib.Path = sources.ROOT) -> sources.Reader:
    file = sources.KeptFile(root / "proc/meminfo")
    return lambda: {"": parse_memory(file.read())}


SIGNALS = (sources.Signal("memory", 10.0, "", tuple(FIELDS), open_memory),)
