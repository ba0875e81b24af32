"""Measure a load and its cores once a second."""

from __future__ import annotations

import contextlib
import dataclasses
import mmap
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from overnight import sources
from overnight.model import cpu as modes
from overnight.model import process_identity, times
from overnight.sources import cpu, pressure

if TYPE_CHECKING:
    from overnight import load
    from overnight.load import processes


@dataclasses.dataclass(frozen=True)
class Second:
    """The measurements of one second. Shares are from 0 to 1."""

    us: int  # wall clock at its end
    at: float  # seconds since the load was ready
    warm: bool  # False: warm-up, which the gate ignores
    values: Mapping[str, float]  # of the metrics
    sys: Mapping[int, float]  # kernel share of each of the load's cores, interrupts included
    steal: float  # mean share over the load's cores
    waits: float  # share of time that workers were runnable but had no core
    pressure: Mapping[str, float]  # share of time that some task on the host waited for it
    trials: int  # completed so far

    def as_json(self) -> dict[str, object]:
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

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> Second:
        """Return a second that another process has measured."""
        return cls(**{**line, "sys": {int(core): share for core, share in line["sys"].items()}})


@dataclasses.dataclass(frozen=True)
class _Totals:
    time: float
    used: Mapping[int, float]  # CPU seconds by process
    ranks: Mapping[int, int]  # number of its job, by process
    waited: float
    counters: Mapping[str, float]
    cores: Mapping[int, tuple[int, ...]]  # ticks by mode
    pressure: Mapping[str, int]


class Meter:
    """Reads totals and returns the differences since the last reading."""

    def __init__(
        self, running: processes.Workers, metrics: tuple[load.Metric, ...], cores: tuple[int, ...]
    ) -> None:
        self._running, self._metrics, self._cores = running, metrics, cores
        self._begin = time.monotonic()
        self._last = self._read_totals()

    def second(self, *, warm: bool) -> Second:
        before, now = self._last, self._read_totals()
        self._last = now
        lasted = max(now.time - before.time, 1e-6)
        # A new process counts with all of its time; the last part of one that died is lost.
        used = dict.fromkeys(range(len(self._running.jobs)), 0.0)
        for pid, total in now.used.items():
            used[now.ranks[pid]] += total - before.used.get(pid, 0.0)
        shares = {core: _shares(before.cores.get(core), times) for core, times in now.cores.items()}
        return Second(
            us=times.now_us(),
            at=now.time - self._begin,
            warm=warm,
            values={m.name: self._value(m, before, now, used, lasted) for m in self._metrics},
            sys={core: kernel for core, (kernel, _) in shares.items()},
            steal=sum(steal for _, steal in shares.values()) / max(len(shares), 1),
            waits=max(now.waited - before.waited, 0.0) / lasted / max(len(now.used), 1),
            pressure={
                name: (total - before.pressure.get(name, total)) / 1e6 / lasted
                for name, total in now.pressure.items()
            },
            trials=len(self._running.trials),
        )

    def _value(
        self,
        metric: load.Metric,
        before: _Totals,
        now: _Totals,
        used: Mapping[int, float],
        lasted: float,
    ) -> float:
        if metric.source == "cpu":
            return sum(used.values()) / lasted
        if metric.source in ("wanted", "error"):
            wanted = {
                rank: job.wanted(now.time) - job.wanted(before.time)
                for rank, job in enumerate(self._running.jobs)
                if job.wanted is not None
            }
            if metric.source == "wanted":
                return sum(wanted.values()) / lasted
            off = sum(abs(used[rank] - seconds) for rank, seconds in wanted.items())
            return off / lasted / max(len(wanted), 1)
        if metric.source == "resident":
            return float(sum(map(_resident, now.used)))
        return (now.counters[metric.source] - before.counters[metric.source]) / lasted

    def _read_totals(self) -> _Totals:
        used: dict[int, float] = {}
        ranks: dict[int, int] = {}
        waited = 0.0
        # The time of the totals: later ones would count a wait for this thread as time without work.
        now = time.monotonic()
        for rank, pid in self._running.all_pids():
            ranks[pid] = rank
            with contextlib.suppress(OSError):
                # Ticks of 10 ms would be an error of 2 %.
                used[pid] = process_identity.read_cpu_seconds(pid)
                text = pathlib.Path(f"/proc/{pid}/schedstat").read_text()
                waited += int(text.split()[1]) / 1e9
        counters = {
            metric.source: self._running.counter(int(metric.source))
            for metric in self._metrics
            if metric.source.isdigit()
        }
        waiting: dict[str, int] = {}
        with contextlib.suppress(sources.NoDataError, OSError):
            rows = pressure.open_pressure(sources.ROOT)()
            waiting = {name: int(rows[name][0]) for name in ("cpu", "memory", "io") if name in rows}
        cores = {core: row for core, row in cpu.read_ticks().items() if core in self._cores}
        return _Totals(now, used, ranks, waited, counters, cores, waiting)


def _shares(before: Sequence[int] | None, now: Sequence[int]) -> tuple[float, float]:
    """Return the kernel share and the steal share of the time between two readings."""
    shares = modes.tick_shares(modes.tick_changes(before or now, now))
    return (shares.kernel, shares.steal) if shares else (0.0, 0.0)


def _resident(pid: int) -> int:
    try:
        return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * mmap.PAGESIZE
    except (OSError, IndexError):
        return 0
