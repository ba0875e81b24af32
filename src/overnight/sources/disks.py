"""Requests, their latency and the queue of each disk, from /proc/diskstats.

A line per disk and partition: number, name, then eleven counters or more (4.18 and 5.5 appended discards and
flushes)::

     254       0 vda 3237335 358423 74343346 19950100 10064502 4982357 287367848 5040896 0 1903520 26193369

They are reads, reads merged, sectors read, milliseconds of all reads; the same four of writes; requests in flight,
`busy_ms` and `weighted_ms`. `busy_ms` counts the time with at least one request; `weighted_ms` that time multiplied by the requests in flight.
A latency is `read_ms` by `reads` between two readings.
"""

from __future__ import annotations

import os
import pathlib

from overnight import sources

MAX_DISKS = 64
_KEPT = (0, 3, 4, 7, 8, 9, 10)


def parse_disks(data: bytes) -> dict[bytes, tuple[int, ...]]:
    """Parse the columns of every disk and partition.

    >>> parse_disks(b" 254       0 vda 9 1 80 30 7 2 56 40 1 60 70 0 0 0 0\\n")
    {b'vda': (9, 30, 7, 40, 1, 60, 70)}
    """
    rows = {}
    for line in data.split(b"\n"):
        fields = line.split()
        if len(fields) >= 14:
            rows[fields[2]] = tuple(int(fields[3 + i]) for i in _KEPT)
    return rows


def open_disks(root: pathlib.Path = sources.ROOT) -> sources.Reader:
    """Open a reader of the disks with a device: no partitions, loop, RAM or mapped devices."""
    file = sources.KeptFile(root / "proc/diskstats", room=16384)
    folder = os.fspath(root / "sys/block")

    def read() -> sources.Rows:
        counters = parse_disks(file.read())
        names = (name for name in sources.list_folder(folder) if os.fsencode(name) in counters)
        disks = [name for name in names if os.access(f"{folder}/{name}/device", os.F_OK)]
        if not disks:
            raise sources.NoDataError("no disk here has a device behind it")
        return {sources.clean(name): counters[os.fsencode(name)] for name in disks[:MAX_DISKS]}

    return read


COLUMNS = ("reads", "read_ms", "writes", "write_ms", "in_flight", "busy_ms", "weighted_ms")
SIGNALS = (sources.Signal("disks", 10.0, "disk", COLUMNS, open_disks),)
