"""Per-core CPU time by mode, from /proc/stat.

The line of one core, in clock ticks since boot::

    cpu1 1393280 32966 572056 13343292 6130 0 17875 0 23933 0
         user    nice  system idle     iowait irq softirq steal guest guest_nice

guest and guest_nice are already counted in user and nice (kernel/sched/cputime.c,
account_guest_time), so they are left out of the total.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib

from overnight import sources

__all__ = [
    "SIGNALS",
    "CpuTimes",
    "online",
    "open_ticks",
    "parse_cpu",
    "parse_cpu_list",
    "parse_ticks",
    "read_cpu",
]

MODES = [
    "user",
    "nice",
    "system",
    "idle",
    "iowait",
    "irq",
    "softirq",
    "steal",
    "guest",
    "guest_nice",
]


@dataclasses.dataclass(frozen=True)
class CpuTimes:
    """Seconds one core has spent in each mode since boot."""

    core: int
    user: float
    system: float
    irq: float
    softirq: float
    idle: float
    iowait: float
    steal: float

    @property
    def total(self) -> float:
        """All time of the core that the kernel has accounted."""
        return self.user + self.kernel + self.idle + self.iowait + self.steal

    @property
    def kernel(self) -> float:
        """Time inside the kernel, interrupts included: what starves a core's own threads."""
        return self.system + self.irq + self.softirq

    @property
    def busy(self) -> float:
        """Time in which the core could not have run anything else for us."""
        return self.user + self.kernel + self.steal


def parse_cpu(text: str, ticks: int = 100) -> tuple[CpuTimes, ...]:
    """The per-core lines of /proc/stat; cores that are off-line have none.

    >>> parse_cpu("cpu  9 9 9 9\\ncpu3 200 0 100 700 0 0 50 0 0 0\\nintr 1")[0].kernel
    1.5
    """
    cores = []
    for line in text.splitlines():
        if not line.startswith("cpu") or not line[3:4].isdigit():
            continue
        name, *fields = line.split()
        # Old kernels end the line early: what is not counted there is zero.
        n = [int(f) / ticks for f in fields[:8]] + [0.0] * (8 - len(fields[:8]))
        cores.append(
            CpuTimes(
                core=int(name[3:]),
                user=n[0] + n[1],
                system=n[2],
                idle=n[3],
                iowait=n[4],
                irq=n[5],
                softirq=n[6],
                steal=n[7],
            )
        )
    return tuple(cores)


def read_cpu(root: pathlib.Path = sources.ROOT) -> tuple[CpuTimes, ...]:
    """Every online core's times now."""
    return parse_cpu((root / "proc/stat").read_text(), os.sysconf("SC_CLK_TCK"))


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """The kernel's list format.

    >>> parse_cpu_list("0-2,5\\n")
    (0, 1, 2, 5)
    """
    cores: list[int] = []
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            cores.extend(range(int(first), int(last or first) + 1))
    return tuple(cores)


def online(root: pathlib.Path = sources.ROOT) -> tuple[int, ...]:
    """The cores that are switched on; numbers may have holes."""
    try:
        return parse_cpu_list((root / "sys/devices/system/cpu/online").read_text())
    except FileNotFoundError:
        return tuple(times.core for times in read_cpu(root))


def parse_ticks(data: bytes) -> dict[str, tuple[int, ...]]:
    """The same lines as whole clock ticks, ten modes a core, under the core's number.

    >>> parse_ticks(b"cpu  9 9 9 9\\ncpu3 200 0 100 700 0 0 50 0 0 0\\nintr 1")
    {'3': (200, 0, 100, 700, 0, 0, 50, 0, 0, 0)}
    """
    # The cores stand between the sum over all of them and the interrupts, which are longer by far.
    cores = data[data.find(b"\n") + 1 : data.find(b"\nintr") + 1]
    rows = {}
    for line in cores.split(b"\n"):
        if line.startswith(b"cpu"):
            name, *ticks = line.split(None, 11)[:11]
            if len(ticks) < 10:
                ticks += [b"0"] * (10 - len(ticks))
            rows[name[3:].decode("ascii")] = tuple(map(int, ticks))
    return rows


def open_ticks(root: pathlib.Path = sources.ROOT) -> sources.Reader:
    """The look at every online core; a core that is off-line has no row."""
    file = sources.KeptFile(root / "proc/stat", room=65536)
    return lambda: parse_ticks(file.read())


SIGNALS = (
    sources.Signal(
        "cpu",
        1.0,
        "core",
        tuple(sources.Column(mode, unit="ticks") for mode in MODES),
        open_ticks,
        "/proc/stat: what each core spent its time on, to the tick; a core that is full in the kernel",
    ),
)
