"""`overnight diff`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from overnight import errors
from overnight.interfaces.cli import files, formats, pages, profile_options, session

if TYPE_CHECKING:
    from overnight.model.selection import Window
    from overnight.queries import diff as query

__all__ = ["ORDER", "register"]

ORDER = 42

Format = formats.Format
COLOURS = {"new": "red", "more": "red", "less": "blue", "vanished": "blue", "unclear": "dim"}


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command(
        rich_help_panel="In the morning",
        epilog="Example: overnight diff -b 2026-11-15T03:14:02 -e +5s --baseline 2026-11-15T03:00 --baseline-end +10m",
    )(diff)


@profile_options.asks()
def diff(
    context: typer.Context,
    asked: profile_options.Asked,
    baseline: Annotated[
        str,
        typer.Option(metavar="TIME", help="The baseline's begin. Default: 10 minutes before -b."),
    ] = "",
    baseline_end: Annotated[
        str, typer.Option(metavar="TIME", help="The baseline's end. Default: -b.")
    ] = "",
    baseline_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Compare with other hosts than --host."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="How many rows.")] = 25,
    mark: pages.MarkOption = None,
    output: Annotated[
        Format,
        formats.option(
            "a comparison", "has two counts for each of its functions",
            Format.TEXT, Format.JSON, Format.SVG, Format.HTML,
        ),
    ] = Format.TEXT,
    file: files.FileOption = None,
) -> int:  # fmt: skip
    """What changed against a baseline, the surest large changes first, each with its interval.

    Rates are cores' worth of time per core, so that windows of any length and hosts of any size
    compare. What vanished is listed too.
    """
    from overnight.queries import diff as query

    current: session.Session = context.obj
    chosen = profile_options.choose(current, asked)
    others = chosen.reader.hosts(baseline_host) if baseline_host else chosen.hosts
    before = _baseline(chosen, others, baseline, baseline_end)
    if output is Format.HTML:
        if others != chosen.hosts:
            raise errors.UsageError(
                "a page that compares hosts",
                why="a page shows the cores of one",
                todo="-O text, json or svg; or leave --baseline-host out",
            )
        marks = pages.parse_marks(chosen, mark)
        pages.deliver_page(
            chosen, marks, file, title=", what changed", baseline=before, rank="total", limit=limit
        )
        return errors.ExitCode.DONE
    if output is Format.SVG:
        files.deliver(_picture(chosen, others, before), file, binary=False)
        return errors.ExitCode.DONE
    found = query.diff(
        chosen.reader, chosen.window, before, chosen.selection,
        hosts=chosen.hosts, baseline_hosts=others, limit=limit,
    )  # fmt: skip
    if output is Format.JSON:
        files.deliver_json({"schema": "overnight.diff/1", **dataclasses.asdict(found)}, file)
    else:
        files.check_text(file)
        _show(found, current)
    return errors.ExitCode.DONE


def _baseline(
    chosen: profile_options.Chosen, hosts: tuple[str, ...], begin: str, end: str
) -> Window:
    from overnight.model.selection import Window

    extent = chosen.reader.extent(hosts)
    if begin:
        return profile_options.window_between(
            extent, begin, end or str(chosen.window.begin_us / 1e6)
        )
    first = max(extent.begin_us, chosen.window.begin_us - 600_000_000)
    if first >= chosen.window.begin_us:
        raise errors.UsageError(
            "there is nothing before the window to compare it with",
            why="the window begins with the recording",
            todo="name a baseline: --baseline TIME --baseline-end TIME",
        )
    return Window(first, chosen.window.begin_us)


def _picture(
    chosen: profile_options.Chosen, others: tuple[str, ...], before: Window
) -> pages.Write:
    from overnight.queries import flame
    from overnight.reports.pictures import difference

    now = flame.flame(chosen.reader, chosen.window, chosen.selection, hosts=chosen.hosts)
    then = flame.flame(chosen.reader, before, chosen.selection, hosts=others)
    filters = chosen.asked.spelled()
    compared = difference.Compared(
        pages.folded(now, chosen),
        pages.folded(then, chosen),
        now.coverage.capacity,
        then.coverage.capacity,
        f"only {filters}" if filters else "",
    )
    return lambda out: difference.write_difference(compared, out)


def _show(found: query.Difference, current: session.Session) -> None:
    import rich.table
    from rich.markup import escape

    from overnight.interfaces.cli import terminal

    table = rich.table.Table(box=None, pad_edge=False)
    table.add_column("function", overflow="fold")
    for heading in ("now", "before", "change", "95 % interval", ""):
        table.add_column(heading, justify="right")
    for change in found.changes:
        name = escape(session.printable(change.name))
        where = (
            f" [dim]{escape(session.printable(change.module))}[/]"
            if change.name == "[unknown]"
            else ""
        )
        table.add_row(
            name + where,
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
    if found.others:
        console.print(f"[dim]and {found.others} more (--limit)[/]")
    for what, coverage in (("window", found.coverage), ("baseline", found.baseline)):
        for line in terminal.coverage_lines(coverage):
            console.print(f"[dim]{what}: {escape(session.printable(line))}[/]")
