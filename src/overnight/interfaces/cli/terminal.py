"""Results in a terminal: lines, tables, shares, heatmaps of block characters, coverage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from overnight.interfaces.cli import local_time, suggestions
from overnight.model import colours, times
from overnight.model.flame import FrameKind
from overnight.model.text import plural, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import rich.console
    import rich.table

    from overnight.app import heatmap
    from overnight.model.selection import Coverage

BLOCKS = " ▁▂▃▄▅▆▇█"
NOT_RECORDED = "░"
SATURATED = 0.95
SEVERITY = {"critical": "bold red", "warning": "yellow", "info": "dim"}


def print_line(console: rich.console.Console, text: str, style: str | None = None) -> None:
    """Print one line that may be wider than the terminal."""
    console.print(text.replace("\n", " "), style=style, markup=False, soft_wrap=True)


def echo(text: str, *, err: bool = False, nl: bool = True, keep: str = "") -> None:
    """Print a line without layout; control characters but those of `keep` are escaped, as the console does."""
    typer.echo(printable(suggestions.complete(text), keep=keep), err=err, nl=nl)


def table(*left: str, right: tuple[str, ...] = ()) -> rich.table.Table:
    """Return a table without borders: columns of text, then columns of numbers."""
    import rich.table

    columns: list[Any] = [rich.table.Column(heading, overflow="fold") for heading in left]
    columns += [rich.table.Column(heading, justify="right") for heading in right]
    return rich.table.Table(*columns, box=None, pad_edge=False)


def echo_columns(headings: Sequence[str], rows: Iterable[Sequence[str]], none: str = "") -> None:
    """Print aligned lines below their headings, or the text for none."""
    echo(columns(headings, rows) or none, keep="\n")


def columns(headings: Sequence[str], rows: Iterable[Sequence[str]], indent: str = "") -> str:
    r"""Return aligned lines below their headings; '' without rows. Long lines are not wrapped.

    >>> columns(["pool", "ready"], [["ci", "3"]])
    'pool  ready\nci    3'
    """
    plain = ([printable(text.replace("\n", " ")) for text in row] for row in rows)
    lines = [list(headings), *plain]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = (map(str.ljust, line, widths) for line in lines)
    return "\n".join((indent + "  ".join(line)).rstrip() for line in padded) if lines[1:] else ""


def cell(text: str) -> str:
    """Return text as one line, with Rich markup escaped."""
    from rich.markup import escape

    return escape(text.replace("\n", " "))


def strip(shares: list[float], width: int) -> str:
    """Draw one character per step, or the highest of several if they do not fit.

    >>> strip([0.0, 0.5, 1.0], 8)
    ' ▄█'
    """
    each = max(1, -(-len(shares) // width))
    peaks = [max(shares[i : i + each]) for i in range(0, len(shares), each)]
    return "".join(BLOCKS[_level(peak)] for peak in peaks)


def _level(share: float) -> int:
    level = round(min(1.0, max(0.0, share)) * 8)
    return max(1, level) if share > 0 else level


def draw_heatmap(result: heatmap.Heatmap, console: rich.console.Console) -> None:
    """Print a line for each row: saturated cells in red, marks as ▼ above.

    If columns do not fit, a character shows the highest of several. Without samples it is blank if all
    of them were recorded.
    """
    import rich.text

    cells = result.cells
    full = cells.full or float(cells.values.max(initial=1)) or 1.0
    names = [printable(name) for name in cells.rows]  # as they are shown, for the width
    label = max(4, *map(len, names)) if names else 4
    width = max(10, console.width - label - 3)
    columns = len(cells.values)
    each = max(1, -(-columns // width))
    head = [" "] * (-(-columns // each))
    marks = {event.time_us: event.text or event.kind for event in result.marks}
    for instant in marks:
        column = (instant - cells.begin_us) // cells.step_us // each
        if 0 <= column < len(head):
            head[column] = "▼"
    colour = colours.TERMINAL[FrameKind.KERNEL] if cells.mode == "kernel" else ""
    if marks:
        console.print(rich.text.Text(" " * (label + 2) + "".join(head), style="bold magenta"))
    for number, name in enumerate(names):
        line = rich.text.Text(f"{name:>{label}}  ")
        row, recorded = cells.values[:, number] / full, cells.recorded[:, number]
        for start in range(0, columns, each):
            share = float(row[start : start + each].max())
            if share or recorded[start : start + each].all():
                line.append(BLOCKS[_level(share)], style="red" if share >= SATURATED else colour)
            else:
                line.append(NOT_RECORDED, style="dim")
        console.print(line, no_wrap=True, overflow="crop")
    if not names:
        print_coverage(cells.coverage, console)
        return
    print_line(
        console, " " * (label + 2) + ticks(cells.begin_us, each * cells.step_us, len(head)), "dim"
    )
    first = local_time.format_instant(cells.begin_us)
    last = local_time.cell(cells.begin_us + columns * cells.step_us)
    console.print(f"[dim]{' ' * (label + 2)}{first} … {last}[/]")
    step = times.format_duration(cells.step_us / 1e6)
    widest = f"the busiest {step} of {times.format_duration(each * cells.step_us / 1e6)}"
    stacks = cells.source == "stacks"
    console.print(
        f"[dim]{cells.mode} {'samples' if stacks else 'time'}; "
        f"a column shows {widest if each > 1 else step}; "
        f"█ is {plural(round(full), 'sample') if stacks else '100 %'}"
        f"{'' if cells.recorded.all() else f', blank none, {NOT_RECORDED} not recorded'}[/]"
    )
    for instant, text in sorted(marks.items()):
        print_line(console, f"▼ {local_time.cell(instant)}  {text}", "magenta")
    print_coverage(cells.coverage, console)


def ticks(begin_us: int, column_us: int, columns: int) -> str:
    """Return a line with round times at their columns.

    >>> ticks(1_794_712_447_000_000, 1_000_000, 32)
    '   ╵03:14:10 ╵03:14:20 ╵03:14:30'
    """
    line = [" "] * columns
    for us in times.list_round(begin_us, begin_us + columns * column_us, columns / 10):
        at = (us - begin_us) // column_us
        if at + 9 <= columns:
            line[at : at + 9] = "╵" + local_time.cell(us)[11:19]
    return "".join(line).rstrip()


def print_window(coverage: Coverage, console: rich.console.Console) -> None:
    """Print from when to when an answer is."""
    begin, end = map(local_time.cell, (coverage.window.begin_us, coverage.window.end_us))
    print_line(console, f"{', '.join(coverage.hosts)}  {begin} … {end}", "dim")


def coverage_lines(coverage: Coverage) -> list[str]:
    """Return the coverage of an answer: samples, losses, missing time."""
    seconds = coverage.window.seconds * max(1, len(coverage.hosts))
    samples = f"{plural(coverage.samples, 'sample')} from {plural(coverage.segments, 'segment')}, {coverage.lost} lost; "
    if coverage.recorded_seconds and not coverage.segments:  # signals
        samples = ""
    lines = [
        f"{samples}recorded {times.format_duration(coverage.recorded_seconds, exact=True)}"
        f" of {times.format_duration(seconds, exact=True)}"
        + (f" on {len(coverage.hosts)} hosts" if len(coverage.hosts) > 1 else "")
    ]
    lines += [
        f"not recorded {local_time.cell(begin)} … {local_time.cell(end)}: {why}"
        for begin, end, why in coverage.gaps
    ]
    lines += coverage.unknown.lines() if coverage.unknown else ()
    return lines + [f"note: {note}" for note in coverage.notes]


def print_coverage(coverage: Coverage, console: rich.console.Console, prefix: str = "") -> None:
    if coverage.empty:
        print_line(console, f"{prefix}{coverage.empty}")
    for line in coverage_lines(coverage):
        print_line(console, prefix + line, "dim")
