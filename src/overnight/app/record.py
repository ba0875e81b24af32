"""`overnight record`: record signals and the stacks of all cores, and store them meanwhile.

Nothing heavy is imported before the recording has ended: the recorder must stay small on a host whose
memory is for others.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import pathlib
import platform
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from overnight import errors, sources
from overnight.agent import flight_recorder, profiler
from overnight.app import home as homes
from overnight.app import recorder_processes, spool_paths
from overnight.model import addresses, files, times
from overnight.model import cpu as modes
from overnight.model.cpu import format_cores
from overnight.model.recording import (
    CoreSummary,
    Cost,
    Failure,
    Part,
    ProcessShare,
    Profile,
    Recording,
)
from overnight.model.selection import Window
from overnight.model.times import SECOND_US
from overnight.sources import cpu, kmsg, perf
from overnight.sources.perf import events

if TYPE_CHECKING:
    from overnight.model.event import Event

STRIP_SECONDS = 120


@dataclasses.dataclass(frozen=True)
class Options:
    home: pathlib.Path
    seconds: float
    frequency: int = 97
    segment_seconds: float = 120.0
    budget_bytes: int = 20 << 30
    keep_seconds: float = 2 * 3600.0
    recorder: str = "auto"
    profiles: bool = True
    signals: bool = True
    agent: tuple[str, ...] = ()  # further arguments of the flight recorder
    summarize: bool = True  # read processes and events back at the end


@dataclasses.dataclass(frozen=True)
class Progress:
    """State of the recording, each second; `status` is None when only signals are recorded."""

    seconds: float
    status: profiler.Status | None
    busiest: tuple[int, float]  # a core, and its busy percent in the last second
    failures: tuple[Failure, ...] = ()  # since the start


class CoreWatch:
    """The busy share of each core, second by second, in bounded memory."""

    def __init__(self) -> None:
        self._first: dict[int, tuple[int, ...]] = {}  # ticks by mode
        self._last: dict[int, tuple[int, ...]] = {}
        self._peak: dict[int, tuple[float, float]] = {}
        self._strip: dict[int, collections.deque[float]] = collections.defaultdict(
            lambda: collections.deque(maxlen=STRIP_SECONDS)
        )

    def update(self, cores: Mapping[int, tuple[int, ...]]) -> tuple[int, float]:
        """Add a reading; return the busiest core since the last one and its percent."""
        busiest = (-1, 0.0)
        for core, now in cores.items():
            before = self._last.setdefault(core, self._first.setdefault(core, now))
            ticks = modes.tick_changes(before, now)
            shares = modes.tick_shares(ticks)
            if shares is None or sum(ticks) <= 5:  # so few say nothing
                continue
            busy, kernel = 100 * shares.busy, 100 * shares.kernel
            busy_peak, kernel_peak = self._peak.get(core, (0.0, 0.0))
            self._peak[core] = (max(busy_peak, busy), max(kernel_peak, kernel))
            self._strip[core].append(busy)
            self._last[core] = now
            busiest = max(busiest, (core, busy), key=lambda core: core[1])
        return busiest

    def summary(self) -> tuple[CoreSummary, ...]:
        """Summarize every core that was read twice."""
        summaries = []
        for core, (busy_peak, kernel_peak) in sorted(self._peak.items()):
            shares = modes.tick_shares(modes.tick_changes(self._first[core], self._last[core]))
            mean = 100 * shares.busy if shares else 0.0
            strip = tuple(round(value, 1) for value in self._strip[core])
            summaries.append(
                CoreSummary(core, round(mean, 1), round(busy_peak, 1), round(kernel_peak, 1), strip)
            )
        return tuple(summaries)


class Monitor:
    """Reports progress each second, with the parts that have failed.

    A part that ends after `stop` has not: a service manager stops all processes of a service at once.
    """

    def __init__(self, stop: threading.Event, on_progress: Callable[[Progress], None]) -> None:
        self.cores = CoreWatch()
        self.cores.update(cpu.read_ticks())
        self.children: list[recorder_processes.Child] = []
        self.failures: dict[Part, Failure] = {}
        self.profiling = False  # the profiler has started
        self._begin = time.monotonic()
        self._stop, self._on_progress = stop, on_progress

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begin

    def fail(self, part: Part, why: str) -> None:
        self.failures.setdefault(part, Failure(part, why, times.now_us()))

    def check(self) -> tuple[Failure, ...]:
        """Return the failures so far."""
        for child in self.children:
            if why := child.failure if self._stop.is_set() else child.check():
                self.fail(child.part, why)
        return tuple(self.failures.values())

    def show(self, status: profiler.Status | None = None) -> None:
        if status is not None and status.mode != profiler.STOPPED:
            self.profiling = True
            if not status.why:  # it has restarted
                self.failures.pop(Part.PROFILER, None)
            elif not self._stop.is_set():
                self.fail(Part.PROFILER, status.why)
        busiest = (-1, 0.0)
        with contextlib.suppress(OSError):  # too many open files: the recorders go on
            busiest = self.cores.update(cpu.read_ticks())
        self._on_progress(Progress(self.seconds, status, busiest, self.check()))


def flight_recorder_arguments(
    *,
    metrics: str = "",
    rules: tuple[str, ...] = (),
    every: tuple[str, ...] = (),
    cloud_labels: bool = False,
) -> tuple[str, ...]:
    """Return `Options.agent`; a bad value raises UsageError here instead of ending up in its log."""
    for interval in every:
        flight_recorder.parse_every(interval)
    if metrics:
        addresses.parse_address(metrics)
    return (
        *(word for folder in rules for word in ("--rules", folder)),
        *(word for interval in every for word in ("--every", interval)),
        *(("--metrics", metrics) if metrics else ()),
        *(("--cloud-labels",) if cloud_labels else ()),
    )


def find_missing(options: Options) -> tuple[str, ...]:
    """Return what these options ask for and this process has no permission to record, each with the reason."""
    missing = []
    if options.profiles:
        probe = events.probe(cpu.online())
        why = next(iter(probe.refused.values()), "")
        if why or not probe.cores:
            cores = f" of cores {format_cores(probe.refused)}" if probe.cores else ""
            missing.append(f"stacks{cores} (perf_event_open: {why or 'no core to sample'})")
        elif not probe.kernel_stacks:
            missing.append("kernel stacks (perf_event_open: only user space is allowed)")
    if options.signals:
        try:
            kmsg.KernelLog.open().close()
        except errors.MissingPermissionError as error:
            missing.append(f"the kernel log ({error.why})")
        except (OSError, sources.NoDataError):
            pass  # the host has none; the flight recorder reports that
    return tuple(missing)


def record(
    options: Options, stop: threading.Event, on_progress: Callable[[Progress], None]
) -> Recording:
    """Record until the time is up or `stop` is set; on return everything is in the store.

    What cannot work raises before anything is recorded. A part that fails later is in the next Progress
    while the others go on; without any left the recording ends. Where stacks cannot be sampled, per-core
    CPU is still recorded, and a gap says why.
    """
    homes.need_writable(options.home)
    chosen, no_stacks = _choose(options) if options.profiles else (None, "")
    problems = [no_stacks] if no_stacks else []
    summary = cost = None
    with contextlib.ExitStack() as stack:
        flight = None
        if options.signals:
            flight = stack.enter_context(
                recorder_processes.run_flight_recorder(options.home, problems, *options.agent)
            )
        begin_us, monitor = times.now_us(), Monitor(stop, on_progress)
        monitor.children += [flight] if flight else []
        if chosen is not None:
            try:
                summary, cost = _record_stacks(options, chosen, stop, monitor, problems)
            except Exception as error:  # whatever it is, signals are still recorded
                if not monitor.profiling or flight is None:
                    raise
                why = getattr(error, "why", type(error).__name__)
                monitor.fail(Part.PROFILER, f"{error}: {why}")
        if summary is None:
            _watch_cores(options.seconds, stop, monitor)
        seconds = summary.seconds if summary else monitor.seconds
        profile = None
        if chosen and summary and options.summarize:
            profile = _read_profile(options, chosen, begin_us, summary)
    return Recording(
        host=platform.node(),
        home=str(options.home),
        begin_us=begin_us,
        end_us=begin_us + round(seconds * 1e6),
        seconds=round(seconds, 3),
        cores=monitor.cores.summary(),
        profile=profile,
        cost=cost,
        gaps=tuple(problems),
        signals=flight.summary if flight else None,
        events=_read_events(options, begin_us) if options.signals and options.summarize else (),
        failures=monitor.check(),
    )


def _record_stacks(
    options: Options,
    chosen: str,
    stop: threading.Event,
    monitor: Monitor,
    problems: list[str],
) -> tuple[profiler.Summary, Cost]:
    folder = spool_paths.spool_folder(options.home)
    files.make_folder(folder)
    spool_paths.save_kallsyms(folder, perf.read_identity().boot)
    ingest_problems: list[str] = []
    with recorder_processes.run_ingest(
        options.home, options.budget_bytes, options.keep_seconds, ingest_problems
    ) as ingest:
        monitor.children.append(ingest)
        segments = 0

        def show(status: profiler.Status) -> None:
            nonlocal segments
            if status.segments != segments:
                segments = status.segments
                ingest.wake()
            monitor.show(status)

        summary = profiler.run(
            profiler.ProfilerOptions(
                spool=folder,
                recorder="native" if chosen == "native" else "perf",
                frequency=options.frequency,
                segment_seconds=options.segment_seconds,
                seconds=options.seconds,
                # The store comes first; raw data gets the rest of the budget.
                budget_bytes=max(0, options.budget_bytes - _stored(options)),
                keep_seconds=options.keep_seconds,
                helpers=(ingest.process.pid,),
            ),
            stop,
            show,
        )
    cost = Cost(
        cpu_percent=round(100 * summary.cpu_seconds / max(summary.seconds, 1e-9), 2),
        rss_bytes=summary.rss_peak_bytes,
        raw_bytes=summary.written_bytes,
        ingest_cpu_percent=round(100 * ingest.cpu_seconds / max(summary.seconds, 1e-9), 2),
        stored_bytes=_stored(options),
    )
    problems += [
        f"{(gap.end_ns - gap.begin_ns) / 1e9:.1f} s without samples: {gap.why}"
        for gap in summary.gaps
    ]
    problems += ingest_problems
    return summary, cost


def _read_events(options: Options, begin_us: int) -> tuple[Event, ...]:
    from overnight.store.ring import reader

    end_us = times.now_us() + SECOND_US
    hosts = (platform.node() or "host",)
    return reader.Reader(options.home).events(begin_us - SECOND_US, end_us, hosts)


def _choose(options: Options) -> tuple[str | None, str]:
    """Return the recorder, or None and why none works here."""
    wanted = options.recorder
    probe = events.probe(cpu.online())
    if not probe.cores:
        reason = next(iter(probe.refused.values()), "no core to sample")
        why = f"no stack samples: perf_event_open was refused: {reason} (see `overnight doctor`)"
        if wanted != "auto" or not options.signals:
            raise errors.MissingPermissionError(
                f"the {wanted} recorder cannot sample stacks here",
                why=why,
                todo="run `overnight doctor` for the fix",
            )
        return None, why
    return ("native" if wanted == "auto" else wanted), ""


def _watch_cores(seconds: float, stop: threading.Event, monitor: Monitor) -> None:
    """Show progress until the time is up, `stop` is set, or the flight recorder fails."""
    while True:
        elapsed = monitor.seconds
        stop.wait(max(0.1, min(1.0 - elapsed % 1.0, seconds - elapsed)))
        monitor.show()
        if stop.is_set() or monitor.seconds >= seconds or Part.FLIGHT_RECORDER in monitor.failures:
            return


def _stored(options: Options) -> int:
    return spool_paths.bytes_under(options.home / "profiles")


def _read_profile(
    options: Options, recorder: str, begin_us: int, summary: profiler.Summary
) -> Profile | None:
    from overnight.queries import reader, top
    from overnight.store import segments

    source = reader.Reader(segments.Catalogue(options.home))
    host = perf.read_identity().host
    window = Window(begin_us - SECOND_US, times.now_us() + SECOND_US)
    if host not in source.catalogue.hosts() or not source.touched((host,), window):
        return None
    busiest = top.top(source, window, hosts=(host,))
    return Profile(
        recorder=recorder,
        frequency=options.frequency,
        segments=len(summary.segments),
        samples=busiest.coverage.samples,
        idle_samples=busiest.coverage.idle,
        lost=summary.lost,
        processes=tuple(
            ProcessShare(
                process=row.name,
                samples=row.samples,
                share_of_samples=round(row.share_of_samples, 4),
                share_of_capacity=round(row.share_of_capacity or 0.0, 4),
                cores=round(row.cores or 0.0, 3),
            )
            for row in busiest.rows
        ),
    )
