from __future__ import annotations

import enum
from typing import Annotated

import typer

from overnight.interfaces.cli import files, formats, profile_options, session, terminal

ORDER = 40

Format = formats.Format


class By(enum.StrEnum):
    CORE = "core"
    OFFSET = "offset"


class Mode(enum.StrEnum):
    BUSY = "busy"
    KERNEL = "kernel"
    SOFTIRQ = "softirq"
    IDLE = "idle"


def register(cli: typer.Typer) -> None:
    session.add_command(
        cli,
        heatmap,
        "In the morning",
        "heatmap -O html -o night.html --mark '2026-11-15T03:14:07=NIC reset'",
    )


@profile_options.takes_query(without=("idle",))
def heatmap(
    context: typer.Context,
    query: profile_options.Query,
    by: Annotated[
        By, typer.Option(help="Rows: cores, or offsets within a second (all cores together).")
    ] = By.CORE,
    mode: Annotated[Mode, typer.Option(help="Samples to count.")] = Mode.BUSY,
    step: Annotated[
        str, typer.Option(metavar="DURATION", help="Column width with --by core: 100ms, 1s, 1m.")
    ] = "1s",
    rows: Annotated[int, typer.Option(help="Rows of a second with --by offset.")] = 50,
    mark: profile_options.MarkOption = None,
    output: Annotated[
        Format,
        formats.option(
            "a heatmap", "counts samples by time and core",
            Format.TEXT, Format.JSON, Format.SVG, Format.HTML,
        ),
    ] = Format.TEXT,
    file: files.FileOption = None,
) -> None:  # fmt: skip
    """Show every core, second by second.

    A saturated core is visible even if the mean over all cores is low. With -O html, drag to show the flame
    graph of any window, Ctrl-drag to compare two.
    """
    from overnight.app import heatmap as maps
    from overnight.model import times

    current: session.Session = context.obj
    request = maps.Request(
        current.home,
        query,
        by="core" if by is By.CORE else "offset",
        mode=mode.value,
        step_us=round(times.parse_duration(step) * times.SECOND_US),
        rows=rows,
        marks=tuple(mark or ()),
    )
    if output is Format.HTML:
        files.deliver(maps.make_page(request), file)
        return
    result = maps.draw_heatmap(request)
    if output is Format.SVG:
        files.deliver(result.write_svg, file)
    elif output is Format.JSON:
        files.deliver_json(result.as_json(), file)
    else:
        files.check_text(file)
        terminal.draw_heatmap(result, current.console())
