"""`overnight top`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from overnight import errors
from overnight.interfaces.cli import files, formats, profile_options, session
from overnight.model.text import printable

if TYPE_CHECKING:
    from overnight.app import top as ranking

__all__ = ["ORDER", "register"]

ORDER = 43

Format = formats.Format


def register(cli: typer.Typer) -> None:
    cli.command(
        rich_help_panel="In the morning",
        epilog="Example: overnight top functions -b 2026-11-15T03:14:02 -e +5s --core 39",
    )(top)


@profile_options.takes_query()
def top(
    context: typer.Context,
    query: profile_options.Query,
    kind: Annotated[
        str, typer.Argument(metavar="WHAT", help="processes, threads, units or functions.")
    ] = "processes",
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Number of rows.")] = 20,
    mark: profile_options.MarkOption = None,
    output: Annotated[
        Format,
        formats.option("a table", "has names and figures", Format.TEXT, Format.JSON, Format.HTML),
    ] = Format.TEXT,
    file: files.FileOption = None,
) -> int:
    """Rank what used the cores.

    Shows shares of the samples and of all cores' time, and how many cores each used.
    """
    from overnight.app import top as ranking

    current: session.Session = context.obj
    request = ranking.Request(current.home, query, tuple(mark or ()), kind, limit)
    if output is Format.HTML:
        files.deliver(ranking.make_page(request), file, binary=False)
        return errors.ExitCode.DONE
    result = ranking.rank(request)
    if output is Format.JSON:
        files.deliver_json(result.as_json(), file)
    else:
        files.check_text(file)
        _show(result, current)
    return errors.ExitCode.DONE


def _show(result: ranking.Top, current: session.Session) -> None:
    import rich.table
    from rich.markup import escape

    from overnight.interfaces.cli import terminal

    functions = result.kind == "functions"
    table = rich.table.Table(box=None, pad_edge=False)
    table.add_column(result.kind, overflow="fold")
    headings = [
        "samples",
        *(["itself"] if functions else []),
        "share of samples",
        "share of capacity",
        "cores",
    ]
    for heading in headings:
        table.add_column(heading, justify="right")
    for row in result.rows:
        table.add_row(
            escape(printable(row.name)),
            str(row.samples),
            *([str(row.own)] if functions else []),
            terminal.percent(row.share_of_samples),
            terminal.percent(row.share_of_capacity),
            "-" if row.cores is None else f"{row.cores:.2f}",
        )
    console = current.console()
    console.print(table)
    if result.others:
        console.print(f"[dim]and {result.others} more (--limit)[/]")
    terminal.print_coverage(result.coverage, console)
