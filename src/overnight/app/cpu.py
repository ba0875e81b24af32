"""`overnight cpu`: what `mpstat -P ALL` would have printed for a recorded window."""

from __future__ import annotations

import csv
import dataclasses
import io
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

from overnight import errors
from overnight.app import events, windows
from overnight.model import cpu, times
from overnight.model.selection import Window
from overnight.queries import core_history
from overnight.store.ring import reader as rings

if TYPE_CHECKING:
    from overnight.model.event import Event

SCHEMA = "overnight.cpu/1"
Interval: TypeAlias = core_history.Interval
Row: TypeAlias = core_history.Row


@dataclasses.dataclass(frozen=True)
class Request:
    """A window or an event of one host. Times and cores are as users write them; empty ones select everything."""

    home: pathlib.Path
    event: str | None = None
    begin: str = ""
    end: str = ""
    host: str | None = None  # None: the only one
    core: str = ""
    every_us: int | None = None  # length of an interval; None: each reading
    worst: bool = False  # one core per interval
    # Column of cpu.MPSTAT that ranks the cores; None: neither idle nor iowait.
    sort: str | None = None


@dataclasses.dataclass(frozen=True)
class Answer:
    request: Request
    event: Event | None
    history: core_history.History

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that were recorded, in mpstat's order."""
        recorded = {name for each in self.history.intervals for name in each.all.values}
        return tuple(name for name in cpu.MPSTAT if name in recorded)

    def rows(self, interval: Interval) -> list[Row]:
        """Return the rows that mpstat prints: all cores together first, unless some were chosen."""
        chosen = self.request.core or self.request.worst
        return [*interval.cores] if chosen else [interval.all, *interval.cores]

    def as_json(self) -> dict[str, object]:
        event = None if self.event is None else self.event.id
        history = dataclasses.asdict(self.history)
        return {"schema": SCHEMA, "event": event, "columns": self.columns, **history}

    def write_csv(self, out: BinaryIO) -> None:
        text = io.TextIOWrapper(out, "utf-8", newline="", write_through=True)
        lines, columns = csv.writer(text, lineterminator="\n"), self.columns
        lines.writerow(("host", "begin", "end", "seconds", "readings", "core", *columns))
        for each in self.history.intervals:
            span = map(times.format_instant, (each.begin_us, each.end_us))
            facts = (self.history.host, *span, f"{each.seconds:.3f}", each.readings)
            for row in self.rows(each):
                core = "all" if row.core is None else row.core
                lines.writerow((*facts, core, *map(row.values.get, columns)))
        text.detach()


def read_cpu(request: Request, progress: Callable[[float], None] = lambda _: None) -> Answer:
    """Read the history of one host; `progress` gets the share that is read."""
    cores = windows.parse_cores(request.core)
    event = _find_event(request)
    ring = rings.Reader(request.home)
    host = _choose_host(request, ring) if event is None else event.host
    window, recorded = _choose_window(request, event, ring.extent(host))
    history = core_history.read_history(
        ring,
        host,
        window,
        cores=cores,
        every_us=request.every_us,
        worst=request.worst,
        sort=request.sort,
        progress=lambda seconds: progress(seconds / window.seconds),
    )
    if history.cores and not history.intervals:
        raise errors.CannotError(
            f"no CPU time of core {cpu.format_cores(cores)} is recorded in this window",
            why=f"recorded cores: {cpu.format_cores(history.cores)}",
            todo="choose one of these with --core",
        )
    if not history.intervals:
        span, covered = (
            " to ".join(map(times.format_instant, (each.begin_us, each.end_us)))
            for each in (window, recorded)
        )
        reasons = dict.fromkeys([*(why for _, _, why in history.gaps), *history.notes])
        raise errors.CannotError(
            f"no CPU time is recorded from {span}",
            why=f"{'; '.join(reasons)}; the recording of {host} covers {covered}",
            todo="choose -b and -e within the recording; `overnight events` lists its gaps",
        )
    return Answer(request, event, history)


def _find_event(request: Request) -> Event | None:
    if request.event is None:
        return None
    if request.begin or request.end:
        raise errors.UsageError(
            f"event {request.event!r} and -b or -e are mutually exclusive",
            why="each of them chooses the window",
            todo="leave one of them out",
        )
    return events.find_event(request.home, request.event, (request.host,) if request.host else None)


def _choose_host(request: Request, ring: rings.Reader) -> str:
    known = events.resolve_hosts(request.home, (request.host,) if request.host else ())
    hosts = tuple(filter(ring.extent, known)) or known[:1]  # others have events only
    if len(hosts) > 1:
        raise errors.UsageError(
            f"a table cannot show {len(hosts)} hosts",
            why=f"it shows the cores of one host; recorded hosts: {', '.join(hosts)}",
            todo=f"choose one: --host {hosts[0]}",
        )
    return hosts[0]


def _choose_window(
    request: Request, event: Event | None, extent: tuple[int, int] | None
) -> tuple[Window, Window]:
    """Return the window, and what is recorded."""
    if extent is None:
        raise errors.CannotError(
            "no CPU time is recorded",
            why="no reading of this host is stored",
            todo="overnight record --signals-only --for 10m",
        )
    recorded = Window(extent[0], extent[1] + 1)
    if event is not None:
        from overnight.queries import case

        return case.Case(request.home, event).window, recorded
    if request.begin or request.end or request.every_us is not None:
        return windows.resolve_window(recorded, request.begin, request.end), recorded
    return Window(max(extent[0], extent[1] - times.MINUTE_US), recorded.end_us), recorded
