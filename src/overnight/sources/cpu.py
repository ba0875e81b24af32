"""Per-core CPU time by mode, from /proc/stat.

The line of one core, in clock ticks since boot::

    cpu1 1393280 32966 572056 13343292 6130 0 17875 0 23933 0
         user    nice  system idle     iowait irq softirq steal guest guest_nice

`model.cpu` defines which modes count as busy, kernel and total.
"""

from __future__ import annotations

import pathlib

from overnight import sources
from overnight.model import cpu as modes


def read_ticks(root: pathlib.Path = sources.ROOT) -> dict[int, tuple[int, ...]]:
    """Read the ticks of every online core by mode; `model.cpu` derives shares from two readings."""
    rows = parse_ticks((root / "proc/stat").read_bytes())
    return {int(core): ticks for core, ticks in rows.items()}


def online(root: pathlib.Path = sources.ROOT) -> tuple[int, ...]:
    """Return the online cores; the numbers may have gaps."""
    try:
        return sources.parse_cpu_list((root / "sys/devices/system/cpu/online").read_text())
    except FileNotFoundError:
        return tuple(read_ticks(root))


def parse_ticks(data: bytes) -> dict[str, tuple[int, ...]]:
    """Parse the per-core lines as clock ticks: ten modes per core, by the core's number.

    >>> parse_ticks(b"cpu  9 9 9 9\\ncpu3 200 0 100 700 0 0 50 0 0 0\\nintr 1")
    {'3': (200, 0, 100, 700, 0, 0, 50, 0, 0, 0)}
    """
    # The cores come between their sum and the interrupts, a far longer line.
    cores = data[data.find(b"\n") + 1 : data.find(b"\nintr") + 1]
    rows = {}
    for line in cores.split(b"\n"):
        if line.startswith(b"cpu"):
            name, *ticks = line.split(None, 11)[:11]
            if len(ticks) < 10:  # old kernels have fewer modes
                ticks += [b"0"] * (10 - len(ticks))
            rows[name[3:].decode("ascii")] = tuple(map(int, ticks))
    return rows


def open_ticks(root: pathlib.Path = sources.ROOT) -> sources.Reader:
    """Open a reader of every online core; an off-line core has no row."""
    file = sources.KeptFile(root / "proc/stat", room=65536)
    return lambda: parse_ticks(file.read())


SIGNALS = (sources.Signal("cpu", 1.0, "core", modes.MODES, open_ticks),)
