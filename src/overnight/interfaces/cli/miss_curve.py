"""The miss rate of a pool by size in a terminal: one line for each size, on a logarithmic scale."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import rich.text

    from overnight.app import pool_sizing

MAX_ROWS = 24
MARKS = "█▓░"  # miss rates: woken; callers give up; callers wait
STYLES = ("red", "yellow", "")


def share(value: float) -> str:
    """Format a rate, at most 8 characters wide.

    >>> share(0.154), share(0.0183), share(0.00061), share(2e-7), share(0)
    ('15.4 %', '1.83 %', '0.061 %', '<0.001 %', '0 %')
    """
    percent = 100 * value
    if percent >= 99.95:
        return "100 %"
    if percent >= 10:
        return f"{percent:.1f} %"
    if percent >= 0.1:
        return f"{percent:.2f} %"
    if percent >= 0.001:
        return f"{percent:.3f} %"
    return "<0.001 %" if percent else "0 %"


def draw(sizing: pool_sizing.Sizing, width: int) -> list[rich.text.Text]:
    """Return the lines of the picture, no wider than `width` (72 at least)."""
    import rich.text

    points = _rows(sizing)
    # The left end of the scale is a tenth of the accepted miss rate.
    lowest = max(-10, math.floor(math.log10(min(sizing.demand.miss / 10, 0.001)) + 1e-9))
    label_width = max(len(_label(sizing, size)) for size in sizing.named)
    room = max(16, width - 35 - label_width)
    head = f"{'size':>5} {'wait':>8} {'give up':>8} {'woken':>8}  "
    lines = [rich.text.Text(head + _scale(lowest, room, label_width), style="dim")]
    target = _column(sizing.demand.miss, lowest, room)
    for point in points:
        rates = (point.event_driven.miss, point.give_up.miss, point.wait)
        line = rich.text.Text(f"{point.size:>5} ")
        line.append(" ".join(f"{share(rate):>8}" for rate in reversed(rates)) + "  ")
        line.append_text(_bar(rates, lowest, room, target))
        label = _label(sizing, point.size)
        line.append(f" {label}", style="bold")
        line.rstrip()
        lines.append(line)
    return lines


def _bar(rates: tuple[float, ...], lowest: int, room: int, target: int) -> rich.text.Text:
    import rich.text

    bar = rich.text.Text()
    ends = [_column(rate, lowest, room) for rate in rates]
    for column in range(room):
        for mark, style, end in zip(MARKS, STYLES, ends, strict=True):
            if column < end:
                bar.append(mark, style=style)
                break
        else:
            bar.append("│" if column == target else " ", style="green")
    return bar


def _column(rate: float, lowest: int, room: int) -> int:
    """Return the length of the bar of a rate; 0 at or below the left end of the scale."""
    if rate <= 10.0**lowest:
        return 0
    return min(room, max(1, round(room * (math.log10(rate) - lowest) / -lowest)))


def _scale(lowest: int, room: int, beyond: int) -> str:
    """Return the axis: powers of ten above the bars."""
    marks = [" "] * (room + 8)
    step = max(1, math.ceil(-lowest * 9 / room))
    free = 0
    for power in range(lowest, 1, step):
        begin = round(room * (power - lowest) / -lowest)
        text = f"{100 * 10.0**power:g} %"
        begin = min(begin, room + beyond - len(text))
        if begin >= free:
            marks[begin : begin + len(text)] = text
            free = begin + len(text) + 1
    return "".join(marks).rstrip()


def _rows(sizing: pool_sizing.Sizing) -> list[pool_sizing.Point]:
    """Choose at most a screenful of points, the named ones included."""
    points = list(sizing.curve)
    if len(points) <= MAX_ROWS:
        return points
    each = math.ceil(len(points) / (MAX_ROWS - 3))
    return [
        point
        for number, point in enumerate(points)
        if number % each == 0 or point.size in sizing.named
    ]


def _label(sizing: pool_sizing.Sizing, size: int) -> str:
    named = zip(("runbook", "tick", "woken"), sizing.named, strict=True)
    names = [name for name, named_size in named if named_size == size]
    return "◀ " + "+".join(names) if names else ""
