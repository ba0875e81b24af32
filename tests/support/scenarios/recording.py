"""Record a night with the real agent and the real store."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from overnight.agent import event_pins, kernel_events, recorder_loop, schedule, signals, watches
from overnight.sources import kmsg
from overnight.sources.kernelrules import rulefiles
from overnight.sources.processes import membership
from overnight.store import capture
from overnight.store import writer as profiles
from overnight.store.ring import layout, writer
from scenarios import machine, nights, work

if TYPE_CHECKING:
    from overnight.model import clock
    from overnight.model.event import Event

SECOND_NS = 1_000_000_000
SEGMENT = 120


class Log:
    """The kernel log of a night, with the interface that the flight recorder uses."""

    def __init__(self, night: nights.Night) -> None:
        self._lines = sorted(night.log)
        self._night = night
        self._read = 0
        self._watch = kernel_events.KernelWatch(rulefiles.load())

    def due(self, second: float) -> Iterator[float]:
        """Yield the times of the lines written before that second."""
        while self._read < len(self._lines) and self._lines[self._read][0] < second:
            yield self._lines[self._read][0]

    def fileno(self) -> int:
        return 0  # it is never polled

    def sightings(self, now: clock.Clock) -> list[watches.Sighting]:
        records = []
        while self._read < len(self._lines):
            second, text = self._lines[self._read]
            written = self._night.clock_at(second)
            if written.monotonic_ns > now.monotonic_ns:
                break
            self._read += 1
            records.append(
                kmsg.Record(self._read, written.monotonic_ns // 1000, 4, 0, text, read_at=now)
            )
        return self._watch.check(records, now)

    def finish(self, now: clock.Clock) -> list[watches.Sighting]:
        return self._watch.finish(now)

    flush = finish
    has_moved = False

    def note_position(self, events: Iterable[Event]) -> None: ...

    @property
    def counts(self) -> Mapping[str, int]:
        return {
            name: counter.matched for name, counter in self._watch.counts.items() if counter.matched
        }

    @property
    def lines(self) -> tuple[int, int, int]:
        return self._read, 0, 0


def record(home: pathlib.Path, night: nights.Night) -> None:
    """Write the ring with its events, and the profiles, of one night."""
    host = machine.Machine(night)
    now = [night.clock_at(0)]
    ring = writer.Writer(
        home, night.host.name, night.host.boot, budget_bytes=1 << 30, age_seconds=90 * 86400.0
    )
    ring_pins = layout.ring_pins(home, night.host.name)

    log = Log(night)
    loop = recorder_loop.RecorderLoop(
        recorder_loop.Parts(
            host=night.host.name,
            boot=night.host.boot,
            signals=host.signals(),
            watches=signals.discover_watches(),
            sink=ring,
            pins=event_pins.EventPins(lambda: [ring_pins]),
            open_log=lambda: (log, ""),
            read_clock=lambda: now[0],
        )
    )
    plan = schedule.Schedule({signal.name: signal.every for signal in host.signals()}, 0.0)
    tables = _Tables(night.load)
    for chunk in night.load.chunks():
        host.take(chunk)
        if night.load.keep_samples:
            _write_profiles(home, night, chunk, tables)
        for second in range(chunk.begin, chunk.end):
            for written in log.due(second):
                now[0] = night.clock_at(written)
                loop.read_log()
            now[0] = night.clock_at(second)
            names = list(plan.due(float(second)))
            gap = next((span for span in night.ring_gaps if span[0] <= second < span[1]), None)
            if gap is not None:
                if second == gap[0]:
                    ring.note_gap(night.time_us(gap[0]), night.time_us(gap[1]), gap[2])
                continue
            host.second = second
            for name in names:
                loop.poll(name, now[0])
            loop.tick()
    now[0] = night.clock_at(night.seconds)
    loop.finish()
    ring.close()
    problems = {name: state.problem for name, state in loop.states.items() if state.problem}
    assert not problems, problems


class _Tables:
    """Tasks, stacks and frames of a night's work."""

    def __init__(self, load: work.Load) -> None:
        frames: dict[work.Frame, int] = {}
        self.stacks: list[tuple[int, ...]] = [
            tuple(frames.setdefault(frame, len(frames)) for frame in path)
            for program in load.works
            for _, path in program.stacks
        ]
        own = [program.task for program in load.works]
        tasks = list(dict.fromkeys([*own, *(task.launcher for task in own if task.launcher)]))
        self.rows = {task: row for row, task in enumerate(tasks)}
        self.task_of = np.array([tasks.index(program.task) for program in load.works], np.uint32)
        self.tasks = capture.Tasks(
            pid=np.array([task.pid for task in tasks], np.int32),
            tid=np.array([task.pid for task in tasks], np.int32),
            thread=[task.thread or task.process for task in tasks],
            process=[task.process for task in tasks],
            unit=[task.unit for task in tasks],
            row=np.arange(len(tasks), dtype=np.int32),
            launcher=[task.launcher.process if task.launcher else "" for task in tasks],
        )
        # All but the children of launchers ran before the night.
        parents = [self.rows[task.launcher] if task.launcher else -1 for task in tasks]
        empty = [""] * len(tasks)
        self.processes = capture.Processes(
            pid=self.tasks.pid, parent=np.array(parents, np.int32),
            started_us=np.zeros(len(tasks), np.int64), count=np.ones(len(tasks), np.uint32),
            name=self.tasks.process, comm=self.tasks.thread,
            executable=empty, command=[task.command for task in tasks], user=empty,
            cgroup=[task.cgroup for task in tasks], unit=self.tasks.unit,
            container=[membership.parse_container(task.cgroup) for task in tasks],
            pod=[task.unit if task.cgroup else "" for task in tasks],
        )  # fmt: skip
        self.frames = capture.Frames(
            name=[frame[0] for frame in frames],
            module=[frame[1] for frame in frames],
            kind=np.array([frame[2] for frame in frames], np.uint8),
        )

    def spawns(self, night: nights.Night, begin: int, end: int) -> capture.Spawns:
        """Return the processes started in these seconds of the night."""
        rows = [
            (task, second, round(rate))
            for task, first, last, rate in night.spawns
            for second in range(max(begin, int(first)), min(end, int(last)))
        ]
        return capture.Spawns(
            np.array([self.rows[task.launcher] for task, _, _ in rows if task.launcher], np.int32),
            [task.thread for task, _, _ in rows],
            np.array([night.time_us(second) // 1_000_000 for _, second, _ in rows], np.int64),
            np.array([count for _, _, count in rows], np.uint32),
        )

    def table(self) -> capture.Stacks:
        return capture.Stacks(
            offset=np.cumsum([0, *map(len, self.stacks)]).astype(np.uint32),
            frame=np.array([frame for path in self.stacks for frame in path], np.uint32),
        )


def _write_profiles(
    home: pathlib.Path, night: nights.Night, chunk: work.Chunk, tables: _Tables
) -> None:
    for begin, end in _present(chunk.begin, chunk.end, night.profile_gaps):
        low, high = np.searchsorted(chunk.time, (begin, end))
        chance = np.random.default_rng((night.seed, 5, begin))
        kept = low + np.flatnonzero(chance.random(high - low) >= night.lost)
        count, lost = len(kept), int(high - low - len(kept))
        begin_ns = night.begin_us * 1000 + begin * SECOND_NS
        end_ns = night.begin_us * 1000 + end * SECOND_NS
        segment = capture.Capture(
            host=night.host.name,
            begin=begin_ns,
            end=end_ns,
            frequency=work.FREQUENCY,
            cores=tuple(range(night.host.cores)),
            events=("cpu-clock",),
            time=night.begin_us * 1000 + np.round(chunk.time[kept] * 1e9).astype(np.int64),
            cpu=chunk.core[kept],
            task=tables.task_of[chunk.work[kept]],
            stack=chunk.stack[kept],
            event=np.zeros(count, np.uint8),
            count=np.ones(count, np.uint32),
            period=np.zeros(count, np.uint64),
            tasks=tables.tasks,
            processes=tables.processes,
            spawns=tables.spawns(night, begin, end),
            stacks=tables.table(),
            frames=tables.frames,
            lost=lost,
            losses=(capture.Loss(begin_ns, end_ns, lost),) if lost else (),
            gaps=tuple(
                capture.Gap(night.time_us(a) * 1000, night.time_us(b) * 1000, reason)
                for a, b, reason in night.profile_gaps
                if a == end
            ),
        )
        profiles.write_capture(home, segment)


def _present(begin: int, end: int, gaps: list[tuple[int, int, str]]) -> Iterator[tuple[int, int]]:
    """Yield the segments of a time span that are not in a gap, cut as the recorder cuts them."""
    at = begin
    for first, last, _ in sorted(gaps):
        if first < end and last > at:
            yield from _segments(at, first)
            at = max(at, last)
    yield from _segments(at, end)


def _segments(begin: int, end: int) -> Iterator[tuple[int, int]]:
    while begin < end:
        until = min(end, (begin // SEGMENT + 1) * SEGMENT)
        yield begin, until
        begin = until
