"""The flight recorder's loop: signals and kernel log into the ring, events as they happen.

One thread, one process, standard library only. What fails is said and tried again later, and never
ends the loop: this agent is there for the minutes in which everything else fails.
"""

from __future__ import annotations

import dataclasses
import pathlib
import select
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from overnight import sources
from overnight.agent import event_tracker, outlets, queues, schedule, usage, watches
from overnight.model import clock
from overnight.sources import processes

if TYPE_CHECKING:
    from overnight.agent import event_pins
    from overnight.model.event import Event

__all__ = ["LogFeed", "Parts", "RecorderLoop", "SignalState", "Sink"]

SELF_SECONDS = 60.0
AGENT, KERNEL_LOG = "agent", "kernel-log"
STOP_SECONDS_SECONDS = 0.5
LATE_SECONDS = 2.0
AGENT_COLUMNS = ("looks", "failures", "cpu_us")
LOG_COLUMNS = ("lines", "lost", "capped")


class Sink(Protocol):
    """Where everything is kept: the ring's writer, or a list in a test."""

    def numbers(
        self,
        signal: str,
        names: tuple[str, ...],
        now: clock.Clock,
        rows: sources.Rows,
        *,
        every: tuple[float, ...] = (),
    ) -> None:
        """One look at one signal; `every` says how far apart each column is kept, 0 at each look."""

    def facts(self, signal: str, now: clock.Clock, rows: sources.Facts) -> None:
        """One look at words."""

    def event(self, told: Event) -> None:
        """An event, new or grown."""

    def note_gap(self, begin_us: int, end_us: int, why: str) -> None:
        """Nothing was recorded in that time; wall clock."""

    def tick(self, now: clock.Clock) -> None:
        """Once a second."""


class LogFeed(Protocol):
    """The kernel log as sightings."""

    def fileno(self) -> int:
        """Readable when there is a line."""

    def sightings(self, now: clock.Clock) -> Iterable[watches.Sighting]:
        """What the lines since the last call show."""

    def finish(self, now: clock.Clock) -> Iterable[watches.Sighting]:
        """The last ones; it is closed."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Lines by rule, since the start."""

    @property
    def lines(self) -> tuple[int, int, int]:
        """Lines read, lost before they could be read, and only counted because of a flood."""


@dataclasses.dataclass
class SignalState:
    """How one signal does: the agent reports its own work as it reports the host's."""

    look: Callable[[], Mapping[str, tuple[int, ...]] | sources.Facts] | None = None
    looks: int = 0
    failures: int = 0
    cpu_ns: int = 0
    problem: str = ""


@dataclasses.dataclass(frozen=True)
class Parts:
    """What the loop is made of."""

    host: str
    boot: str
    signals: tuple[sources.Signal | sources.FactSignal, ...]
    watches: tuple[watches.Watch, ...]
    keep: Sink
    pins: event_pins.EventPins | None = None
    outlets: tuple[outlets.Outlet, ...] = ()
    log: LogFeed | None = None
    root: pathlib.Path = sources.ROOT
    read_clock: Callable[[], clock.Clock] = lambda: clock.Clock(time.time_ns(), time.monotonic_ns())


class RecorderLoop:
    """One run of the agent."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._signals = {one.name: one for one in parts.signals}
        self.states = {one.name: SignalState() for one in parts.signals}
        self._columns = {
            one.name: (
                tuple(column.name for column in one.columns),
                tuple(column.keep for column in one.columns),
            )
            for one in parts.signals
            if isinstance(one, sources.Signal)
        }
        self._watching: dict[str, list[watches.Watch]] = {}
        for watch in parts.watches:
            for name in watch.needs:
                self._watching.setdefault(name, []).append(watch)
        self._queues = queues.QueueCores()
        self._rows: dict[str, sources.Rows] = {}
        self._facts: dict[str, sources.Facts] = {}
        self._saturated: dict[int, float] = {}
        self._began = parts.read_clock()
        self._ids: set[str] = set()
        self.book = event_tracker.EventTracker(parts.host, parts.boot, self._began)

    def run(self, stop: threading.Event, seconds: float = 0.0) -> None:
        """Look until stopped, or for so many seconds."""
        start = time.monotonic()
        until = start + seconds if seconds else float("inf")
        plan = schedule.Schedule({one.name: one.every for one in self._parts.signals}, start)
        poller = select.poll()
        if self._parts.log is not None:
            poller.register(self._parts.log.fileno(), select.POLLIN)
        second = self_report = start
        while not stop.is_set() and time.monotonic() < until:
            now = time.monotonic()
            # One clock for all looks of a tick: they are some milliseconds apart, and the ring stores
            # the same time once.
            tick = self._parts.read_clock()
            for name in plan.due(now):
                self._look(name, tick, plan)
            if now >= second:
                if now - second > LATE_SECONDS:
                    self._note_late(now - second)
                second = max(second + 1.0, now)
                self.tick()
            if now >= self_report:
                self_report = now + SELF_SECONDS
                self._report_self()
            wake = min(plan.next, second, until, time.monotonic() + STOP_SECONDS_SECONDS)
            self._wait(poller, wake)
        self.finish()

    def _note_late(self, seconds: float) -> None:
        """The loop was kept from its second: a host that does not let us run is worth a word."""
        now = self._parts.read_clock().wall_ns // 1000
        self._parts.keep.note_gap(
            now - round(seconds * 1e6),
            now,
            f"this host did not let the agent run for {seconds:.1f} s",
        )

    def _wait(self, poller: select.poll, until: float) -> None:
        """Sleep to the next look; a kernel line is taken in as soon as it comes."""
        while (left := until - time.monotonic()) > 0:
            if poller.poll(left * 1000):
                self.read_log()

    def _look(self, name: str, now: clock.Clock, plan: schedule.Schedule) -> None:
        if self.look(name, now) is not None:
            plan.put_off(name, time.monotonic() + schedule.RETRY_SECONDS)

    def look(self, name: str, now: clock.Clock) -> Exception | None:
        """One look at one signal, kept and watched; the problem, if there was one."""
        signal, state = self._signals[name], self.states[name]
        began = time.thread_time_ns()
        try:
            if state.look is None:
                state.look = signal.open(self._parts.root)
            rows = state.look()
        except (OSError, ValueError, LookupError, sources.NoDataError) as error:
            state.failures += 1
            absent = isinstance(error, sources.NoDataError)
            state.problem = str(error) if absent else f"{type(error).__name__}: {error}"
            state.look = None
            return error
        state.looks += 1
        state.problem = ""
        if isinstance(signal, sources.Signal):
            numbers: sources.Rows = rows  # type: ignore[assignment]  # a Signal's look is numbers
            self._rows[name] = numbers
            names, every = self._columns[name]
            self._parts.keep.numbers(name, names, now, numbers, every=every)
            for watch in self._watching.get(name, ()):
                self._tell(self.book.see(watch.look(name, now, numbers), now, watch.name))
        else:
            facts: sources.Facts = rows  # type: ignore[assignment]  # a FactSignal's is words
            self._facts[name] = facts
            self._parts.keep.facts(name, now, facts)
            if name in queues.QueueCores.needs:
                self._queues.learn(name, facts)
        state.cpu_ns += time.thread_time_ns() - began
        return None

    def read_log(self) -> None:
        """Take in what the kernel said."""
        if self._parts.log is not None:
            now = self._parts.read_clock()
            self._take_in(self._parts.log.sightings(now), now)

    def _take_in(self, sightings: Iterable[watches.Sighting], now: clock.Clock) -> None:
        for seen in sightings:
            placed = self._queues.place(seen)
            source = str(placed.fields.get("rule", "kernel-log"))
            self._tell(self.book.see([placed], now, source))

    def tick(self) -> None:
        """Once a second: what has ended, and the outlets."""
        now = self._parts.read_clock()
        self.read_log()
        self._tell(self.book.expire(now))
        for one in self.book.open:
            if one.kind == "cpu.core_pinned":
                self._saturated[one.core] = self._saturated.get(one.core, 0.0) + 1.0
        self._parts.keep.tick(now)
        if self._parts.outlets:
            standing = self.standing(now)
            for outlet in self._parts.outlets:
                outlet.tick(standing)

    def standing(self, now: clock.Clock) -> outlets.Standing:
        """How everything stands."""
        cost = usage.read_usage(())
        return outlets.Standing(
            host=self._parts.host,
            clock=now,
            rows=self._rows,
            facts=self._facts,
            counts=self.book.counts,
            rules=self._parts.log.counts if self._parts.log is not None else {},
            saturated=self._saturated,
            open=self.book.open,
            agent={
                "cpu_seconds": cost.cpu_seconds,
                "rss_bytes": cost.rss_bytes,
                "seconds": (now.monotonic_ns - self._began.monotonic_ns) / 1e9,
            },
        )

    @property
    def told(self) -> int:
        """How many events there were."""
        return len(self._ids)

    def finish(self) -> None:
        """The last words."""
        if self._parts.log is not None:
            now = self._parts.read_clock()
            self._take_in(self._parts.log.finish(now), now)
        self._report_self()
        self._tell(self.book.close())
        self._parts.keep.tick(self._parts.read_clock())
        for outlet in self._parts.outlets:
            outlet.close()

    def _tell(self, events: Iterable[Event]) -> None:
        for told in events:
            if told.kind == "cpu.core_pinned" and told.id not in self._ids:
                # Most processes are read in turn; who pins the core must be read now.
                processes.full_scan(self._parts.root)
            self._ids.add(told.id)
            self._parts.keep.event(told)
            if self._parts.pins is not None:
                self._parts.pins.event(told)
            for outlet in self._parts.outlets:
                outlet.event(told)

    def _report_self(self) -> None:
        now = self._parts.read_clock()
        rows = {
            name: (state.looks, state.failures, state.cpu_ns // 1000)
            for name, state in self.states.items()
        }
        self._parts.keep.numbers(AGENT, AGENT_COLUMNS, now, rows)
        if self._parts.log is not None:
            self._parts.keep.numbers(KERNEL_LOG, LOG_COLUMNS, now, {"": self._parts.log.lines})
        problems = {
            name: {"problem": state.problem[:200]}
            for name, state in self.states.items()
            if state.problem
        }
        self._parts.keep.facts("agent-problems", now, problems)
