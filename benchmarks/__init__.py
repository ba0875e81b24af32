"""Measurements, beside the peers in the same run. `make bench`, or `python -m benchmarks NAME…`.

Each module measures one thing: `measure() -> list[Result]`. A figure beside a peer is given as a
ratio too: this is a shared machine, and a ratio from one run says more than a time.
"""

from __future__ import annotations

import dataclasses
import resource
import subprocess
import time
from collections.abc import Callable, Sequence

__all__ = ["Result", "cpu_of_command", "median_of"]


@dataclasses.dataclass(frozen=True)
class Result:
    """One figure. `goal` is what the issue asks for; `peer` what was measured beside it."""

    what: str
    value: float
    unit: str
    goal: str = ""
    met: bool | None = None
    peer: str = ""
    peer_value: float | None = None
    more_is_better: bool = False

    @property
    def ratio(self) -> float | None:
        """How many times better than the peer: above 1 is faster, smaller or cheaper."""
        if not self.peer_value or not self.value:
            return None
        return self.value / self.peer_value if self.more_is_better else self.peer_value / self.value


def median_of(times: int, run: Callable[[], object]) -> float:
    """Seconds of wall time, the median: one slow run on a shared machine says nothing."""
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        run()
        taken.append(time.perf_counter() - begin)
    return sorted(taken)[times // 2]


def cpu_of_command(command: Sequence[str]) -> float:
    """CPU seconds of a command with all its children, its output thrown away."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
