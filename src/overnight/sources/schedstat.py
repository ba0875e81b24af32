"""How long runnable tasks waited for each core, from /proc/schedstat.

One line per core, then one line for each of its scheduling domains, which is most of the file::

    version 15
    timestamp 4295201317
    cpu0 0 0 0 0 0 0 2413271436 321713216 8031
    domain0 3 2064 2047 4 5193 13 0 0 2047 ...

The seventh to ninth number of a core are nanoseconds run, nanoseconds waited in the run queue, and time slices
(kernel/sched/stats.c) since version 15; 16 and 17 changed only the lines of domains, and some distributions
append numbers. Before 15 they were the last three. They are counted whether or not `kernel.sched_schedstats` is
on. Kernels without CONFIG_SCHEDSTATS have no file.
"""

from __future__ import annotations

import pathlib

from overnight import sources

NS_IN_MS = 1_000_000


def parse_schedstat(data: bytes) -> dict[str, tuple[int, ...]]:
    """Parse milliseconds run, milliseconds waited and time slices of every core.

    >>> parse_schedstat(b"version 15\\ncpu3 0 0 0 0 0 0 5999999 2000000 7\\ndomain0 3 1 2")
    {'3': (5, 2, 7)}
    """
    rows: dict[str, tuple[int, ...]] = {}
    version = int(data[8 : data.find(b"\n")]) if data.startswith(b"version ") else 15
    wanted = slice(7, 10) if version >= 15 else slice(-3, None)
    at = data.find(b"\ncpu")
    while at >= 0:
        end = data.find(b"\n", at + 1)
        if end < 0:
            end = len(data)
        fields = data[at + 4 : end].split()
        run, waited, slices = fields[wanted]
        rows[fields[0].decode("ascii")] = int(run) // NS_IN_MS, int(waited) // NS_IN_MS, int(slices)
        at = data.find(b"\ncpu", end)
    return rows


def open_schedstat(root: pathlib.Path = sources.ROOT) -> sources.Reader:
    file = sources.KeptFile(root / "proc/schedstat", room=16384)
    return lambda: parse_schedstat(file.read())


COLUMNS = ("run", "waited", "slices")
# Noise on every core: watches see each second, the ring stores every thirtieth (docs/decisions/0014).
KEEP = dict.fromkeys(COLUMNS, 30.0)
SIGNALS = (sources.Signal("schedstat", 1.0, "core", COLUMNS, open_schedstat, KEEP),)
