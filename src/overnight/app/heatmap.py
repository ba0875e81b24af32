"""`overnight heatmap`: samples by second and core, or by second and offset within it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, BinaryIO, Literal

from overnight import errors
from overnight.app import pages, windows
from overnight.model.times import SECOND_US
from overnight.queries import heatmap
from overnight.reports.pictures import heatmap as picture

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

    samples: windows.Samples
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
            title=self.samples.title,
            marks=self.marks,
            filters=self.samples.query.filters_text(),
        )


def draw_heatmap(request: Request) -> Heatmap:
    samples = windows.open_samples(request)
    marks = pages.find_marks(samples, request.marks)
    if request.by == "core":
        cells = samples.ask(heatmap.by_core, step_us=request.step_us, mode=request.mode)
    else:
        cells = samples.ask(heatmap.by_offset, rows=request.rows, mode=request.mode)
    coverage = samples.explain(cells.coverage, request.mode)
    return Heatmap(samples, dataclasses.replace(cells, coverage=coverage), marks)


def make_page(request: Request) -> pages.Writer:
    """Return the viewer page, opened on the heatmap with nothing selected."""
    samples = windows.open_samples(request)
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
