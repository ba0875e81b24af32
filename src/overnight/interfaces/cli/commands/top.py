"""`overnight top`."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from overnight import errors
from overnight.interfaces.cli import choosing, session

__all__ = ["ORDER", "register"]

ORDER = 43


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command(
        rich_help_panel="In the morning",
        epilog="Example: overnight top functions -b 2026-11-15T03:14:02 -e +5s --core 39",
    )(top)


def top(
    context: typer.Context,
    kind: Annotated[
        str, typer.Argument(metavar="WHAT", help="processes, threads, units or functions.")
    ] = "processes",
    begin: choosing.BeginOption = "",
    end: choosing.EndOption = "",
    host: choosing.HostOption = None,
    core: choosing.CoreOption = "",
    process: choosing.ProcessOption = "",
    thread: choosing.ThreadOption = "",
    function: choosing.FunctionOption = "",
    unit: choosing.UnitOption = "",
    side: choosing.SideOption = "",
    idle: choosing.IdleOption = False,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="How many rows.")] = 20,
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """Who used the cores: by share of samples, share of capacity, and cores' worth of time."""
    from overnight.queries import top as query

    current: session.Session = context.obj
    chosen = choosing.choose(
        current, hosts=host, begin=begin, end=end, core=core, process=process, thread=thread,
        function=function, unit=unit, side=side, idle=idle,
    )  # fmt: skip
    found = query.top(
        chosen.reader, chosen.window, chosen.selection, hosts=chosen.hosts, kind=kind, limit=limit
    )
    if output is session.Output.JSON:
        current.print_json({"schema": "overnight.top/1", **dataclasses.asdict(found)})
    else:
        _show(found, current)
    return errors.ExitCode.DONE


def _show(found: object, current: session.Session) -> None:
    import rich.table
    from rich.markup import escape

    from overnight.interfaces.cli import drawing
    from overnight.queries import top as query

    assert isinstance(found, query.Top)
    functions = found.kind == "functions"
    table = rich.table.Table(box=None, pad_edge=False)
    table.add_column(found.kind, overflow="fold")
    headings = [
        "samples",
        *(["itself"] if functions else []),
        "share of samples",
        "share of capacity",
        "cores",
    ]
    for heading in headings:
        table.add_column(heading, justify="right")
    for row in found.rows:
        table.add_row(
            escape(session.printable(row.name)),
            str(row.samples),
            *([str(row.own)] if functions else []),
            drawing.percent(row.share_of_samples),
            drawing.percent(row.share_of_capacity),
            "-" if row.cores is None else f"{row.cores:.2f}",
        )
    console = current.console()
    console.print(table)
    if found.others:
        console.print(f"[dim]and {found.others} more (--limit)[/]")
    for line in drawing.coverage_lines(found.coverage):
        console.print(f"[dim]{escape(session.printable(line))}[/]")
