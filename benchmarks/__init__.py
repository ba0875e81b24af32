"""Benchmarks against other tools in the same run: `make bench`, or `python -m benchmarks NAME…`.

Each module measures one thing: `measure() -> list[Result]`. A comparison is also reported as a ratio: on a
shared machine a ratio from one run is more reliable than a time.
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
    """One measurement. `goal` is the target; `peer` the tool it is compared with."""

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
        """Return how many times better than the peer it is: above 1 is faster, smaller or cheaper."""
        if not self.peer_value or not self.value:
            return None
        return self.value / self.peer_value if self.more_is_better else self.peer_value / self.value


def median_of(times: int, run: Callable[[], object]) -> float:
    """Return the median wall time in seconds: a single run on a shared machine is not reliable."""
    durations = []
    for _ in range(times):
        begin = time.perf_counter()
        run()
        durations.append(time.perf_counter() - begin)
    return sorted(durations)[times // 2]


def cpu_of_command(command: Sequence[str]) -> float:
    """Return the CPU seconds of a command and its children; its output is discarded."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
