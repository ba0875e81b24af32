from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from overnight.interfaces.cli import profile_options, session, terminal

if TYPE_CHECKING:
    from collections.abc import Sequence

    import rich.console

    from overnight.app import events as stored
    from overnight.model.event import Event

ORDER = 30


def register(cli: typer.Typer) -> None:
    session.add_command(cli, events, "In the morning", "events -b '12h ago'")


def events(
    context: typer.Context,
    event_id: Annotated[
        str, typer.Argument(metavar="ID", help="Event to show with all its fields.")
    ] = "",
    begin: profile_options.BeginOption = "",
    end: profile_options.EndOption = "",
    host: profile_options.HostOption = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND", help="Kind: net.driver_reset, or net. for all (repeatable)."),
    ] = None,
    severity: Annotated[
        str, typer.Option(metavar="SEVERITY", help="Minimum severity: info, warning, critical.")
    ] = "info",
    core: profile_options.CoreOption = "",
    follow: Annotated[
        bool, typer.Option("--follow", help="Print new events until Ctrl-C.")
    ] = False,
    output: session.OutputOption = session.Output.TEXT,
) -> None:
    """List events: saturated cores, driver resets, crash loops.

    Without -b and -e, lists all stored events. To show the profile of an event:
    overnight flame -b TIME -e +5s --core CORE.
    """
    from overnight.app import events as stored

    current: session.Session = context.obj
    request = stored.Request(
        current.home,
        event_id=event_id,
        begin=begin,
        end=end,
        hosts=tuple(host or ()),
        kinds=tuple(kind or ()),
        severity=severity,
        core=core,
    )
    if follow:
        _follow(request, current, output)
        return
    listing = stored.list_events(request)
    if current.printed_json(listing, output):
        return
    console = current.console()
    if event_id:
        _show_one(listing.events[0], console)
    else:
        _show(listing, console)
    for problem in listing.problems:
        terminal.print_line(console, f"damaged: {problem}", "yellow")


def _follow(request: stored.Request, current: session.Session, output: session.Output) -> None:
    """Print a JSON line for every change, or a line for new events and new severities."""
    import json
    import sys
    import threading

    from overnight.app import events as stored
    from overnight.model import stop_signals

    console = current.console()
    stop = threading.Event()
    with_host = len(stored.resolve_hosts(request.home, request.hosts)) > 1
    with stop_signals.stop_on_signals(stop):
        for event, before in stored.follow(request, stop):
            if output is session.Output.JSON:
                sys.stdout.write(json.dumps(event.as_json()) + "\n")
                sys.stdout.flush()
            elif before is None or before.severity != event.severity:
                console.print(_line(event, with_host=with_host))


def _line(event: Event, *, with_host: bool) -> str:
    from overnight.model import times

    cell = terminal.cell
    style = terminal.SEVERITY.get(event.severity, "default")
    host = f"{cell(event.host)}  " if with_host else ""
    core = f"core {event.core}  " if event.core >= 0 else ""
    when = times.format_instant(event.time_us)
    return f"{when}  {host}[{style}]{cell(event.kind)}[/]  {core}{cell(event.text)}"


def _show(listing: stored.Listing, console: rich.console.Console) -> None:
    from overnight.model import times

    if not listing.events:
        console.print("no events")
    else:
        show_table(listing.events, console, with_host=len(listing.hosts) > 1)
        count = len(listing.events)
        console.print(
            f"[dim]{count} event{'s' * (count != 1)}; overnight events ID shows one, "
            "-O json has the ids[/]"
        )
    for gap in listing.gaps:
        seconds = (gap.end_us - gap.begin_us) / 1e6
        begin = times.format_instant(gap.begin_us)
        text = f"nothing was recorded on {gap.host} from {begin} for {seconds:.0f} s: {gap.why}"
        terminal.print_line(console, text, "yellow")


def show_table(
    events: Sequence[Event], console: rich.console.Console, *, with_host: bool = False
) -> None:
    from overnight.model import times

    cell = terminal.cell
    table = terminal.table()
    for name in ("time (UTC)", *(["host"] if with_host else []), "event", "core", "what"):
        table.add_column(name, no_wrap=name != "what")
    for event in events:
        style = terminal.SEVERITY.get(event.severity, "default")
        # The text of an event that lasts includes its duration; a recurring one needs its count.
        recurring = event.count > 1 and "seconds" not in event.fields
        count = f" [dim]({event.count} times)[/]" if recurring else ""
        table.add_row(
            times.format_instant(event.time_us)[:23],
            *([cell(event.host)] if with_host else []),
            f"[{style}]{cell(event.kind)}[/]",
            str(event.core) if event.core >= 0 else "",
            cell(event.text) + count,
        )
    console.print(table)


def _show_one(event: Event, console: rich.console.Console) -> None:
    from overnight.model import times

    skew = f"{event.skew_us / 1e6:+.3f} s since the recording began" if event.skew_us else ""
    lines = {
        "event": event.id,
        "kind": f"{event.kind} ({event.severity})",
        "what": event.text,
        "host": event.host,
        "time": times.format_instant(event.time_us),
        "until": times.format_instant(event.until_us) if event.until_us else "",
        "monotonic": f"{event.monotonic_ns / 1e9:.6f} s of boot {event.boot[:8]}",
        "clock was set by": skew,
        "core": str(event.core) if event.core >= 0 else "",
        "unit": event.unit,
        "process": event.process,
        "seen": f"{event.count} times, by {event.source}",
        **{name: str(value) for name, value in event.fields.items()},
    }
    width = max(map(len, lines))
    for name, value in lines.items():
        if value:
            terminal.print_line(console, f"{name:<{width}}  {value}")
    core = f" --core {event.core}" if event.core >= 0 else ""
    begin = times.format_instant(event.time_us)
    console.print(f"[dim]its profile: overnight flame -b {begin} -e +5s{core}[/]")
