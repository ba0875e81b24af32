"""Functions of a JIT compiler, from the /tmp/perf-PID.map that it writes for profilers.

A line is an address and a size in hex, and a name that may contain spaces::

    7f3a2c001000 1c0 LazyCompile:*main /srv/app.js:12
"""

from __future__ import annotations

import re

import numpy as np

from overnight.ingest.symbols import table

LINE = re.compile(
    rb"^[ \t]*(?:0x)?([0-9a-fA-F]{1,16})[ \t]+(?:0x)?([0-9a-fA-F]{1,16})[ \t]([^\n\0]+)",
    re.MULTILINE,
)
MODULE = re.compile(r"/tmp/perf-(\d{1,10})\.map")  # noqa: S108 - a name to recognise, not to open


def perf_map_pid(module: str) -> int | None:
    """Return the process of a map: perf uses this name for memory without a file."""
    match = MODULE.fullmatch(module)
    return int(match[1]) if match else None


def parse_perf_map(text: bytes) -> table.SymbolTable:
    """Parse the valid lines; compilers reuse memory, so the last function of an address counts."""
    lines = [(int(m[1], 16), int(m[2], 16), m.start(3)) for m in LINE.finditer(text)]
    starts, sizes, at = np.array(lines, np.uint64).reshape(-1, 3).T
    latest = len(starts) - 1 - np.unique(starts[::-1], return_index=True)[1]
    latest = latest[sizes[latest] > 0]
    symbols = table.Symbols(
        start=starts[latest],
        size=sizes[latest],
        binding=np.full(len(latest), table.GLOBAL, np.uint8),
        name_at=at[latest].astype(np.int64),
        names=text.replace(b"\n", b"\0"),
    )
    return table.make_table(symbols)
