"""Parts of pictures over time: the place of cells, the time axis, event symbols and lanes."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from overnight.model import times
from overnight.model.severity import Severity

if TYPE_CHECKING:
    from overnight.model.event import Event

SYMBOLS = {Severity.CRITICAL: "▲", Severity.WARNING: "◆", Severity.INFO: "●"}


@dataclasses.dataclass(frozen=True)
class Plot:
    """The place and size of the cells of a heatmap, in px, and the time that a column covers."""

    left: int
    top: int
    columns: int
    rows: int
    cell: int  # width of a column
    row: int  # height of a row
    each: int  # steps in a column
    begin_us: int
    column_us: int

    @property
    def width(self) -> int:
        return self.columns * self.cell

    @property
    def height(self) -> int:
        return self.rows * self.row

    def x(self, us: int) -> float:
        return self.left + (us - self.begin_us) / self.column_us * self.cell


def clock(us: int, form: str = "%Y-%m-%dT%H:%M:%SZ") -> str:
    """Format an instant in UTC."""
    try:
        return f"{datetime.datetime.fromtimestamp(us // 1_000_000, datetime.UTC):{form}}"
    except (ValueError, OverflowError, OSError):  # a damaged file may contain any number
        return f"{us / 1e6:.0f} s after 1970"


def symbol(event: Event) -> str:
    return SYMBOLS[Severity.of(event.severity)]


def most_severe_first(event: Event) -> tuple[int, int]:
    return -Severity.of(event.severity).rank, event.time_us


def find_lane(lanes: Sequence[list[tuple[float, float]]], left: float, wide: float) -> int:
    """Take the first lane with room for a label; -1: none has."""
    for number, lane in enumerate(lanes):
        if all(left > end + 8 or left + wide < begin - 8 for begin, end in lane):
            lane.append((left, left + wide))
            return number
    return -1


def ticks(begin_us: int, end_us: int, most: float) -> Iterator[tuple[int, str]]:
    """Yield round times, about `most` of them, and how to write them."""
    instants = times.list_round(begin_us, end_us, most)
    form = "%H:%M" if instants.step >= times.MINUTE_US else "%H:%M:%S"
    for us in instants:
        yield us, form


def time_axis(plot: Plot, width: int) -> Iterator[str]:
    """Draw ticks at round times; label those that do not overlap, and each new day."""
    bottom = plot.top + plot.height
    yield f'<text class="s e" x="{plot.left - 6}" y="{bottom + 31}">UTC</text>'
    taken, day = 0.0, ""
    end_us = plot.begin_us + plot.columns * plot.column_us
    for us, form in ticks(plot.begin_us, end_us, plot.width / 74):
        x = plot.x(us)
        yield f'<path class="x" d="M{x:.1f} {bottom + 1}v4"/>'
        middle = min(max(x, 30), width - 30)
        if middle - 30 >= taken:
            taken = middle + 30
            yield f'<text class="d" x="{middle:.1f}" y="{bottom + 17}">{clock(us, form)}</text>'
        if (today := clock(us, "%Y-%m-%d")) != day:
            middle = max(middle, plot.left + 32)
            yield f'<text class="s d" x="{middle:.1f}" y="{bottom + 31}">{today}</text>'
            day = today
