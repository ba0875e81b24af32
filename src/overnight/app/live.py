"""`overnight live`: the flight recorder's signals and events on a screen, without a store.

It runs the agent's loop, signals and watches; a board takes the place of the ring.
"""

from __future__ import annotations

import collections
import dataclasses
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from overnight import sources
from overnight.agent import kernel_log, recorder_loop, signals
from overnight.model import cpu
from overnight.sources import perf
from overnight.sources.kernelrules import rulefiles

if TYPE_CHECKING:
    from overnight.model import clock
    from overnight.model.event import Event

# Those that a screen shows or that make events; the rest is left to the recorder.
SIGNALS = frozenset(
    {
        "cpu", "softirqs", "softnet", "processes", "memory-cgroups", "cgroup-births",
        "unit-restarts", "nic-queues", "nic-drivers", "ethtool", "tx-timeouts", "pressure",
        "schedstat", "vmstat", "limits",
    }
)  # fmt: skip
KEPT_SECONDS = 120
KEPT_EVENTS = 200


@dataclasses.dataclass(frozen=True)
class CoreStrip:
    """One core's last seconds, at least one, the newest last."""

    core: int
    shares: tuple[cpu.Shares, ...]

    @property
    def last(self) -> cpu.Shares:
        return self.shares[-1]


@dataclasses.dataclass(frozen=True)
class ProcessLoad:
    """One process in the last second, in cores."""

    pid: int
    name: str
    cores: float
    last_core: int


@dataclasses.dataclass(frozen=True)
class View:
    host: str
    time_us: int
    seconds: int
    cores: tuple[CoreStrip, ...]
    processes: tuple[ProcessLoad, ...]
    events: tuple[Event, ...]
    census: tuple[int, int, int] | None  # memory cgroups tracked, in use, dying
    problems: Mapping[str, str]

    def as_json(self) -> dict[str, object]:
        """The last second: schema live-1."""
        return {
            "schema": "overnight.live/1",
            "host": self.host,
            "time_us": self.time_us,
            "cores": [
                {"core": strip.core}
                | {name: round(share, 3) for name, share in dataclasses.asdict(strip.last).items()}
                for strip in self.cores
            ],
            "processes": [dataclasses.asdict(process) for process in self.processes],
            "memory_cgroups": (
                dict(zip(("tracked", "in_use", "dying"), self.census, strict=True))
                if self.census
                else None
            ),
            "events": [event.as_json() for event in self.events],
        }


class Board:
    """A `recorder_loop.Sink` for a screen: one thread writes, another reads the view."""

    def __init__(self, host: str, ticks: int = 100) -> None:
        self.host = host
        self._ticks = ticks
        self._lock = threading.Lock()
        self._cpu: sources.Rows = {}
        self._shares: dict[int, collections.deque[cpu.Shares]] = {}
        self._process_rows: sources.Rows = {}
        self._process_ns = 0
        self._processes: tuple[ProcessLoad, ...] = ()
        self._events: collections.OrderedDict[str, Event] = collections.OrderedDict()
        self._census: tuple[int, int, int] | None = None
        self._problems: dict[str, str] = {}
        self._time_us = 0
        self._seconds = 0

    def numbers(
        self,
        signal: str,
        names: tuple[str, ...],
        now: clock.Clock,
        rows: sources.Rows,
        *,
        every: tuple[float, ...] = (),
    ) -> None:
        del names, every
        with self._lock:
            if signal == "cpu":
                self._time_us = now.wall_ns // 1000
                self._seconds += 1
                self._take_cpu(rows)
            elif signal == "processes":
                self._take_processes(now.monotonic_ns, rows)
            elif signal == "memory-cgroups" and "" in rows:
                tracked, in_use, dying, *_ = rows[""]
                self._census = (tracked, in_use, dying)

    def _take_cpu(self, rows: sources.Rows) -> None:
        before, self._cpu = self._cpu, rows
        for key, row in rows.items():
            if key in before and (shares := cpu.tick_shares(cpu.tick_changes(before[key], row))):
                strip = self._shares.setdefault(int(key), collections.deque(maxlen=KEPT_SECONDS))
                strip.append(shares)
        for core in self._shares.keys() - {int(key) for key in rows}:
            del self._shares[core]

    def _take_processes(self, now_ns: int, rows: sources.Rows) -> None:
        before, self._process_rows = self._process_rows, rows
        seconds, self._process_ns = (now_ns - self._process_ns) / 1e9, now_ns
        loads = []
        for key, row in rows.items():
            old = before.get(key)
            ticks = row[0] + row[1] - (old[0] + old[1]) if old else 0
            if ticks > 0:
                pid, _, name = key.partition(" ")
                loads.append(ProcessLoad(int(pid), name, ticks / self._ticks / seconds, row[3]))
        self._processes = tuple(sorted(loads, key=lambda load: -load.cores))

    def facts(self, signal: str, now: clock.Clock, rows: sources.Facts) -> None:
        """Take the agent's own problems; other facts are not shown."""
        del now
        if signal == "agent-problems":
            with self._lock:
                self._problems = {name: str(fact["problem"]) for name, fact in rows.items()}

    def event(self, event: Event) -> None:
        with self._lock:
            self._events[event.id] = event
            while len(self._events) > KEPT_EVENTS:
                self._events.popitem(last=False)

    def note_gap(self, begin_us: int, end_us: int, why: str) -> None:
        """Do nothing: gaps are not shown."""

    def tick(self, now: clock.Clock) -> None:
        """Do nothing."""

    def view(self) -> View:
        with self._lock:
            return View(
                host=self.host,
                time_us=self._time_us,
                seconds=self._seconds,
                cores=tuple(
                    CoreStrip(core, tuple(shares)) for core, shares in sorted(self._shares.items())
                ),
                processes=self._processes,
                events=tuple(reversed(self._events.values())),
                census=self._census,
                problems=self._problems,
            )


def start_loop(
    board: Board, stop: threading.Event, every: Mapping[str, float] | None = None
) -> threading.Thread:
    """Run the recorder loop in a thread, writing to the board; `every` overrides poll intervals."""
    rules = rulefiles.load()
    shown = tuple(signal for signal in signals.discover_signals() if signal.name in SIGNALS)
    parts = recorder_loop.Parts(
        host=board.host,
        boot=perf.read_identity().boot,
        signals=signals.set_intervals(shown, every or {}),
        watches=signals.discover_watches(),
        sink=board,
        open_log=lambda: kernel_log.open_kernel_log(sources.ROOT, rules),
    )
    run = recorder_loop.RecorderLoop(parts).run
    thread = threading.Thread(target=run, args=(stop,), daemon=True)
    thread.start()
    return thread
