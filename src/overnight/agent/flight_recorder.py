"""Puts the flight recorder together for this host: signals, watches, ring, kernel log, pins, outlets."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import platform
import sys
import threading
import time
from collections.abc import Mapping

from overnight import errors, sources
from overnight.agent import event_pins, kernel_log, outlets, recorder_loop, signals, spool, usage
from overnight.model.pins import Pin
from overnight.sources import host as hostlabels
from overnight.sources import perf
from overnight.store.ring import layout, reader, writer

__all__ = [
    "FlightOptions",
    "FlightSummary",
    "add_cloud_labels",
    "parse_address",
    "parse_every",
    "run",
]

DAY = 86400.0
ABSENT_US = 3_000_000


@dataclasses.dataclass(frozen=True)
class FlightOptions:
    """Where to keep what, and for how long. `seconds` 0 is until stopped; no `metrics` is no page."""

    home: pathlib.Path
    seconds: float = 0.0
    budget_bytes: int = 1 << 30
    age_seconds: float = 30 * DAY
    root: pathlib.Path = sources.ROOT
    rules: tuple[pathlib.Path, ...] = ()
    metrics: tuple[str, int] | None = None
    lines: bool = False  # events as JSON lines on standard output
    cloud: bool = False  # ask the metadata service for labels
    every: Mapping[str, float] = dataclasses.field(default_factory=dict)  # signal -> seconds


@dataclasses.dataclass(frozen=True)
class FlightSummary:
    """One run from start to stop."""

    seconds: float
    events: int
    signals: int
    cpu_seconds: float
    rss_bytes: int
    dropped: int
    problems: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        """The form in which the agent tells it to whoever started it."""
        return dataclasses.asdict(self)


class _Pins:
    """Pins a window in the ring, and in the spool of profiles where there is one."""

    def __init__(self, home: pathlib.Path, host: str) -> None:
        self._ring = layout.ring_pins(home, host)
        self._spool = home / "spool"

    def pin(self, pin_id: str, begin_us: int, end_us: int, why: str) -> None:
        with contextlib.suppress(OSError):  # a full disk: nothing is rotated away there either
            self._ring.pin(Pin(pin_id, begin_us * 1000, end_us * 1000, why))
            if self._spool.is_dir():
                window = spool.Pin(pin_id, begin_us * 1000, end_us * 1000, why)
                spool.Spool(self._spool, 0, 0.0).pin(window)

    def unpin(self, pin_id: str) -> None:
        with contextlib.suppress(OSError):
            self._ring.unpin(pin_id)
            if self._spool.is_dir():
                spool.Spool(self._spool, 0, 0.0).unpin(pin_id)


def run(options: FlightOptions, stop: threading.Event) -> FlightSummary:
    """Record until stopped. Only what prevents the start is an error."""
    began, cpu_before = time.monotonic(), usage.read_usage(()).cpu_seconds
    host = platform.node() or "host"
    boot = perf.read_identity(options.root).boot
    exits = _outlets(options)
    keep = writer.Writer(
        options.home,
        host,
        boot,
        budget_bytes=options.budget_bytes,
        age_seconds=options.age_seconds,
    )
    _note_absence(options.home, host, keep)
    # What the user wrote beside our own rules.
    rules = (*options.rules, *filter(pathlib.Path.is_dir, [options.home / "rules"]))
    log, why_not = kernel_log.open_kernel_log(options.root, *rules)
    pins = _Pins(options.home, host)
    parts = recorder_loop.Parts(
        host=host,
        boot=boot,
        signals=add_cloud_labels(
            signals.set_intervals(signals.discover_signals(), options.every),
            hostlabels.read_metadata(ask=options.cloud),
        ),
        watches=signals.discover_watches(),
        keep=keep,
        pins=event_pins.EventPins(pins.pin, pins.unpin),
        outlets=exits,
        log=log,
        log_problem=why_not,
        root=options.root,
    )
    flying = recorder_loop.RecorderLoop(parts)
    try:
        flying.run(stop, options.seconds)
    finally:
        keep.close()
    problems = [f"{name}: {one.problem}" for name, one in flying.states.items() if one.problem]
    cost = usage.read_usage(())
    return FlightSummary(
        seconds=round(time.monotonic() - began, 3),
        events=flying.told,
        signals=sum(1 for one in flying.states.values() if one.looks),
        cpu_seconds=round(cost.cpu_seconds - cpu_before, 4),
        rss_bytes=cost.rss_bytes,
        dropped=keep.dropped,
        problems=tuple([why_not] if why_not else []) + tuple(problems),
    )


def add_cloud_labels(
    found: tuple[sources.Signal | sources.FactSignal, ...], labels: sources.Fact
) -> tuple[sources.Signal | sources.FactSignal, ...]:
    """The signals, with what the cloud says of this host among its own labels.

    There metrics, fleets and reports look for zone and image; what the cloud says counts more.
    """
    if not labels:
        return found

    def opened(signal: sources.FactSignal) -> sources.FactSignal:
        def start(root: pathlib.Path) -> sources.FactReader:
            look = signal.open(root)

            def with_labels() -> sources.Facts:
                facts = look()
                return {**facts, "": {**facts.get("", {}), **labels}}

            return with_labels

        return dataclasses.replace(signal, open=start)

    return tuple(
        opened(one) if isinstance(one, sources.FactSignal) and one.name == "host" else one
        for one in found
    )


def _note_absence(home: pathlib.Path, host: str, keep: writer.Writer) -> None:
    """The time since the last run is a gap, however that run ended."""
    extent = reader.Reader(home).extent(host)
    now = time.time_ns() // 1000
    if extent is not None and now - extent[1] > ABSENT_US:
        keep.note_gap(extent[1], now, "the flight recorder did not run")


def _outlets(options: FlightOptions) -> tuple[outlets.Outlet, ...]:
    made: list[outlets.Outlet] = []
    if options.lines:
        from overnight.agent.outlets import jsonlines

        made.append(jsonlines.JsonLines(sys.stdout))
    if options.metrics is not None:
        # http.server costs five megabytes: only where it is asked for.
        from overnight.agent.outlets import openmetrics

        made.append(openmetrics.Endpoint(*options.metrics))
    return tuple(made)


def parse_address(text: str) -> tuple[str, int]:
    """`PORT`, `:PORT` or `ADDRESS:PORT`; loopback where no address is said.

    >>> parse_address("9464"), parse_address("0.0.0.0:9464")
    (('127.0.0.1', 9464), ('0.0.0.0', 9464))
    """
    address, _, port = text.rpartition(":")
    if not port.isdigit() or not 0 <= int(port) < 65536:
        raise errors.UsageError(
            f"{text!r} is no address to serve metrics on",
            why="a port from 0 to 65535 is needed",
            todo="--metrics 9464, or --metrics ADDRESS:PORT",
        )
    return address.strip("[]") or "127.0.0.1", int(port)


def parse_every(text: str) -> tuple[str, float]:
    """`SIGNAL=SECONDS`.

    >>> parse_every("memory-cgroups=2")
    ('memory-cgroups', 2.0)
    """
    name, _, seconds = text.partition("=")
    try:
        found = float(seconds)
    except ValueError:
        found = 0.0
    if not name or not 0.1 <= found <= DAY:
        raise errors.UsageError(
            f"{text!r} does not say how often to look",
            why="a signal and its seconds are needed, a tenth of a second at least",
            todo="--every memory-cgroups=2",
        )
    return name, found
