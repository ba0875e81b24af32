"""Profiles in a terminal: heatmaps of block characters, tables, and what every answer must say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from overnight.interfaces.cli import session
from overnight.model import times

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import rich.console

    from overnight.model.selection import Coverage
    from overnight.queries import heatmap

__all__ = ["coverage_lines", "draw_heatmap", "percent", "strip"]

BLOCKS = " ▁▂▃▄▅▆▇█"
HOT = 0.95


def percent(share: float | None) -> str:
    """Two digits that matter; a dash where nobody knows.

    >>> percent(0.065), percent(0.0004), percent(None)
    ('6.5 %', '0.04 %', '-')
    """
    if share is None:
        return "-"
    value = 100 * share
    return f"{value:.0f} %" if value >= 10 else f"{value:.2g} %" if value < 1 else f"{value:.1f} %"


def strip(shares: npt.NDArray[np.float64] | list[float], width: int) -> str:
    """One character a step; where they do not fit, each shows its fullest.

    >>> strip([0.0, 0.5, 1.0], 8)
    ' ▄█'
    """
    values = list(shares)
    each = max(1, -(-len(values) // width))
    peaks = [max(values[i : i + each]) for i in range(0, len(values), each)]
    return "".join(BLOCKS[_level(peak)] for peak in peaks)


def _level(share: float) -> int:
    level = round(min(1.0, max(0.0, share)) * 8)
    return max(1, level) if share > 0 else level


def draw_heatmap(
    found: heatmap.Heatmap, console: rich.console.Console, marks: dict[int, str]
) -> None:
    """One line a row; red where a cell is full; events as ▼ above. A cell shows its fullest step."""
    import rich.text

    full = found.full or float(found.values.max(initial=1)) or 1.0
    label = max(4, *(len(name) for name in found.rows)) if found.rows else 4
    width = max(10, console.width - label - 3)
    columns = len(found.values)
    each = max(1, -(-columns // width))
    head = [" "] * (-(-columns // each))
    for instant in marks:
        column = (instant - found.begin_us) // found.step_us // each
        if 0 <= column < len(head):
            head[column] = "▼"
    if marks:
        console.print(rich.text.Text(" " * (label + 2) + "".join(head), style="bold magenta"))
    for number, name in enumerate(found.rows):
        line = rich.text.Text(f"{name:>{label}}  ")
        row = found.values[:, number] / full
        for start in range(0, columns, each):
            share = float(row[start : start + each].max())
            line.append(BLOCKS[_level(share)], style="red" if share >= HOT else "")
        console.print(line, no_wrap=True, overflow="crop")
    first = times.format_instant(found.begin_us)
    last = times.format_instant(found.begin_us + columns * found.step_us)
    console.print(f"[dim]{' ' * (label + 2)}{first} … {last}[/]")
    step = times.format_duration(each * found.step_us / 1e6)
    kind = "busiest" if each > 1 else "whole"
    console.print(
        f"[dim]{found.mode} samples; a column is {step}, its {kind} {times.format_duration(found.step_us / 1e6)}; "
        f"█ is {full:.0f} samples[/]"
    )
    for instant, text in sorted(marks.items()):
        console.print(
            f"[magenta]▼[/] {times.format_instant(instant)}  {session.printable(text)}", markup=True
        )


def coverage_lines(found: Coverage) -> list[str]:
    """What every answer says of itself: how many samples, how many lost, which time is missing."""
    seconds = found.window.seconds * max(1, len(found.hosts))
    lines = [
        f"{found.samples} samples from {found.segments} segments, {found.lost} lost; "
        f"recorded {times.format_duration(found.recorded_seconds) or '0s'} of {times.format_duration(seconds)}"
        + (f" on {len(found.hosts)} hosts" if len(found.hosts) > 1 else "")
    ]
    lines += [
        f"gap {times.format_instant(begin)} … {times.format_instant(end)}: {why}"
        for begin, end, why in found.gaps
    ]
    return lines + [f"note: {note}" for note in found.notes]
