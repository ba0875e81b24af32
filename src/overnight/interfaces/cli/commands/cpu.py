from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from overnight.interfaces.cli import files, local_time, profile_options, session, terminal
from overnight.model import times
from overnight.model.text import plural

if TYPE_CHECKING:
    import rich.console

    from overnight.app import cpu as histories

ORDER = 41
GUESTS = ("guest", "gnice")
LEFT = 19  # time, seconds and core

Column = Literal[
    "usr", "nice", "sys", "iowait", "irq", "soft", "steal", "guest", "gnice", "idle"
]  # of model.cpu.MPSTAT


def cpu(
    current: session.Session,
    event: str | None = session.argument(
        None, "Event whose incident window to show: id or prefix.", "ID"
    ),
    begin: profile_options.BeginOption = "",
    end: profile_options.EndOption = "",
    host: str | None = session.option(None, "Host; default: the only one.", "NAME"),
    core: profile_options.CoreOption = "",
    every: str | None = session.option(
        None, "Interval: 10s, 1m. Default: each reading.", "DURATION"
    ),
    worst: bool = session.flag("Only the worst reading of the worst core in each interval."),
    sort: Column | None = session.option(
        None, "Column that ranks cores, highest first. Default: all but idle and iowait."
    ),
    limit: int = session.option(16, "Cores per interval in text; the others are counted.", min=1),
    output: Literal["text", "json", "csv"] = session.option(
        "text", "Output format.", None, "-O", "--output", callback=session.choose_output
    ),
    file: files.FileOption = None,
) -> None:
    """Show what mpstat -P ALL 1 would have printed.

    Each line ends a reading or, with --every, several. Without a window: the last minute; with --every, the
    whole recording. If there are more cores than --limit, the text shows the busiest first.
    """
    from overnight.app import cpu as histories

    if output == "text":
        files.check_text(file)
    every_us = None if every is None else round(times.parse_duration(every) * times.SECOND_US)
    hosts = (host,) if host else ()
    found = current.evidence(event_id=event or "", hosts=hosts, begin=begin, end=end)
    chosen = (found.event_id or None, found.begin, found.end)
    request = histories.Request(found.home, *chosen, host, core, every_us, worst, sort)
    with current.progress("reading", 1.0) as update:
        answer = histories.read_cpu(request, lambda share: update(share, ""))
    if output == "json":
        files.deliver_json(answer.as_json(), file)
    elif output == "csv":
        files.deliver(answer.write_csv, file)
        _show_readings(answer, current.notes())
    else:
        _show(answer, current.console(), limit)
        _show_readings(answer, current.console())


def _show(answer: histories.Answer, console: rich.console.Console, limit: int) -> None:
    """Print a block for each interval, or one table if each has one row."""
    rows = [row for interval in answer.history.intervals for row in interval.cores]
    # Most hosts do not run guests.
    unused = {name for name in GUESTS if not any(row.values.get(name) for row in rows)}
    columns = [name for name in answer.columns if name not in unused]
    digits = 2 if console.width >= LEFT + 7 * len(columns) else 1
    widths = {name: max(digits + 5, len(name) + 1) for name in columns}
    names = "".join(f"{name:>{width}}" for name, width in widths.items())
    if answer.event is not None:
        when = local_time.cell(answer.event.time_us)
        terminal.print_line(console, f"{answer.event.kind}  {when}  {answer.event.text}", "magenta")
    day, is_block = "", True
    for interval in answer.history.intervals:
        instant = local_time.cell(interval.end_us)
        rows, more = _limit(answer, interval, limit, digits)
        if day != instant[:10]:
            where = f"{answer.history.host}  {instant[:10]}  {local_time.heading()}"
            terminal.print_line(console, where)
        if day != instant[:10] or is_block:
            terminal.print_line(console, f"{'time':<8}{'s':>6}{'core':>5}{names}", "bold")
        day, is_block = instant[:10], len(rows) > 1
        seconds = f"{interval.seconds:.{2 if interval.seconds < 99.995 else 0}f}"
        for row in rows:
            cells = "".join(
                f"{f'{row.values[name]:.{digits}f}' if name in row.values else '-':>{width}}"
                for name, width in widths.items()
            )
            core = "all" if row.core is None else row.core
            saturated = row.core is not None and row.used >= 100 * terminal.SATURATED
            line = f"{instant[11:19]}{seconds:>6}{core:>5}{cells}"
            terminal.print_line(console, line, "red" if saturated else None)
        if more:
            terminal.print_line(console, f"{'':{LEFT}} {more}", "dim")
        if is_block:
            terminal.print_line(console, "")


def _limit(
    answer: histories.Answer, interval: histories.Interval, limit: int, digits: int
) -> tuple[list[histories.Row], str]:
    """Return the rows to print, and a line about the others: where there are too many, the busiest come first."""
    rows, sort = answer.rows(interval), answer.request.sort
    hidden = len(interval.cores) - limit
    if hidden <= 0:
        return rows, ""
    if sort is None:
        rows.sort(key=lambda row: -101.0 if row.core is None else -row.used)
        each = f"{100 - rows[-hidden].used:.{digits}f} % or more idle or iowait"
    else:
        each = f"{rows[-hidden].values.get(sort, 0.0):.{digits}f} % or less {sort}"
    return rows[:-hidden], f"{plural(hidden, 'more core')}, each {each} (--limit)"


def _show_readings(answer: histories.Answer, console: rich.console.Console) -> None:
    history = answer.history
    step = times.format_duration(history.step_seconds)
    text = f"{plural(history.readings, 'reading')}, one every {step}; {history.lost:,} missing"
    terminal.print_line(console, text, "dim")
    lines = [
        f"core {core} is missing in {plural(readings, 'reading')}"
        for core, readings in history.absent.items()
    ]
    lines += [
        f"not recorded {local_time.cell(begin)} … {local_time.cell(end)}: {why}"
        for begin, end, why in history.gaps
    ]
    for line in (*lines, *(f"damaged: {note}" for note in history.notes)):
        terminal.print_line(console, line, "yellow")


register = session.command(
    cpu, "In the morning", "cpu -b 2026-11-15T03:14:02 -e +5s --core 39", scope=session.Scope.SERVER
)
