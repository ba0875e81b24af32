from __future__ import annotations

from typing import TYPE_CHECKING

from overnight.interfaces.cli import files, formats, local_time, profile_options, session, terminal
from overnight.model.text import percent

if TYPE_CHECKING:
    from overnight.app import diff as comparison

ORDER = 42

Format = formats.Format
COLOURS = {"new": "red", "more": "red", "less": "blue", "vanished": "blue", "unclear": "dim"}


@profile_options.takes_query()
def diff(
    current: session.Session,
    query: profile_options.Query,
    baseline: str = session.option(
        "", "Begin of the baseline. Default: 10m before -b.", "TIME", callback=local_time.read
    ),
    baseline_end: str = session.option(
        "", "End of the baseline. Default: -b.", "TIME", callback=local_time.read
    ),
    baseline_host: list[str] | None = session.option(
        None, "Host of the baseline; default: --host (repeatable).", "NAME"
    ),
    limit: profile_options.LimitOption = 25,
    mark: profile_options.MarkOption = None,
    output: Format = formats.option(
        "a comparison", "has two counts for each of its functions", *formats.VIEWS
    ),
    file: files.FileOption = None,
) -> None:
    """Compare a window with a baseline, function by function.

    Ranks functions by the lower bound of their change, with its 95 % interval, also those that vanished. Rates
    are shares of the cores' time, so that windows of any length and hosts of any size compare.
    """
    from overnight.app import diff as comparison

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
        files.deliver(comparison.make_page(request), file)
    elif output is Format.SVG:
        files.deliver(comparison.draw_svg(request), file)
    elif output is Format.JSON:
        files.deliver_json(comparison.compare(request).as_json(), file)
    else:
        result = comparison.compare(request)
        files.check_text(file)
        _show(result, current)


def _show(result: comparison.Difference, current: session.Session) -> None:
    table = terminal.table(
        "function", right=("window", "baseline", "change", "95 % interval", "verdict")
    )
    for change in result.changes:
        unknown = change.name == "[unknown]"
        module = f" [dim]{terminal.cell(change.module)}[/]" if unknown else ""
        table.add_row(
            terminal.cell(change.name) + module,
            percent(change.rate),
            percent(change.baseline_rate),
            f"{100 * change.difference:+.2f}",
            f"{100 * change.low:+.2f} … {100 * change.high:+.2f}",
            f"[{COLOURS[change.status]}]{change.status}[/]",
        )
    console = current.console()
    if result.changes:
        console.print(table)
        console.print(
            "[dim]percent of the cores' time; a function counts while it is anywhere on the stack[/]"
        )
    if result.others:
        console.print(f"[dim]and {result.others} more (--limit)[/]")
    terminal.print_coverage(result.coverage, console, "window: ")
    terminal.print_coverage(result.baseline, console, "baseline: ")


register = session.command(
    diff,
    "In the morning",
    "diff -b 2026-11-15T03:14:02 -e +5s --baseline 2026-11-15T03:00 --baseline-end +10m",
    scope=session.Scope.HOME,
)
