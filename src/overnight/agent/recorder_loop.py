"""The flight recorder's loop: signals and kernel log go into the ring, events out as they happen.

One thread, one process, standard library only. A failing signal is reported and retried later and never
ends the loop: the agent must work in the minutes in which everything else fails.
"""

from __future__ import annotations

import dataclasses
import pathlib
import select
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from overnight import errors, sources
from overnight.agent import census_rate, event_tracker, outlets, queues, schedule, usage, watches
from overnight.model import clock
from overnight.sources import processes

if TYPE_CHECKING:
    from overnight.agent import event_pins, kernel_log
    from overnight.model.event import Event

SELF_SECONDS = 60.0
AGENT, KERNEL_LOG = "agent", "kernel-log"
LATE_SECONDS = 2.0
AGENT_COLUMNS = ("looks", "failures", "cpu_us")  # "looks" are polls; the name is stored
LOG_COLUMNS = ("lines", "lost", "capped")


class Sink(Protocol):
    """Where everything goes: the ring's writer, the live view, or a list in a test."""

    def numbers(
        self,
        signal: str,
        names: tuple[str, ...],
        now: clock.Clock,
        rows: sources.Rows,
        *,
        every: tuple[float, ...] = (),
    ) -> None:
        """Store one reading; `every` is the least seconds between two stored values of each column."""

    def facts(self, signal: str, now: clock.Clock, rows: sources.Facts) -> None:
        """Store one reading of words."""

    def event(self, event: Event) -> None:
        """Store an event; one with a known id replaces it."""

    def note_gap(self, begin_us: int, end_us: int, why: str) -> None:
        """Store a time in which nothing was recorded; wall clock."""

    def tick(self, now: clock.Clock) -> None:
        """Do what is due; called once a second."""


@dataclasses.dataclass
class SignalState:
    """The agent's own work on one signal, which it records like the host's."""

    read: Callable[[], Mapping[str, tuple[int, ...]] | sources.Facts] | None = None
    polls: int = 0
    failures: int = 0
    cpu_ns: int = 0
    problem: str = ""
    denied: bool = False  # the problem is a missing permission
    exhausted: bool = False  # the problem is this process, such as its open files; not the host
    lost: int = 0  # polls that failed because of that
    lost_why: str = ""


@dataclasses.dataclass(frozen=True)
class Parts:
    """Everything the loop works with."""

    host: str
    boot: str
    signals: tuple[sources.Signal | sources.FactSignal, ...]
    watches: tuple[watches.Watch, ...]
    sink: Sink
    pins: event_pins.EventPins | None = None
    outlets: tuple[outlets.Outlet, ...] = ()
    # Returns the log, or None and why; tried each second while it raises an error of this process.
    open_log: Callable[[], tuple[kernel_log.KernelLogFeed | None, str]] = lambda: (None, "")
    root: pathlib.Path = sources.ROOT
    read_clock: Callable[[], clock.Clock] = lambda: clock.Clock(time.time_ns(), time.monotonic_ns())


class RecorderLoop:
    """One run of the agent."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._signals = {signal.name: signal for signal in parts.signals}
        self.states = {signal.name: SignalState() for signal in parts.signals}
        self._keep = {
            signal.name: tuple(signal.keep.get(column, 0.0) for column in signal.columns)
            for signal in parts.signals
            if isinstance(signal, sources.Signal)
        }
        self._watching: dict[str, list[watches.Watch]] = {}
        for watch in parts.watches:
            for name in watch.needs:
                self._watching.setdefault(name, []).append(watch)
        self._queues = queues.QueueCores()
        self._rows: dict[str, sources.Rows] = {}
        self._facts: dict[str, sources.Facts] = {}
        self._saturated: dict[int, float] = {}
        self._census = census_rate.CensusRate()
        self._began = parts.read_clock()
        self._ids: set[str] = set()
        self.events = event_tracker.EventTracker(parts.host, parts.boot, self._began)
        self._poller = select.poll()
        self._log: kernel_log.KernelLogFeed | None = None
        self.log_state = SignalState()
        self._open_log(self._began)

    def run(self, stop: threading.Event, seconds: float = 0.0) -> None:
        """Poll until stopped, or for `seconds`; 0 is without end."""
        start = time.monotonic()
        until = start + seconds if seconds else float("inf")
        plan = schedule.Schedule(
            {signal.name: signal.every for signal in self._parts.signals}, start
        )
        second = self_report = start
        while not stop.is_set() and time.monotonic() < until:
            now = time.monotonic()
            # One clock for all readings of a tick: they are milliseconds apart, and the ring stores the
            # same time once.
            tick = self._parts.read_clock()
            for name in plan.due(now):
                spent = self.states[name].cpu_ns
                error = self.poll(name, tick)
                spent = self.states[name].cpu_ns - spent
                self._census.note(name, self._rows.get(name), now, spent / 1e9)
                if errors.is_own(error):
                    plan.retry(name, time.monotonic() + schedule.OWN_RETRY_SECONDS)
                elif error is not None:
                    plan.put_off(name, time.monotonic() + schedule.RETRY_SECONDS)
            for name, at in self._census.due().items():
                plan.retry(name, at)
            if now >= second:
                if now - second > LATE_SECONDS:
                    self._note_late(now - second)
                second = max(second + 1.0, now)
                self.tick()
            if now >= self_report:
                self_report = now + SELF_SECONDS
                self._report_self()
            self._wait(min(plan.next, second, until))
        self.finish()

    def _note_late(self, seconds: float) -> None:
        """Record that the loop missed its second: a host that does not let the agent run is evidence."""
        now = self._parts.read_clock().wall_ns // 1000
        self._parts.sink.note_gap(
            now - round(seconds * 1e6),
            now,
            f"this host did not let the agent run for {seconds:.1f} s",
        )

    def _wait(self, until: float) -> None:
        """Sleep until the next poll; read a kernel line as soon as it comes."""
        while (left := until - time.monotonic()) > 0:
            if self._poller.poll(left * 1000):
                self.read_log()

    def poll(self, name: str, now: clock.Clock) -> Exception | None:
        """Read one signal, store it and run its watches; return the error, if any."""
        signal, state = self._signals[name], self.states[name]
        began = time.thread_time_ns()
        try:
            if state.read is None:
                state.read = signal.open(self._parts.root)
            rows = state.read()
        except (OSError, ValueError, LookupError, MemoryError, sources.NoDataError) as caught:
            error = errors.from_memory(caught)
            self._rows.pop(name, None)  # the outlets must not publish an old reading as the present
            state.failures += 1
            absent = isinstance(error, sources.NoDataError)
            state.problem = str(error) if absent else f"{type(error).__name__}: {error}"
            state.denied = isinstance(error, PermissionError)
            state.read = None
            self._note_exhausted(state, now, error)
            return error
        state.polls += 1
        state.problem, state.denied = "", False
        self._note_exhausted(state, now)
        if isinstance(signal, sources.Signal):
            numbers: sources.Rows = rows  # type: ignore[assignment]  # a Signal reads numbers
            self._rows[name] = numbers
            every = self._keep[name]
            self._parts.sink.numbers(name, signal.columns, now, numbers, every=every)
            for watch in self._watching.get(name, ()):
                sightings = watch.check(name, now, numbers)
                self._emit(self.events.track(sightings, now, watch.name))
        else:
            facts: sources.Facts = rows  # type: ignore[assignment]  # a FactSignal reads words
            self._facts[name] = facts
            self._parts.sink.facts(name, now, facts)
            if name in queues.QueueCores.needs:
                self._queues.learn(name, facts)
        state.cpu_ns += time.thread_time_ns() - began
        return None

    def _note_exhausted(
        self, state: SignalState, now: clock.Clock, error: Exception | None = None
    ) -> None:
        """Report at once, not with the next self-report, when this process fails and when it recovers."""
        before, state.exhausted = state.exhausted, errors.is_own(error)
        if errors.is_own(error):  # without the path: each poll may fail at another one
            state.problem = state.lost_why = error.strerror or str(error)
            state.lost += 1
        if state.exhausted != before:
            self._report_problems(now)

    def _open_log(self, now: clock.Clock) -> None:
        try:
            self._log, self.log_state.problem = self._parts.open_log()
        except OSError as error:
            self._note_exhausted(self.log_state, now, error)
            return
        self._note_exhausted(self.log_state, now)
        if self._log is not None:
            self._poller.register(self._log.fileno(), select.POLLIN)

    def report(self, events: Iterable[Event]) -> None:
        """Store events that something else found, pin their windows, and send them to the outlets."""
        self._emit(events)

    def read_log(self) -> None:
        """Read new kernel-log lines."""
        if self._log is not None:
            now = self._parts.read_clock()
            self._track_log(self._log.sightings(now), now)

    def _track_log(self, sightings: watches.Sightings, now: clock.Clock) -> None:
        self._emit(self.events.track(map(self._queues.place, sightings), now))

    def tick(self) -> None:
        """Once a second: close what has ended, and update the outlets."""
        now = self._parts.read_clock()
        if self.log_state.exhausted:
            self._open_log(now)
        self.read_log()
        self._emit(self.events.expire(now))
        if self._log is not None and self._log.has_moved:
            self._emit(self._note_position(()))
        for event in self.events.open:
            if event.kind == "cpu.core_pinned":
                self._saturated[event.core] = self._saturated.get(event.core, 0.0) + 1.0
        self._parts.sink.tick(now)
        if self._parts.outlets:
            status = self.status(now)
            for outlet in self._parts.outlets:
                outlet.tick(status)

    def status(self, now: clock.Clock) -> outlets.HostStatus:
        """What the outlets publish."""
        cost = usage.read_usage(())
        return outlets.HostStatus(
            host=self._parts.host,
            clock=now,
            rows=self._rows,
            facts=self._facts,
            counts=self.events.counts,
            rules=self._log.counts if self._log is not None else {},
            saturated=self._saturated,
            open=self.events.open,
            agent={
                "cpu_seconds": cost.cpu_seconds,
                "rss_bytes": cost.rss_bytes,
                "seconds": (now.monotonic_ns - self._began.monotonic_ns) / 1e9,
            },
        )

    @property
    def event_count(self) -> int:
        """Events so far, each counted once."""
        return len(self._ids)

    def finish(self) -> None:
        """Emit what is still open, and close log and outlets."""
        if self._log is not None:
            now = self._parts.read_clock()
            self._track_log(self._log.finish(now), now)
        self._report_self()
        self._emit(self.events.close())
        self._parts.sink.tick(self._parts.read_clock())
        for outlet in self._parts.outlets:
            outlet.close()

    def _note_position(self, events: Iterable[Event]) -> list[Event]:
        """Write how far the log was read, before these events are stored; return events to emit with them."""
        assert self._log is not None
        now = self._parts.read_clock()
        late = self.events.track(map(self._queues.place, self._log.flush(now)), now)
        self._log.note_position((*events, *late, *self.events.changed))
        return late

    def _emit(self, events: Iterable[Event]) -> None:
        batch = list(events)
        if batch and self._log is not None:
            batch += self._note_position(batch)
        for event in batch:
            if event.kind == "cpu.core_pinned" and event.id not in self._ids:
                # Most processes are read in turn; the one that saturates the core must be read now.
                processes.full_scan(self._parts.root)
            self._ids.add(event.id)
            self._parts.sink.event(event)
            if self._parts.pins is not None:
                self._parts.pins.event(event)
            for outlet in self._parts.outlets:
                outlet.event(event)

    def _report_self(self) -> None:
        now = self._parts.read_clock()
        rows = {
            name: (state.polls, state.failures, state.cpu_ns // 1000)
            for name, state in self.states.items()
        }
        self._parts.sink.numbers(AGENT, AGENT_COLUMNS, now, rows)
        if self._log is not None:
            self._parts.sink.numbers(KERNEL_LOG, LOG_COLUMNS, now, {"": self._log.lines})
        self._report_problems(now)

    def _report_problems(self, now: clock.Clock) -> None:
        problems: dict[str, sources.Fact] = {
            name: {"problem": state.problem[:200]}
            | ({"denied": True} if state.denied else {})
            | ({"exhausted": True} if state.exhausted else {})
            for name, state in (*self.states.items(), (KERNEL_LOG, self.log_state))
            if state.problem
        }
        self._parts.sink.facts("agent-problems", now, problems)
