"""Counters of reclaim, compaction, huge pages and the OOM killer, from /proc/vmstat.

One counter per line, some 190 in all, in the kernel's own order::

    pgscan_kswapd 0
    pgscan_direct 0
    allocstall_normal 0
    oom_kill 0

Only those that explain a stall are kept.
"""

from __future__ import annotations

import functools
import pathlib

from overnight import sources

_ZONES = ("dma", "dma32", "normal", "movable", "device", "high")
_BY_ZONE = ("pgscan_direct", "pgscan_kswapd", "pgsteal_direct", "pgsteal_kswapd", "allocstall")
_OTHERS = (
    "pgscan_direct_throttle", "slabs_scanned", "drop_pagecache", "drop_slab",
    "workingset_refault_anon", "workingset_refault_file", "pgfault", "pgmajfault", "pswpin", "pswpout", "oom_kill",
    "compact_stall", "compact_fail", "compact_migrate_scanned",
    "thp_fault_alloc", "thp_fault_fallback", "thp_collapse_alloc", "thp_split_page", "numa_pages_migrated",
)  # fmt: skip

# column -> the counters that are summed into it, under all the names they have had
COLUMNS: dict[str, tuple[str, ...]] = {
    **{name: (name, *(f"{name}_{zone}" for zone in _ZONES)) for name in _BY_ZONE},
    **{name: (name,) for name in _OTHERS},
    "workingset_refault_file": ("workingset_refault_file", "workingset_refault"),
    "thp_split_page": ("thp_split_page", "thp_split"),
}


def parse_vmstat(data: bytes) -> tuple[int, ...]:
    """Parse the counters of COLUMNS, in that order; 0 where this kernel does not have one."""
    words = data.split()
    positions = _find_positions(tuple(words[: len(words) // 2 * 2 : 2]))
    return tuple(sum(int(words[i]) for i in indices) for indices in positions)


@functools.lru_cache(maxsize=1)  # a kernel's counters keep their order until a reboot
def _find_positions(names: tuple[bytes, ...]) -> tuple[tuple[int, ...], ...]:
    at = {name.decode("ascii", "replace"): 2 * i + 1 for i, name in enumerate(names)}
    return tuple(tuple(at[name] for name in names if name in at) for names in COLUMNS.values())


def open_vmstat(root: pathlib.Path = sources.ROOT) -> sources.Reader:
    file = sources.KeptFile(root / "proc/vmstat", room=16384)
    return lambda: {"": parse_vmstat(file.read())}


# It rises every second on every host and does not compress.
KEEP = {"pgfault": 10.0}
SIGNALS = (sources.Signal("vmstat", 1.0, "", tuple(COLUMNS), open_vmstat, KEEP),)
