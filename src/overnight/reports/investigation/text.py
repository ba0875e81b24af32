"""The report in a terminal: Rich renderables, readable at 80 columns and without colours."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, BinaryIO

import rich.console
import rich.table
import rich.text

from overnight.model.investigation import Outcome
from overnight.reports.diagnosis import text as diagnosis
from overnight.reports.diagnosis import wording as texts
from overnight.reports.investigation import sections, wording

if TYPE_CHECKING:
    from overnight.reports import investigation

WIDTH = 100
MAX_ROWS = 20
STYLES = {Outcome.REPRODUCED: "bold red"}


def write(report: investigation.Report, file: BinaryIO) -> None:
    """Write the report as plain text."""
    out = io.StringIO()
    console = rich.console.Console(file=out, width=WIDTH, no_color=True, highlight=False)
    console.print(render(report), crop=False)
    lines = "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())
    file.write(lines.encode("utf-8", "replace"))


def render(report: investigation.Report) -> rich.console.Group:
    """Render the report; names are text, never markup."""
    style = STYLES.get(report.investigation.outcome, "bold yellow")
    lines: list[rich.console.RenderableType] = [_text(wording.headline(report), style, 600), ""]
    for part in wording.parts(report):
        lines += diagnosis.render_part(part)
    for section in sections.make_sections(report):
        lines += ["", _text(section.heading, "bold underline")]
        lines += [diagnosis.behind("- ", _text(line, most=1500)) for line in section.lines]
        for table in section.tables:
            lines += [_text(table.caption, "dim"), _render(table, report.folder)]
            if len(table.rows) > MAX_ROWS:
                lines.append(_text(f"{len(table.rows) - MAX_ROWS} more are left out"))
        if section.file:
            file = texts.command(section.file).split("\n")
            lines += [
                _text(section.file_title, "dim"),
                *(diagnosis.command_line(line) for line in file),
            ]
    return rich.console.Group(*lines)


def _render(table: sections.Table, folder: str) -> rich.table.Table:
    drawn = rich.table.Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for head in table.heads:
        drawn.add_column(head.removeprefix("n:"), overflow="fold")
    for row in table.rows[:MAX_ROWS]:
        drawn.add_row(*(_text(_show(cell, folder), most=300) for cell in row))
    return drawn


def _show(cell: sections.Cell, folder: str) -> str:
    if isinstance(cell, str):
        return cell
    text, address = cell
    return f"{text}: {wording.shorten_path(address, folder)}"


def _text(text: str, style: str = "", most: int = 400) -> rich.text.Text:
    return diagnosis.make_text((texts.clean(text, most), style))
