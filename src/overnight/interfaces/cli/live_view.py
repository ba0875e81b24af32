"""The screen of `overnight live`: a strip for every core, or a waterfall if strips do not fit.

In the waterfall each line is a second and each character a core, so a saturated core is a red column
even where 96 cores share a small terminal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import rich.console
import rich.text

from overnight.interfaces.cli import local_time, terminal
from overnight.model import colours
from overnight.model.flame import FrameKind
from overnight.model.text import plural, printable

if TYPE_CHECKING:
    from overnight.app import live

MIN_STRIP, MAX_STRIP = 6, 60
SHOWN_STEAL = 0.01


def draw(view: live.View, width: int, height: int) -> rich.console.Group:
    """Draw a screen that fits the size."""
    lines = [_head(view, width)]
    below = _below(view, width, height)
    room = max(3, height - len(lines) - len(below) - 1)
    lines += cores(view, width, room)
    lines.append(rich.text.Text(""))
    lines += below
    for line in lines:
        line.truncate(width)
        line.no_wrap = True
    return rich.console.Group(*lines[:height])


def _head(view: live.View, width: int) -> rich.text.Text:
    mean = sum(core.last.busy for core in view.cores) / max(1, len(view.cores))
    line = rich.text.Text()
    line.append(printable(view.host), style="bold")
    line.append(f"  {local_time.format_instant(view.time_us)}" if view.time_us else "  …")
    line.append(f"  {plural(len(view.cores), 'core')}, mean busy {100 * mean:.0f} %")
    if view.cores:
        top = max(view.cores, key=lambda core: core.last.busy)
        style = "red" if top.last.busy >= terminal.SATURATED else ""
        line.append(f", top core {top.core} {100 * top.last.busy:.0f} %", style)
        stolen = max(view.cores, key=lambda core: core.last.steal)
        if stolen.last.steal >= SHOWN_STEAL:
            line.append(f", core {stolen.core} steal {100 * stolen.last.steal:.0f} %", "yellow")
    if width >= 100:
        line.append("   q quits", style="dim")
    return line


def cores(view: live.View, width: int, room: int) -> list[rich.text.Text]:
    """Draw all cores in at most `room` lines, as strips or as a waterfall."""
    if not view.cores:
        return [rich.text.Text("waiting for the first second", style="dim")]
    label = len(str(view.cores[-1].core))
    cell = label + 1 + MIN_STRIP + 5 + 2
    columns = max(1, width // cell)
    rows = -(-len(view.cores) // columns)
    if rows > room:
        return _waterfall(view, width, room)
    columns = -(-len(view.cores) // room)
    strip = min(MAX_STRIP, max(MIN_STRIP, width // columns - label - 8))
    rows = -(-len(view.cores) // columns)
    lines = []
    for number in range(rows):
        line = rich.text.Text()
        for column in range(columns):
            index = column * rows + number
            if index < len(view.cores):
                _strip(line, view.cores[index], label, strip)
        lines.append(line)
    return lines


def _strip(line: rich.text.Text, core: live.CoreStrip, label: int, width: int) -> None:
    hot = core.last.busy >= terminal.SATURATED
    line.append(f"{core.core:>{label}} ", style="bold red" if hot else "dim")
    shown = core.shares[-width:]
    line.append(" " * (width - len(shown)))
    for shares in shown:
        line.append(_block(shares.busy), style=_colour(shares.busy, shares.kernel))
    line.append(f" {100 * core.last.busy:3.0f}%  ", style="bold red" if hot else "")


def _waterfall(view: live.View, width: int, room: int) -> list[rich.text.Text]:
    """Draw one character per core, newest second on top; cores share one if they do not fit."""
    each = -(-len(view.cores) // max(1, width - 4))
    groups = [view.cores[i : i + each] for i in range(0, len(view.cores), each)]
    lines = [_ruler(view, each, len(groups))]
    seconds = max(len(core.shares) for core in view.cores)
    for ago in range(1, min(room, seconds + 1)):
        line = rich.text.Text(f"{-ago + 1:>3} ", style="dim")
        for group in groups:
            shares = [core.shares[-ago] for core in group if len(core.shares) >= ago]
            busy, kernel = max(((each.busy, each.kernel) for each in shares), default=(0.0, 0.0))
            line.append(_block(busy), style=_colour(busy, kernel))
        lines.append(line)
    return lines


def _ruler(view: live.View, each: int, groups: int) -> rich.text.Text:
    marks = [" "] * groups
    for index in range(0, groups, 10):
        for offset, digit in enumerate(str(view.cores[index * each].core)):
            if index + offset < groups:
                marks[index + offset] = digit
    return rich.text.Text("    " + "".join(marks), style="dim")


def _block(share: float) -> str:
    level = round(8 * min(1.0, max(0.0, share)))
    return terminal.BLOCKS[max(1, level) if share > 0.02 else level]


def _colour(busy: float, kernel: float) -> str:
    """Return red for a saturated core, else the colour of kernel or user code."""
    if busy >= terminal.SATURATED:
        return "bold red"
    in_kernel = kernel >= 0.5 * busy and kernel > 0.2
    return colours.TERMINAL[FrameKind.KERNEL if in_kernel else FrameKind.USER]


def census_line(view: live.View) -> rich.text.Text | None:
    if not view.census:
        return None
    tracked, in_use, dying = view.census
    ratio = tracked / max(1, in_use)
    style = "red" if dying > 10_000 else "yellow" if dying > 1000 and ratio > 10 else ""
    text = f"memory cgroups: {tracked} tracked, {in_use} in use, {dying} dying ({ratio:.1f}x)"
    return rich.text.Text(text, style=style)


def event_lines(view: live.View, room: int) -> list[rich.text.Text]:
    lines = []
    for event in view.events[:room]:
        line = rich.text.Text(local_time.cell(event.time_us)[11:19] + "  ", style="dim")
        line.append(f"{event.kind:<22} ", style=terminal.SEVERITY.get(event.severity, ""))
        line.append(printable(event.text.replace("\n", " ")))
        lines.append(line)
    return lines


def _below(view: live.View, width: int, height: int) -> list[rich.text.Text]:
    lines = []
    if (census := census_line(view)) is not None:
        lines.append(census)
    shown = view.processes[: max(1, min(5, height // 6))]
    for process in shown:
        name = printable(process.name)[: max(8, width - 40)]
        lines.append(
            rich.text.Text(
                f"{process.cores:6.2f} cores  core {process.last_core:<3} {name} [{process.pid}]"
            )
        )
    room = max(2, min(8, height // 4))
    if view.events:
        lines.append(rich.text.Text(f"events ({len(view.events)}), newest first", "bold"))
    else:
        lines.append(rich.text.Text("no events yet", style="dim"))
    lines += event_lines(view, room)
    for name, problem in list(view.problems.items())[:2]:
        lines.append(rich.text.Text(f"not available: {name} ({printable(problem)})", style="dim"))
    return lines
