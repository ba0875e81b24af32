"""`overnight top`."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from overnight import errors
from overnight.interfaces.cli import files, formats, pages, profile_options, session

__all__ = ["ORDER", "register"]

ORDER = 43

Format = formats.Format


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command(
        rich_help_panel="In the morning",
        epilog="Example: overnight top functions -b 2026-11-15T03:14:02 -e +5s --core 39",
    )(top)


@profile_options.asks()
def top(
    context: typer.Context,
    asked: profile_options.Asked,
    kind: Annotated[
        str, typer.Argument(metavar="WHAT", help="processes, threads, units or functions.")
    ] = "processes",
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="How many rows.")] = 20,
    mark: pages.MarkOption = None,
    output: Annotated[
        Format,
        formats.option("a table", "has names and figures", Format.TEXT, Format.JSON, Format.HTML),
    ] = Format.TEXT,
    file: files.FileOption = None,
) -> int:
    """Who used the cores: by share of samples, share of capacity, and cores' worth of time."""
    from overnight.queries import top as query

    current: session.Session = context.obj
    chosen = profile_options.choose(current, asked)
    if output is Format.HTML:
        if kind not in query.KINDS:
            raise errors.UsageError(
                f"no top {kind}",
                why="samples are summed up by who ran",
                todo=f"one of {', '.join(query.KINDS)}",
            )
        marks = pages.parse_marks(chosen, mark)
        pages.deliver_page(
            chosen,
            marks,
            file,
            title=f", top {kind}",
            top=kind,
            limit=limit,
            rank="total",
            tables_first=True,
        )
        return errors.ExitCode.DONE
    found = query.top(
        chosen.reader, chosen.window, chosen.selection, hosts=chosen.hosts, kind=kind, limit=limit
    )
    if output is Format.JSON:
        files.deliver_json({"schema": "overnight.top/1", **dataclasses.asdict(found)}, file)
    else:
        files.check_text(file)
        _show(found, current)
    return errors.ExitCode.DONE


def _show(found: object, current: session.Session) -> None:
    import rich.table
    from rich.markup import escape

    from overnight.interfaces.cli import terminal
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
            terminal.percent(row.share_of_samples),
            terminal.percent(row.share_of_capacity),
            "-" if row.cores is None else f"{row.cores:.2f}",
        )
    console = current.console()
    console.print(table)
    if found.others:
        console.print(f"[dim]and {found.others} more (--limit)[/]")
    for line in terminal.coverage_lines(found.coverage):
        console.print(f"[dim]{escape(session.printable(line))}[/]")
