"""Load averages and the number of threads, from /proc/loadavg.

One line::

    0.47 1.29 1.51 1/224 29767

The averages over 1, 5 and 15 minutes, runnable threads, all threads, the newest pid.
"""

from __future__ import annotations

import pathlib

from overnight import sources


def parse_load(data: bytes) -> tuple[int, ...]:
    """Parse the three averages in hundredths, runnable threads, all threads.

    >>> parse_load(b"0.47 1.29 12.51 1/224 29767")
    (47, 129, 1251, 1, 224)
    """
    minute, five, fifteen, threads, *_ = data.split()
    runnable, _, every = threads.partition(b"/")
    # The kernel always prints two digits after the point (LOAD_FRAC).
    averages = (int(average.replace(b".", b"")) for average in (minute, five, fifteen))
    return (*averages, int(runnable), int(every))


def open_load(root: pathlib.Path = sources.ROOT) -> sources.Reader:
    file = sources.KeptFile(root / "proc/loadavg")
    return lambda: {"": parse_load(file.read())}


COLUMNS = ("load1", "load5", "load15", "runnable", "threads")
SIGNALS = (sources.Signal("load", 10.0, "", COLUMNS, open_load),)
