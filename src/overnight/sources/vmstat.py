"""Counters of reclaim, compaction, huge pages and the OOM killer, from /proc/vmstat.

One counter a line, some 190 of them, in the kernel's own order::

    pgscan_kswapd 0
    pgscan_direct 0
    allocstall_normal 0
    oom_kill 0

Only those that explain a stall are kept.
"""

from __future__ import annotations

import pathlib

from overnight import sources

_ZONES = ("dma", "dma32", "normal", "movable", "device", "high")

# column -> the counters that are summed into it, under all the names they have had
COLUMNS: dict[str, tuple[str, ...]] = {
    "pgscan_direct": ("pgscan_direct", *(f"pgscan_direct_{zone}" for zone in _ZONES)),
    "pgscan_kswapd": ("pgscan_kswapd", *(f"pgscan_kswapd_{zone}" for zone in _ZONES)),
    "pgsteal_direct": ("pgsteal_direct", *(f"pgsteal_direct_{zone}" for zone in _ZONES)),
    "pgsteal_kswapd": ("pgsteal_kswapd", *(f"pgsteal_kswapd_{zone}" for zone in _ZONES)),
    "allocstall": ("allocstall", *(f"allocstall_{zone}" for zone in _ZONES)),
    "pgscan_direct_throttle": ("pgscan_direct_throttle",),
    "slabs_scanned": ("slabs_scanned",),
    "drop_pagecache": ("drop_pagecache",),
    "drop_slab": ("drop_slab",),
    "workingset_refault_anon": ("workingset_refault_anon",),
    "workingset_refault_file": ("workingset_refault_file", "workingset_refault"),
    "pgmajfault": ("pgmajfault",),
    "pswpin": ("pswpin",),
    "pswpout": ("pswpout",),
    "oom_kill": ("oom_kill",),
    "compact_stall": ("compact_stall",),
    "compact_fail": ("compact_fail",),
    "compact_migrate_scanned": ("compact_migrate_scanned",),
    "thp_fault_alloc": ("thp_fault_alloc",),
    "thp_fault_fallback": ("thp_fault_fallback",),
    "thp_collapse_alloc": ("thp_collapse_alloc",),
    "thp_split_page": ("thp_split_page", "thp_split"),
    "numa_pages_migrated": ("numa_pages_migrated",),
}


def parse_vmstat(data: bytes) -> tuple[int, ...]:
    """Parse the counters of COLUMNS, in that order; 0 where this kernel does not have one."""
    words = data.split()
    return _pick(words, _find_positions(words))


def _find_positions(words: list[bytes]) -> tuple[tuple[int, ...], ...]:
    names = words[: len(words) // 2 * 2 : 2]
    at = {name.decode("ascii", "replace"): 2 * i + 1 for i, name in enumerate(names)}
    return tuple(tuple(at[name] for name in names if name in at) for names in COLUMNS.values())


def _pick(words: list[bytes], positions: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    return tuple(
        int(words[indices[0]]) if len(indices) == 1 else sum(int(words[i]) for i in indices)
        for indices in positions
    )


def open_vmstat(root: pathlib.Path = sources.ROOT) -> sources.Reader:
    """Open a reader of this kernel's counters; their order does not change until a reboot."""
    file = sources.KeptFile(root / "proc/vmstat", room=16384)
    positions: tuple[tuple[int, ...], ...] = ()
    known = -1

    def read() -> dict[str, tuple[int, ...]]:
        nonlocal positions, known
        words = file.read().split()
        if len(words) != known:
            positions, known = _find_positions(words), len(words)
        return {"": _pick(words, positions)}

    return read


def _unit(column: str) -> str:
    paged = ("pgscan_", "pgsteal_", "workingset_", "pswp", "numa_", "compact_m")
    return "pages" if column.startswith(paged) and not column.endswith("throttle") else ""


SIGNALS = (
    sources.Signal(
        "vmstat",
        1.0,
        "",
        tuple(sources.Column(name, unit=_unit(name)) for name in COLUMNS),
        open_vmstat,
        "/proc/vmstat: reclaim, stalled allocations, compaction, huge pages, out-of-memory kills",
    ),
)
