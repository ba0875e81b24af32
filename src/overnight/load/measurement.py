"""One look a second at a load and at the cores it runs on."""

from __future__ import annotations

import contextlib
import dataclasses
import mmap
import pathlib
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from overnight import sources
from overnight.sources import cpu, pressure

if TYPE_CHECKING:
    from overnight import load
    from overnight.load import processes

__all__ = ["Meter", "Second"]


@dataclasses.dataclass(frozen=True)
class Second:
    """What one second was like. Shares are from 0 to 1."""

    us: int  # wall clock at its end
    at: float  # seconds since the load was ready
    warm: bool  # False: in the warm-up, which the gate does not look at
    values: Mapping[str, float]  # of the metrics
    sys: Mapping[int, float]  # of each of the load's cores, interrupts included
    steal: float  # of the load's cores together
    waits: float  # of a worker's time, in which it could run and its core was taken
    pressure: Mapping[str, float]  # of the whole host: some task waited for it
    trials: int  # done so far

    def as_json(self) -> dict[str, object]:
        """One line of the stored load."""
        return {
            "us": self.us,
            "at": round(self.at, 3),
            "warm": self.warm,
            "values": {name: float(f"{value:.6g}") for name, value in self.values.items()},
            "sys": {str(core): round(share, 4) for core, share in self.sys.items()},
            "steal": round(self.steal, 4),
            "waits": round(self.waits, 4),
            "pressure": {name: round(share, 4) for name, share in self.pressure.items()},
            "trials": self.trials,
        }


@dataclasses.dataclass(frozen=True)
class _Look:
    time: float
    used: Mapping[int, float]  # CPU seconds by process
    waited: float
    counters: Mapping[str, float]
    cores: Mapping[int, cpu.CpuTimes]
    pressure: Mapping[str, int]


class Meter:
    """Reads totals, and tells the difference to the look before."""

    def __init__(
        self,
        running: processes.Workers,
        metrics: tuple[load.Metric, ...],
        cores: tuple[int, ...],
        root: pathlib.Path = sources.ROOT,
    ) -> None:
        self._running, self._metrics, self._cores, self._root = running, metrics, cores, root
        self._begin = time.monotonic()
        self._last = self._look()

    def second(self, *, warm: bool) -> Second:
        """What was since the last one."""
        before, now = self._last, self._look()
        self._last = now
        lasted = max(now.time - before.time, 1e-6)
        # A process that was born meanwhile brings all of its time; one that died takes its last part along.
        used = sum(total - before.used.get(pid, 0.0) for pid, total in now.used.items())
        spent = {core: _spent(before.cores.get(core), one) for core, one in now.cores.items()}
        return Second(
            us=time.time_ns() // 1000,
            at=now.time - self._begin,
            warm=warm,
            values={one.name: self._value(one, before, now, used, lasted) for one in self._metrics},
            sys={core: kernel for core, (kernel, _) in spent.items()},
            steal=sum(steal for _, steal in spent.values()) / max(len(spent), 1),
            waits=max(now.waited - before.waited, 0.0) / lasted / max(len(now.used), 1),
            pressure={
                name: (total - before.pressure.get(name, total)) / 1e6 / lasted
                for name, total in now.pressure.items()
            },
            trials=len(self._running.trials),
        )

    def _value(
        self, one: load.Metric, before: _Look, now: _Look, used: float, lasted: float
    ) -> float:
        if one.source == "cpu":
            return used / lasted
        if one.source == "resident":
            return float(sum(map(_resident, now.used)))
        return (now.counters[one.source] - before.counters[one.source]) / lasted

    def _look(self) -> _Look:
        used: dict[int, float] = {}
        waited = 0.0
        for pid in self._running.all_pids():
            with contextlib.suppress(OSError):
                # The kernel's CPU clock of another process, in ns: ticks of 10 ms would be 2 % of a second.
                used[pid] = time.clock_gettime((~pid << 3) | 2)
                text = pathlib.Path(f"/proc/{pid}/schedstat").read_text()
                waited += int(text.split()[1]) / 1e9
        counters = {
            one.source: self._running.counter(int(one.source))
            for one in self._metrics
            if one.source.isdigit()
        }
        waiting: dict[str, int] = {}
        with contextlib.suppress(sources.NoDataError, OSError):
            rows = pressure.read_pressure(self._root)
            waiting = {name: int(rows[name][0]) for name in ("cpu", "memory", "io") if name in rows}
        cores = {one.core: one for one in cpu.read_cpu(self._root) if one.core in self._cores}
        return _Look(time.monotonic(), used, waited, counters, cores, waiting)


def _spent(before: cpu.CpuTimes | None, now: cpu.CpuTimes) -> tuple[float, float]:
    """Shares of the time between, in the kernel and stolen."""
    whole = now.total - before.total if before else 0.0
    if before is None or whole <= 0:
        return 0.0, 0.0
    return (now.kernel - before.kernel) / whole, (now.steal - before.steal) / whole


def _resident(pid: int) -> int:
    try:
        return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * mmap.PAGESIZE
    except (OSError, IndexError):
        return 0
