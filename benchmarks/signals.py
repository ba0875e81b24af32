"""Cost of one poll of each signal, on this host and on a fake host with 192 cores.

    python -m benchmarks.signals        the table alone

CPU time of this process, kernel time included. On the fake host only the Python part is realistic: reading a file
is faster than the kernel producing the same text.
"""

from __future__ import annotations

import dataclasses
import importlib
import pathlib
import pkgutil
import sys
import tempfile
import time

from benchmarks import Result
from overnight import sources

sys.path.append(str(pathlib.Path(__file__).parents[1] / "tests/support"))

POLLS = 300
SECONDS = 0.3  # at most, per signal


@dataclasses.dataclass(frozen=True)
class Cost:
    signal: sources.Signal | sources.FactSignal
    cpu_us: float
    wall_us: float
    rows: int

    @property
    def percent(self) -> float:
        return self.cpu_us / self.signal.every / 1e4


def discovered() -> list[sources.Signal | sources.FactSignal]:
    modules = [
        importlib.import_module(f"overnight.sources.{module.name}")
        for module in pkgutil.iter_modules(sources.__path__)
    ]
    return [signal for module in modules for signal in getattr(module, "SIGNALS", ())]


def cost_of(signal: sources.Signal | sources.FactSignal, root: pathlib.Path) -> Cost | None:
    """Measure one signal; None where the host does not have it."""
    try:
        poll = signal.open(root)
        for _ in range(5):
            rows = len(poll())
    except (sources.NoDataError, OSError):
        return None
    begin, used, polls = time.perf_counter(), time.process_time(), 0
    while polls < POLLS and time.perf_counter() - begin < SECONDS:
        poll()
        polls += 1
    used, wall = time.process_time() - used, time.perf_counter() - begin
    return Cost(signal, used / polls * 1e6, wall / polls * 1e6, rows)


def costs() -> list[tuple[sources.Signal | sources.FactSignal, Cost | None, Cost | None]]:
    """Measure every signal on this host and at 192 cores."""
    import fakehost

    with tempfile.TemporaryDirectory() as folder:
        large = fakehost.FakeHost(pathlib.Path(folder), 192).root
        return [
            (signal, cost_of(signal, sources.ROOT), cost_of(signal, large))
            for signal in sorted(discovered(), key=lambda s: (s.every, s.name))
        ]


def measure() -> list[Result]:
    measured = costs()
    results = []
    for at, host_name, goal in ((1, "this host", 0.1), (2, "192 cores", 0.3)):
        present = [row[at] for row in measured if row[at] is not None]
        for every in sorted({cost.signal.every for cost in present}):
            percent = sum(cost.percent for cost in present if cost.signal.every == every)
            results.append(
                Result(f"signals of every {every:g} s, {host_name}", percent, "% of a core")
            )
        whole = sum(cost.percent for cost in present)
        results.append(
            Result(f"all signals, {host_name}", whole, "% of a core", f"<= {goal}", whole <= goal)
        )
    return results


def table() -> str:
    """Print a line per signal: interval, and for both hosts rows, µs per poll, percent of a core."""
    head = f"{'signal':<16}{'every':>7}" + f"{'rows':>7}{'us/poll':>9}{'% core':>9}" * 2
    lines = [f"{'':<23}{'this host':>25}{'192 cores':>25}", head]
    sums = {1: 0.0, 2: 0.0}
    for signal, *both in costs():
        line = f"{signal.name:<16}{signal.every:>6g}s"
        for at, cost in enumerate(both, 1):
            if cost is None:
                line += f"{'no data':>25}"
                continue
            sums[at] += cost.percent
            line += f"{cost.rows:>7}{cost.cpu_us:>9.1f}{cost.percent:>9.4f}"
        lines.append(line)
    return "\n".join([*lines, f"{'all':<23}{sums[1]:>25.4f}{sums[2]:>25.4f}"])


if __name__ == "__main__":
    print(table())
