"""Run the flight recorder on this host: signals, watches, ring, kernel log, pins, outlets."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import platform
import sys
import threading
import time
from collections.abc import Callable, Mapping

from overnight import errors, sources
from overnight.agent import (
    event_pins,
    event_tracker,
    kernel_log,
    outlets,
    own_processes,
    previous_boot,
    recorder_loop,
    signals,
    usage,
)
from overnight.model import data_home, times
from overnight.model.pins import Pins
from overnight.sources import host as hostlabels
from overnight.sources import perf
from overnight.sources.kernelrules import rulefiles
from overnight.store.ring import layout, reader, writer

DAY = 86400.0
ABSENT_US = 3_000_000


@dataclasses.dataclass(frozen=True)
class FlightOptions:
    """Where to store, and for how long. `seconds` 0 is until stopped."""

    home: pathlib.Path
    seconds: float = 0.0
    budget_bytes: int = 1 << 30
    age_seconds: float = 30 * DAY
    root: pathlib.Path = sources.ROOT
    rules: tuple[pathlib.Path, ...] = ()
    metrics: tuple[str, int] | None = None  # address and port to serve metrics on
    lines: bool = False  # events as JSON lines on standard output
    cloud: bool = False  # ask the metadata service for labels
    every: Mapping[str, float] = dataclasses.field(default_factory=dict)  # signal -> seconds
    parent: int = 0  # the process that records with this one; 0: none


@dataclasses.dataclass(frozen=True)
class FlightSummary:
    """One run from start to stop, as the agent prints it for the process that started it."""

    seconds: float
    events: int
    signals: int
    cpu_seconds: float
    rss_bytes: int
    dropped: int
    problems: tuple[str, ...]


def run(
    options: FlightOptions, stop: threading.Event, on_start: Callable[[], None] = lambda: None
) -> FlightSummary:
    """Record until stopped. Only what prevents the start is an error; `on_start` is called after it."""
    data_home.prepare(options.home)
    began, cpu_before = time.monotonic(), usage.read_usage(()).cpu_seconds
    host = platform.node() or "host"
    boot = perf.read_identity(options.root).boot
    outs = _open_outlets(options)
    ring = writer.Writer(
        options.home, host, boot, budget_bytes=options.budget_bytes, age_seconds=options.age_seconds
    )
    # The time since the last run is a gap, however that run ended.
    extent, now = reader.Reader(options.home).extent(host), times.now_us()
    if extent is not None and now - extent[1] > ABSENT_US:
        ring.note_gap(extent[1], now, "the flight recorder did not run")
    # The user's rules besides the built-in ones.
    for folder in options.rules:
        if not folder.is_dir():
            raise errors.UsageError(
                f"--rules {folder} is not a folder",
                why="it has no rule files",
                todo="give a folder with *.toml files, or leave --rules out",
            )
    rules = (*options.rules, *filter(pathlib.Path.is_dir, [options.home / "rules"]))
    known = rulefiles.load(*rules)  # a bad file is an error also where there is no log
    # Before the first reading of this boot: the last one is then of the boot before.
    earlier = previous_boot.find_events(
        options.home, host, boot, known, root=options.root, now_us=now
    )
    previous_boot.note_start(options.home, host)
    profiles = options.home / "spool"
    pins = event_pins.EventPins(
        lambda: (
            layout.ring_pins(options.home, host),
            *([Pins(profiles / "pins")] if profiles.is_dir() else []),
        )
    )
    position = kernel_log.Position(ring.folder / "kernel-log.json", boot)
    since = min((event.time_us for event in position.events), default=now)
    stored = reader.Reader(options.home).events(since, reader.EVER, (host,))
    unstored = [event for event in position.events if event not in stored]
    parts = recorder_loop.Parts(
        host=host,
        boot=boot,
        signals=add_cloud_labels(
            (
                *signals.set_intervals(signals.discover_signals(), options.every),
                own_processes.signal(options.home, options.parent),
            ),
            hostlabels.read_metadata(ask=options.cloud),
        ),
        watches=signals.discover_watches(),
        sink=ring,
        pins=pins,
        outlets=outs,
        open_log=lambda: kernel_log.open_kernel_log(options.root, known, position),
        root=options.root,
    )
    loop = recorder_loop.RecorderLoop(parts)
    loop.report((*earlier, *unstored))
    on_start()
    try:
        loop.run(stop, options.seconds)
    finally:
        ring.close()
    previous_boot.note_stop(options.home, host, boot)
    problems = [
        f"{name}: {state.lost} polls failed: {state.lost_why}"
        if state.lost
        else f"{name}: {state.problem}"
        for name, state in (*loop.states.items(), (recorder_loop.KERNEL_LOG, loop.log_state))
        if state.problem or state.lost
    ]
    problems += [
        f"{kind}: new events beyond {event_tracker.MAX_NEW_A_MINUTE} a minute were not recorded ({seen} sightings)"
        for kind, seen in loop.events.dropped.items()
    ]
    cost = usage.read_usage(())
    return FlightSummary(
        seconds=round(time.monotonic() - began, 3),
        events=loop.event_count,
        signals=sum(1 for state in loop.states.values() if state.polls),
        cpu_seconds=round(cost.cpu_seconds - cpu_before, 4),
        rss_bytes=cost.rss_bytes,
        dropped=ring.dropped,
        problems=tuple(problems),
    )


def add_cloud_labels(
    all_signals: tuple[sources.Signal | sources.FactSignal, ...], labels: sources.Fact
) -> tuple[sources.Signal | sources.FactSignal, ...]:
    """Return the signals with the cloud's labels added to those of the host; the cloud's win.

    Metrics, fleets and reports read zone and image from the host's labels.
    """

    def extend(signal: sources.FactSignal, root: pathlib.Path) -> sources.FactReader:
        read = signal.open(root)

        def with_labels() -> sources.Facts:
            facts = read()
            return {**facts, "": {**facts.get("", {}), **labels}}

        return with_labels

    return tuple(
        dataclasses.replace(signal, open=functools.partial(extend, signal))
        if labels and isinstance(signal, sources.FactSignal) and signal.name == "host"
        else signal
        for signal in all_signals
    )


def _open_outlets(options: FlightOptions) -> tuple[outlets.Outlet, ...]:
    opened: list[outlets.Outlet] = []
    if options.lines:
        from overnight.agent.outlets import jsonlines

        opened.append(jsonlines.JsonLines(sys.stdout))
    if options.metrics is not None:
        # http.server costs five megabytes, so it is imported only when needed.
        from overnight.agent.outlets import openmetrics

        opened.append(openmetrics.Endpoint(*options.metrics))
    return tuple(opened)


def parse_every(text: str) -> tuple[str, float]:
    """Parse `SIGNAL=SECONDS`.

    >>> parse_every("memory-cgroups=2")
    ('memory-cgroups', 2.0)
    """
    name, _, seconds = text.partition("=")
    try:
        interval = float(seconds)
    except ValueError:
        interval = 0.0
    if not name or not 0.1 <= interval <= DAY:
        raise errors.UsageError(
            f"--every {text!r} is not SIGNAL=SECONDS",
            why="the interval must be between 0.1 s and one day",
            todo="use for example --every memory-cgroups=2",
        )
    return name, interval
