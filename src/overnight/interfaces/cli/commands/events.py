from __future__ import annotations

from typing import TYPE_CHECKING

from overnight import errors
from overnight.interfaces.cli import local_time, profile_options, session, terminal
from overnight.model import stop_signals, times
from overnight.model.event import DEATHS
from overnight.model.text import plural, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    import rich.console

    from overnight.app import events as stored
    from overnight.model.event import Event

ORDER = 30


def events(
    current: session.Session,
    event_id: str = session.argument("", "Event to show with all its fields: id or prefix.", "ID"),
    begin: profile_options.BeginOption = "",
    end: profile_options.EndOption = "",
    host: profile_options.HostOption = None,
    kind: list[str] | None = session.option(
        None, "Kind: net.driver_reset, or net. for all (repeatable).", "KIND"
    ),
    severity: str = session.option(
        "info", "Minimum severity: info, warning, critical.", "SEVERITY"
    ),
    core: profile_options.CoreOption = "",
    label: list[str] | None = session.option(
        None, "Label or field of the event (repeatable).", "NAME=VALUE"
    ),
    follow: bool = session.flag("Print new events until Ctrl-C."),
) -> None:
    """List events: saturated cores, driver resets, crash loops.

    Without -b and -e, lists all stored events. To show the profile of an event:
    overnight flame -b TIME -e +5s --core CORE.
    """
    from overnight.app import events as stored

    if follow and (event_id or begin or end):
        raise errors.UsageError(
            "--follow cannot be combined with an event, -b or -e",
            why="it prints the events from now on",
            todo="leave out one of them",
        )
    request = stored.Request(
        current.home,
        event_id=event_id,
        begin=begin,
        end=end,
        hosts=tuple(host or ()),
        kinds=tuple(kind or ()),
        severity=severity,
        core=core,
        labels=tuple(label or ()),
    )
    if follow:
        _follow(request, current)
        return
    server = current.server
    listing = server.list_events(request) if server else stored.list_events(request)
    if current.printed_json(listing):
        return
    console = current.console()
    if event_id:
        _show_one(listing.events[0], console)
    else:
        _show(listing, console)
    for problem in listing.problems:
        terminal.print_line(console, f"damaged: {problem}", "yellow")


def _follow(request: stored.Request, current: session.Session) -> None:
    """Print a JSON line for every change, or a line for new events and new severities."""
    import functools
    import json
    import sys
    import threading

    from overnight.app import events as stored

    console = current.console()
    stop = threading.Event()
    server = current.server
    with_host = server or len(stored.resolve_hosts(request.home, request.hosts)) > 1
    away = ""

    def report_away(error: errors.CannotError) -> None:
        nonlocal away
        if error.what != away:
            terminal.print_line(
                current.notes(), f"{error.what}: {error.why}; trying again", "yellow"
            )
        away = error.what

    follow = functools.partial(server.follow, on_away=report_away) if server else stored.follow
    with stop_signals.stop_on_signals(stop):
        for event, before in follow(request, stop):
            if current.output is session.Output.JSON:
                sys.stdout.write(json.dumps(event.as_json()) + "\n")
                sys.stdout.flush()
            elif before is None or before.severity != event.severity:
                # One line each, also in a pipe.
                console.print(_line(event, with_host=bool(with_host)), soft_wrap=True)


def _line(event: Event, *, with_host: bool) -> str:
    cell = terminal.cell
    style = terminal.SEVERITY.get(event.severity, "default")
    host = f"{cell(event.host)}  " if with_host else ""
    core = f"core {event.core}  " if event.core >= 0 else ""
    when = local_time.cell(event.time_us)
    process = f"{cell(event.process)}: " if event.process else ""
    return (
        f"{cell(event.short_id)}  {when}  {host}[{style}]{event.severity:8}[/]  {cell(event.kind)}  "
        f"{core}{process}{cell(event.text)}"
    )


def _show(listing: stored.Listing, console: rich.console.Console) -> None:
    if listing.empty:
        terminal.print_line(console, str(listing.empty))
    else:
        show_table(listing.events, console, with_host=len(listing.hosts) > 1)
        count = len(listing.events)
        hint = f"{plural(count, 'event')}; `overnight diagnose ID` finds the cause"
        terminal.print_line(console, hint, "dim")
    for gap in listing.gaps:
        length = times.format_duration((gap.end_us - gap.begin_us) / 1e6)
        begin = local_time.cell(gap.begin_us)
        text = f"nothing was recorded on {gap.host} from {begin} for {length}: {gap.why}"
        terminal.print_line(console, text, "yellow")


def show_table(
    events: Sequence[Event], console: rich.console.Console, *, with_host: bool = False
) -> None:
    """Print events, one a line; on a narrow terminal process and text follow on a line of their own."""
    import rich.padding
    import rich.table
    import rich.text

    host = ["host"] if with_host else []
    rows = [
        [
            "id",
            local_time.heading(),
            "severity",
            "event",
            *host,
            "core",
            "lasted",
            "process",
            "what",
        ]
    ]
    rows += [_cells(event, with_host=with_host) for event in events]
    *widths, name, _ = (max(map(len, column)) for column in zip(*rows, strict=True))
    severity = slice(widths[0] + widths[1] + 4, widths[0] + widths[1] + widths[2] + 4)
    narrow = console.width < sum(widths) + 2 * len(widths) + name + 40
    grid = rich.table.Table.grid("", "", padding=(0, 2))
    grid.columns[0].no_wrap = grid.columns[1].no_wrap = True
    for number, (*cells, process, what) in enumerate(rows):
        text = "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
        line = rich.text.Text(text, "" if number else "bold")
        line.stylize(terminal.SEVERITY.get(cells[2], ""), severity.start, severity.stop)
        if not console.is_terminal:
            console.print(line, f" {process:<{name}} ", what, markup=False, soft_wrap=True)
        elif narrow:
            console.print(line, no_wrap=True, overflow="ellipsis")
            tail = rich.text.Text(f"{process}: {what}" if process else what, line.style)
            console.print(rich.padding.Padding(tail, (0, 0, 0, widths[0] + 2)))
        else:
            grid.add_row(line, *(rich.text.Text(cell, line.style) for cell in (process, what)))
    if grid.rows:
        console.print(grid)


def _cells(event: Event, *, with_host: bool) -> list[str]:
    # The text of an event that lasts includes its duration; a recurring one needs its count.
    recurring = event.count > 1 and "seconds" not in event.fields
    cells = [
        event.short_id,
        local_time.short(event.time_us),
        event.severity,
        event.kind,
        *([event.host] if with_host else []),
        str(event.core) if event.core >= 0 else "",
        times.format_duration(event.seconds) if event.seconds else "",
        event.process,
        event.text + (f" ({event.count} times)" if recurring else ""),
    ]
    return [printable(text.replace("\n", " ")) for text in cells]


def _show_one(event: Event, console: rich.console.Console) -> None:
    skew = (
        f"{event.skew_us / 1e6:+.3f} s since the recording began"
        if abs(event.skew_us) >= 1000
        else ""
    )
    lines = {
        "event": event.id,
        "kind": f"{event.kind} ({event.severity})",
        "what": event.text,
        "host": event.host,
        "time": local_time.format_instant(event.time_us),
        "until": local_time.format_instant(event.until_us) if event.seconds else "",
        "monotonic": f"{event.monotonic_ns / 1e9:.6f} s of boot {event.boot[:8]}"
        * bool(event.boot),
        "clock was set by": skew,
        "core": str(event.core) if event.core >= 0 else "",
        "unit": event.unit,
        "process": event.process,
        "seen": f"{plural(event.count, 'time')}, by {event.source}",
        **{name: str(value) for name, value in event.fields.items()},
    }
    width = max(map(len, lines))
    for name, value in lines.items():
        if value:
            terminal.print_line(console, f"{name:<{width}}  {value}")
    core = f" --core {event.core}" if event.core >= 0 else ""
    # After its death a host has no profile.
    begin = times.format_instant(event.time_us - 5 * times.SECOND_US * (event.kind in DEATHS))
    terminal.print_line(console, f"its profile: `overnight flame -b {begin} -e +5s{core}`", "dim")
    terminal.print_line(console, f"its cause:   `overnight diagnose {event.short_id}`", "dim")


register = session.command(
    events, "In the morning", "events -b '12h ago'", scope=session.Scope.SERVER
)
