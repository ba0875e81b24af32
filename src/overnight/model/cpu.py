"""What the ticks of /proc/stat mean. The one place that says what counts as busy.

Busy is time in which the core ran something of this host. Time that the hypervisor took (steal) is not
busy: the core ran nothing of ours then. It is part of the total and always shown separately.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence

from overnight.model import cpu_modes

MODES, TOTAL, STEAL = cpu_modes.MODES, cpu_modes.TOTAL, cpu_modes.STEAL
USER, KERNEL, BUSY, IDLE = cpu_modes.USER, cpu_modes.KERNEL, cpu_modes.BUSY, cpu_modes.IDLE
# mpstat's columns in its order, without the percent sign. Its usr and nice do not include the guests' time.
MPSTAT = {"usr": "user", "nice": "nice", "sys": "system", "iowait": "iowait", "irq": "irq", "soft": "softirq", "steal": "steal", "guest": "guest", "gnice": "guest_nice", "idle": "idle"}  # fmt: skip

# Shares of a core's time from which it is at its limit, in all and in the kernel alone.
FULL, FULL_KERNEL = 0.95, 0.90
# A program in the kernel that shares its core with a worker of a constant load gets half of it. That stands out
# from the median of the other cores.
KERNEL_HEAVY, MORE_KERNEL = 0.4, 0.3
ROOM = 0.5  # cores that are less busy than this on average have room


@dataclasses.dataclass(frozen=True, slots=True)
class Shares:
    """Shares of one core's time between two readings, each 0 to 1 of all its ticks."""

    busy: float
    kernel: float
    steal: float

    @property
    def at_limit(self) -> bool:
        """Whether the core has no time left, or none that the kernel does not take."""
        return self.busy >= FULL or self.kernel >= FULL_KERNEL

    def stands_out(self, others_kernel: float) -> bool:
        """Whether the core is at its limit in the kernel while most others, however busy, are not."""
        return self.at_limit and self.kernel >= max(KERNEL_HEAVY, others_kernel + MORE_KERNEL)


def tick_changes(before: Sequence[int], now: Sequence[int]) -> list[int]:
    """Return the ticks by mode between two rows; one that the kernel corrected downwards (proc(5)) is 0."""
    changes = list(map(int.__sub__, now[:8], before[:8]))
    return changes if min(changes, default=0) >= 0 else [max(change, 0) for change in changes]


def tick_shares(ticks: Sequence[int]) -> Shares | None:
    """Return the shares of a row of tick changes; None where no time passed.

    >>> tick_shares([40, 0, 40, 10, 0, 0, 0, 10])
    Shares(busy=0.8, kernel=0.4, steal=0.1)
    """
    total = sum(ticks[:8])
    if total <= 0:
        return None
    user, nice, system, _, _, irq, softirq, steal = ticks[:8]
    kernel = system + irq + softirq
    return Shares((user + nice + kernel) / total, kernel / total, steal / total)


def format_cores(cores: Iterable[int]) -> str:
    """Format a list of cores as the kernel does.

    >>> format_cores([0, 1, 2, 5])
    '0-2,5'
    """
    runs = itertools.groupby(enumerate(sorted(cores)), key=lambda item: item[1] - item[0])
    edges = ([core for _, core in run] for _, run in runs)
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in edges)
