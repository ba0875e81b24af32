from __future__ import annotations

from typing import TYPE_CHECKING

from overnight.interfaces.cli import files, formats, local_time, profile_options, session, terminal
from overnight.model import actor
from overnight.model.text import percent, printable

if TYPE_CHECKING:
    from overnight.app import top as ranking

ORDER = 43
MAX_COMMAND = 120  # characters; JSON has all

Format = formats.Format


@profile_options.takes_query()
def top(
    current: session.Session,
    query: profile_options.Query,
    kind: str = session.argument(
        "processes", "What to rank: processes, threads, units or functions.", "WHAT"
    ),
    limit: profile_options.LimitOption = 20,
    who: bool = session.flag("Processes behind each name: pid, user, command line, ancestors."),
    mark: profile_options.MarkOption = None,
    output: Format = formats.option(
        "a table", "has names and figures", Format.TEXT, Format.JSON, Format.HTML
    ),
    file: files.FileOption = None,
) -> None:
    """Rank processes, threads, units or functions by CPU use.

    Shows the share of samples, the share of all cores' time, and the number of cores used.
    """
    from overnight.app import top as ranking

    who = who or output is Format.JSON
    home, chosen = profile_options.find_samples(current, query)
    request = ranking.Request(home, chosen, tuple(mark or ()), kind, limit, who)
    if output is Format.HTML:
        files.deliver(ranking.make_page(request), file)
        return
    result = ranking.rank(request)
    if output is Format.JSON:
        files.deliver_json(result.as_json(), file)
    else:
        files.check_text(file)
        _show(result, current)


def _show(result: ranking.Top, current: session.Session) -> None:
    functions = result.kind == "functions"
    counts = ("samples", "self") if functions else ("samples",)
    table = terminal.table(
        result.kind, right=(*counts, "share of samples", "share of capacity", "cores")
    )
    for row in result.rows:
        table.add_row(
            terminal.cell(row.name),
            str(row.samples),
            *([str(row.own)] if functions else []),
            percent(row.share_of_samples),
            percent(row.share_of_capacity),
            "-" if row.cores is None else f"{row.cores:.2f}",
        )
    console = current.console()
    if result.rows:
        console.print(table)
    if any(row.processes for row in result.rows):
        terminal.echo("\n" + _who(result), keep="\n")
    if result.others:
        console.print(f"[dim]and {result.others} more (--limit)[/]")
    terminal.print_window(result.coverage, console)
    terminal.print_coverage(result.coverage, console)


def _who(result: ranking.Top) -> str:
    headings = ("process", "pid", "user", "pod or cgroup", "started", "started by", "command")
    rows = []
    for row in result.rows:
        for process in row.processes:
            pid = f"{process.count} processes" if process.launcher else str(process.pid)
            started = "" if process.started_us is None else local_time.short(process.started_us)
            command = printable(process.command or process.executable, limit=MAX_COMMAND)
            above = " ← ".join(process.ancestors)
            place = actor.shorten(process.pod or process.cgroup)
            rows.append((row.name, pid, process.user, place, started, above, command))
    return terminal.columns(headings, rows)


register = session.command(
    top,
    "In the morning",
    "top functions -b 2026-11-15T03:14:02 -e +5s --core 39",
    scope=session.Scope.SERVER,
)
