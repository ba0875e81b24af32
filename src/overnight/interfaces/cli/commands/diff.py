"""`overnight diff`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from overnight import errors
from overnight.interfaces.cli import files, formats, profile_options, session
from overnight.model.text import printable

if TYPE_CHECKING:
    from overnight.app import diff as comparison

__all__ = ["ORDER", "register"]

ORDER = 42

Format = formats.Format
COLOURS = {"new": "red", "more": "red", "less": "blue", "vanished": "blue", "unclear": "dim"}


def register(cli: typer.Typer) -> None:
    cli.command(
        rich_help_panel="In the morning",
        epilog="Example: overnight diff -b 2026-11-15T03:14:02 -e +5s --baseline 2026-11-15T03:00 --baseline-end +10m",
    )(diff)


@profile_options.takes_query()
def diff(
    context: typer.Context,
    query: profile_options.Query,
    baseline: Annotated[
        str, typer.Option(metavar="TIME", help="Begin of the baseline. Default: 10m before -b.")
    ] = "",
    baseline_end: Annotated[
        str, typer.Option(metavar="TIME", help="End of the baseline. Default: -b.")
    ] = "",
    baseline_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Host of the baseline; default: --host (repeatable)."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Number of rows.")] = 25,
    mark: profile_options.MarkOption = None,
    output: Annotated[
        Format,
        formats.option(
            "a comparison", "has two counts for each of its functions",
            Format.TEXT, Format.JSON, Format.SVG, Format.HTML,
        ),
    ] = Format.TEXT,
    file: files.FileOption = None,
) -> int:  # fmt: skip
    """Compare a window with a baseline, function by function.

    Large changes that are certain come first, each with its 95 % interval. Rates are cores' worth of
    time per core, so windows of any length and hosts of any size compare. Functions that vanished
    are listed too.
    """
    from overnight.app import diff as comparison

    current: session.Session = context.obj
    request = comparison.Request(
        current.home,
        query,
        baseline=baseline,
        baseline_end=baseline_end,
        baseline_hosts=tuple(baseline_host or ()),
        limit=limit,
        marks=tuple(mark or ()),
    )
    if output is Format.HTML:
        files.deliver(comparison.make_page(request), file, binary=False)
    elif output is Format.SVG:
        files.deliver(comparison.draw_svg(request), file, binary=False)
    elif output is Format.JSON:
        files.deliver_json(comparison.compare(request).as_json(), file)
    else:
        result = comparison.compare(request)
        files.check_text(file)
        _show(result, current)
    return errors.ExitCode.DONE


def _show(result: comparison.Difference, current: session.Session) -> None:
    import rich.table
    from rich.markup import escape

    from overnight.interfaces.cli import terminal

    table = rich.table.Table(box=None, pad_edge=False)
    table.add_column("function", overflow="fold")
    for heading in ("now", "before", "change", "95 % interval", ""):
        table.add_column(heading, justify="right")
    for change in result.changes:
        unknown = change.name == "[unknown]"
        module = f" [dim]{escape(printable(change.module))}[/]" if unknown else ""
        table.add_row(
            escape(printable(change.name)) + module,
            terminal.percent(change.rate),
            terminal.percent(change.baseline_rate),
            f"{100 * change.difference:+.2f}",
            f"{100 * change.low:+.2f} … {100 * change.high:+.2f}",
            f"[{COLOURS[change.status]}]{change.status}[/]",
        )
    console = current.console()
    console.print(table)
    console.print(
        "[dim]percent of the cores' time; a function counts while it is anywhere on the stack[/]"
    )
    if result.others:
        console.print(f"[dim]and {result.others} more (--limit)[/]")
    terminal.print_coverage(result.coverage, console, "window: ")
    terminal.print_coverage(result.baseline, console, "baseline: ")
