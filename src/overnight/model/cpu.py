"""What the ticks of /proc/stat mean. The one place that says what counts as busy.

Busy is time in which the core ran something of this host. Time that the hypervisor took (steal) is not
busy: the core ran nothing of ours then. It is part of the total and always shown separately.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence

# In the order of /proc/stat. guest and guest_nice are already part of user and nice (proc(5)).
MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice")  # fmt: skip
TOTAL = MODES[:8]
USER = ("user", "nice")
KERNEL = ("system", "irq", "softirq")  # interrupts included: they starve the core's own threads too
BUSY = (*USER, *KERNEL)
STEAL = ("steal",)
IDLE = ("idle", "iowait")
# mpstat's columns in its order, without the percent sign. Its usr and nice do not include the guests' time.
MPSTAT = {"usr": "user", "nice": "nice", "sys": "system", "iowait": "iowait", "irq": "irq", "soft": "softirq", "steal": "steal", "guest": "guest", "gnice": "guest_nice", "idle": "idle"}  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Shares:
    """Shares of one core's time between two readings, each 0 to 1 of all its ticks."""

    busy: float
    kernel: float
    steal: float


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
