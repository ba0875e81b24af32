"""`overnight heatmap`."""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING, Annotated

import typer

from overnight import errors
from overnight.interfaces.cli import files, formats, pages, profile_options, session

if TYPE_CHECKING:
    from overnight.queries import heatmap as query

__all__ = ["ORDER", "register"]

ORDER = 40

Format = formats.Format


class By(enum.StrEnum):
    """What the rows are."""

    CORE = "core"
    OFFSET = "offset"


class Mode(enum.StrEnum):
    """Which samples are counted."""

    BUSY = "busy"
    KERNEL = "kernel"
    SOFTIRQ = "softirq"
    IDLE = "idle"


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command(
        rich_help_panel="In the morning",
        epilog="Example: overnight heatmap -O html -o night.html --mark '2026-11-15T03:14:07=NIC reset'",
    )(heatmap)


@profile_options.asks(without=("idle",))
def heatmap(
    context: typer.Context,
    asked: profile_options.Asked,
    by: Annotated[
        By, typer.Option(help="Rows: each core, or each part of a second (all cores together).")
    ] = By.CORE,
    mode: Annotated[Mode, typer.Option(help="Which samples count.")] = Mode.BUSY,
    step: Annotated[
        str, typer.Option(metavar="DURATION", help="A column, by core: 100ms, 1s, 1m.")
    ] = "1s",
    rows: Annotated[int, typer.Option(help="Parts of a second, by offset.")] = 50,
    mark: pages.MarkOption = None,
    output: Annotated[
        Format,
        formats.option(
            "a heatmap", "counts samples by time and core",
            Format.TEXT, Format.JSON, Format.SVG, Format.HTML,
        ),
    ] = Format.TEXT,
    file: files.FileOption = None,
) -> int:  # fmt: skip
    """Every core, second by second: where one was full while the mean was low.

    The HTML page holds the whole window: drag to see any moment's flame graph, Ctrl-drag to compare.
    """
    from overnight.model import times
    from overnight.queries import heatmap as query

    current: session.Session = context.obj
    chosen = profile_options.choose(current, asked)
    marks = pages.parse_marks(chosen, mark)
    if output is Format.HTML:
        if mode not in (Mode.BUSY, Mode.KERNEL):
            raise errors.UsageError(
                f"a page of {mode} samples",
                why="the page's heatmap shows busy or kernel samples",
                todo=f"-O text, json or svg, which take --mode {mode}",
            )
        which = "cores" if by is By.CORE else "subsecond"
        pages.deliver_page(chosen, marks, file, selected=False, map=which, measure=str(mode))
        return errors.ExitCode.DONE
    if by is By.CORE:
        found = query.by_core(
            chosen.reader, chosen.window, chosen.selection, hosts=chosen.hosts,
            step_us=round(times.parse_duration(step) * 1e6), mode=mode,
        )  # fmt: skip
    else:
        found = query.by_offset(
            chosen.reader, chosen.window, chosen.selection, hosts=chosen.hosts, rows=rows, mode=mode
        )
    if output is Format.SVG:
        from overnight.reports.pictures import heatmap as picture

        files.deliver(
            lambda out: picture.write_heatmap(
                found, out, title=chosen.title, marks=marks, filters=asked.spelled()
            ),
            file,
            binary=False,
        )
    elif output is Format.JSON:
        document = {field.name: getattr(found, field.name) for field in dataclasses.fields(found)}
        document |= {"values": found.values.tolist(), "coverage": found.coverage.as_json()}
        events = [event.as_json() for event in marks]
        files.deliver_json({"schema": "overnight.heatmap/1", **document, "events": events}, file)
    else:
        files.check_text(file)
        _show(found, current, {m.time_us: m.text or m.kind for m in marks})
    return errors.ExitCode.DONE


def _show(found: query.Heatmap, current: session.Session, marks: dict[int, str]) -> None:
    from overnight.interfaces.cli import terminal

    console = current.console()
    terminal.draw_heatmap(found, console, marks)
    for line in terminal.coverage_lines(found.coverage):
        console.print(session.printable(line), style="dim", markup=False)
