"""`overnight heatmap`: samples, or CPU time, by second and core; or samples by second and offset within it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, BinaryIO, Literal

from overnight import errors
from overnight.app import open_segment, pages, windows
from overnight.model import times
from overnight.model.selection import Window
from overnight.model.times import SECOND_US
from overnight.queries import heatmap, signal_heatmap
from overnight.reports.pictures import heatmap as picture
from overnight.store.ring import reader as rings

if TYPE_CHECKING:
    from overnight.model.event import Event

SCHEMA = "overnight.heatmap/1"
PAGE_MODES = ("busy", "kernel")


@dataclasses.dataclass(frozen=True)
class Request(windows.Request):
    by: Literal["core", "offset"] = "core"
    mode: str = "busy"  # busy, kernel, softirq or idle
    step_us: int = SECOND_US  # by core: a column's length
    rows: int = 50  # by offset: parts of a second


@dataclasses.dataclass(frozen=True)
class Heatmap:
    """The cells, and the marks and recorded events to show above them."""

    title: str
    filters: str
    cells: heatmap.Heatmap
    marks: tuple[Event, ...]

    def as_json(self) -> dict[str, object]:
        return {
            "schema": SCHEMA,
            **self.cells.as_json(),
            "events": [event.as_json() for event in self.marks],
        }

    def write_svg(self, out: BinaryIO) -> None:
        picture.write_heatmap(
            self.cells,
            out,
            title=self.title,
            marks=self.marks,
            filters=self.filters,
        )


def draw_heatmap(request: Request) -> Heatmap:
    """Draw the samples; where no stacks were recorded, the CPU time of the cores if the filters allow it."""
    try:
        result = _draw_samples(request)
    except errors.CannotError as error:
        if (drawn := _draw_signals(request)) is None:
            raise _point_to_signals(error, request) from error
        return drawn
    covered = result.cells.coverage
    if covered.recorded_seconds:
        return result
    return _draw_signals(request, covered.window) or result


def _draw_samples(request: Request) -> Heatmap:
    samples = windows.open_samples(request)
    marks = pages.find_marks(*samples.place, request.marks)
    if request.by == "core":
        cells = samples.ask(heatmap.by_core, step_us=request.step_us, mode=request.mode)
    else:
        cells = samples.ask(heatmap.by_offset, rows=request.rows, mode=request.mode)
    cells = dataclasses.replace(cells, coverage=samples.explain(cells.coverage, request.mode))
    return Heatmap(samples.title, request.query.filters_text(), cells, marks)


def _draw_signals(request: Request, window: Window | None = None) -> Heatmap | None:
    """Draw the CPU time of the cores; None where it was not recorded or cannot answer the question."""
    query = request.query
    ring = rings.Reader(request.home)
    # Other hosts have events only.
    extents = {host: extent for host in ring.hosts() if (extent := ring.extent(host))}
    hosts = query.host or tuple(extents)
    by_core = request.by == "core" and not query.filters().keys() - {"core"}
    if not (by_core and hosts and extents.keys() >= {*hosts}):
        return None
    begins, ends = zip(*(extents[host] for host in hosts), strict=True)
    recorded = Window(min(begins), max(ends) + 1)
    window = window or windows.parse_window(query.begin, query.end, recorded, recorded)
    writing = open_segment.read_open(request.home)
    cells = signal_heatmap.by_core(
        ring,
        window,
        hosts,
        cores=windows.parse_cores(query.core),
        step_us=request.step_us,
        mode=request.mode,
        **({"why": str(writing)} if writing and writing.holds(window, hosts) else {}),
    )
    marks = pages.find_marks(request.home, hosts, window, recorded, request.marks)
    title = f"{', '.join(hosts)}, {times.format_instant(window.begin_us)}"
    return Heatmap(title, query.filters_text(), cells, marks) if cells.recorded.any() else None


def _point_to_signals(error: errors.CannotError, request: Request) -> errors.CannotError:
    """Add to an error about missing samples what shows the CPU time of the cores, where that is recorded."""
    query = request.query
    place = windows.Query(query.begin, query.end, query.host, query.core)
    if _draw_signals(dataclasses.replace(request, by="core", query=place)) is None:
        return error
    return errors.CannotError(
        error.what,
        why=f"{error.why}; -O html, --by offset and filters other than --core need samples",
        todo="`overnight heatmap` shows the CPU time of the cores as text; -O svg and -O json do, too",
    )


def make_page(request: Request) -> pages.Writer:
    """Return the viewer page, opened on the heatmap with nothing selected."""
    try:
        samples = windows.open_samples(request)
    except errors.CannotError as error:
        raise _point_to_signals(error, request) from error
    if request.mode not in PAGE_MODES:
        raise errors.UsageError(
            f"a page cannot show {request.mode} samples",
            why="the page's heatmap shows busy or kernel samples",
            todo=f"use -O text, json or svg with --mode {request.mode}",
        )
    return pages.make_page(
        samples,
        request.marks,
        selected=False,
        map="cores" if request.by == "core" else "subsecond",
        measure=request.mode,
    )
