"""Per-core CPU time by mode, from /proc/stat.

The line of one core, in clock ticks since boot::

    cpu1 1393280 32966 572056 13343292 6130 0 17875 0 23933 0
         user    nice  system idle     iowait irq softirq steal guest guest_nice

`model.cpu` defines which modes count as busy, kernel and total.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib

from overnight import sources
from overnight.model import cpu as modes


@dataclasses.dataclass(frozen=True)
class CpuTimes:
    """Seconds one core has spent in each mode since boot."""

    core: int
    seconds: tuple[float, ...]  # in the order of model.cpu.MODES

    @property
    def total(self) -> float:
        return self._sum(modes.TOTAL)

    @property
    def busy(self) -> float:
        return self._sum(modes.BUSY)

    @property
    def kernel(self) -> float:
        return self._sum(modes.KERNEL)

    @property
    def steal(self) -> float:
        return self._sum(modes.STEAL)

    def _sum(self, names: tuple[str, ...]) -> float:
        return sum(self.seconds[modes.MODES.index(name)] for name in names)


def parse_cpu(data: bytes, ticks: int = 100) -> tuple[CpuTimes, ...]:
    """Parse the per-core lines of /proc/stat; an off-line core has none.

    >>> parse_cpu(b"cpu  9 9 9 9\\ncpu3 200 0 100 700 0 0 50 0 0 0\\nintr 1")[0].kernel
    1.5
    """
    return tuple(
        CpuTimes(int(core), tuple(count / ticks for count in row))
        for core, row in parse_ticks(data).items()
    )


def read_cpu(root: pathlib.Path = sources.ROOT) -> tuple[CpuTimes, ...]:
    return parse_cpu((root / "proc/stat").read_bytes(), os.sysconf("SC_CLK_TCK"))


def online(root: pathlib.Path = sources.ROOT) -> tuple[int, ...]:
    """Return the online cores; the numbers may have gaps."""
    try:
        return sources.parse_cpu_list((root / "sys/devices/system/cpu/online").read_text())
    except FileNotFoundError:
        return tuple(times.core for times in read_cpu(root))


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
