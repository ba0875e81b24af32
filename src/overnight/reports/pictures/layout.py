"""Where the cells of a map lie, and the axis of time below them."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterator

__all__ = ["Plot", "clock", "time_axis"]

STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


@dataclasses.dataclass(frozen=True)
class Plot:
    """Where the cells are, and what one of them is."""

    left: int
    top: int
    columns: int
    rows: int
    cell: int  # px across
    row: int  # px down
    each: int  # steps in a column
    begin_us: int
    column_us: int

    @property
    def width(self) -> int:
        """Of all columns, in px."""
        return self.columns * self.cell

    @property
    def height(self) -> int:
        """Of all rows, in px."""
        return self.rows * self.row

    def x(self, us: int) -> float:
        """Where an instant is."""
        return self.left + (us - self.begin_us) / self.column_us * self.cell


def clock(us: int, form: str) -> str:
    """An instant as strftime would write it, in UTC."""
    try:
        return f"{datetime.datetime.fromtimestamp(us // 1_000_000, datetime.UTC):{form}}"
    except (ValueError, OverflowError, OSError):  # nobody lives then, but a damaged file may say so
        return f"{us / 1e6:.0f} s"


def time_axis(plot: Plot, width: int) -> Iterator[str]:
    """Ticks at round times, labelled as far as they do not overlap; the day where it changes."""
    bottom = plot.top + plot.height
    span = plot.columns * plot.column_us / 1e6
    step = next((s for s in STEPS if span / s <= plot.width / 74), 86400)
    form = "%H:%M" if step >= 60 else "%H:%M:%S"
    at, day = -(-plot.begin_us // (step * 1_000_000)) * step, ""
    yield f'<text class="s e" x="{plot.left - 6}" y="{bottom + 31}">UTC</text>'
    taken = 0.0
    while at * 1_000_000 <= plot.begin_us + span * 1e6:
        x = plot.x(at * 1_000_000)
        yield f'<path class="x" d="M{x:.1f} {bottom + 1}v4"/>'
        middle = min(max(x, 30), width - 30)
        if middle - 30 >= taken:
            taken = middle + 30
            yield f'<text class="d" x="{middle:.1f}" y="{bottom + 17}">{clock(at * 1_000_000, form)}</text>'
        if (today := clock(at * 1_000_000, "%Y-%m-%d")) != day:
            middle = max(middle, plot.left + 32)
            yield f'<text class="s d" x="{middle:.1f}" y="{bottom + 31}">{today}</text>'
            day = today
        at += step
