"""`overnight events`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from overnight import errors
from overnight.interfaces.cli import profile_options, session

if TYPE_CHECKING:
    from collections.abc import Callable

    import rich.console

    from overnight.model.event import Event
    from overnight.store.ring import reader

__all__ = ["ORDER", "SEVERITIES", "register", "show_table"]

ORDER = 30
FOLLOW_SECONDS = 0.5
SEVERITIES = ("info", "warning", "critical")
STYLE = {"critical": "bold red", "warning": "yellow", "info": "dim"}


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command(rich_help_panel="In the morning", epilog="Example: overnight events -b '12h ago'")(
        events
    )


def events(
    context: typer.Context,
    event_id: Annotated[
        str, typer.Argument(metavar="ID", help="One event, with everything known of it.")
    ] = "",
    begin: profile_options.BeginOption = "",
    end: profile_options.EndOption = "",
    host: Annotated[
        list[str] | None, typer.Option("--host", metavar="NAME", help="One host; again for more.")
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--kind", metavar="KIND", help="Like net.driver_reset, or net. for all of net."
        ),
    ] = None,
    severity: Annotated[
        str, typer.Option(metavar="SEVERITY", help="At least: info, warning or critical.")
    ] = "info",
    core: Annotated[str, typer.Option("--core", metavar="LIST", help="Cores: 39 or 0-3,8.")] = "",
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on as they happen, until Ctrl-C.")
    ] = False,
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """What happened on the recorded hosts: pinned cores, driver resets, crash loops, stalls.

    Without -b and -e: everything that is kept. The profile of an event's seconds:
    overnight flame -b TIME -e +5s --core CORE.
    """
    from overnight.sources import cpu
    from overnight.store.ring import reader

    current: session.Session = context.obj
    if severity not in SEVERITIES:
        raise errors.UsageError(
            f"no severity {severity!r}", why="there are three", todo=" or ".join(SEVERITIES)
        )
    try:
        cores = set(cpu.parse_cpu_list(core))
    except ValueError as error:
        raise errors.UsageError(
            f"{core!r} is not a list of cores", why=str(error), todo="write it like 39 or 0-3,8"
        ) from error
    source = reader.Reader(current.home)
    hosts = _hosts(source, host)
    first, last = _window(source, hosts, begin, end)
    worth = SEVERITIES.index(severity)

    def wanted(one: Event) -> bool:
        return (
            SEVERITIES.index(one.severity) >= worth
            and (not cores or one.core in cores)
            and (not event_id or one.id == event_id)
        )

    if follow:
        return _follow(source, hosts, kind, wanted, current, output)
    found = [one for one in source.events(first, last, hosts, kind) if wanted(one)]
    if event_id and not found:
        raise errors.CannotError(
            f"no event {event_id!r} is kept", why="it was not seen, or is older than what is kept",
            todo="overnight events   lists those that are",
        )  # fmt: skip
    gaps = [(name, gap) for name in hosts for gap in source.gaps(name, first, last)]
    if output is session.Output.JSON:
        current.print_json(
            {
                "schema": "overnight.events/1",
                "begin_us": first,
                "end_us": last,
                "hosts": list(hosts),
                "events": [one.as_json() for one in found],
                "gaps": [
                    {"host": name, "begin_us": gap.begin_us, "end_us": gap.end_us, "why": gap.why}
                    for name, gap in gaps
                ],
                "problems": source.problems,
            }
        )
        return errors.ExitCode.DONE
    console = current.console()
    if event_id:
        _show_one(found[0], console)
    else:
        _show(found, gaps, hosts, console)
    for problem in source.problems:
        console.print(f"damaged: {session.printable(problem)}", style="yellow", markup=False)
    return errors.ExitCode.DONE


def _follow(
    source: reader.Reader,
    hosts: tuple[str, ...],
    kinds: list[str] | None,
    wanted: Callable[[Event], bool],
    current: session.Session,
    output: session.Output,
) -> int:
    """Each new event once, and again when it has grown; JSON lines, or lines of a table."""
    import json
    import signal
    import sys
    import threading

    begin = time.time_ns() // 1000
    told: dict[str, Event] = {}
    console = current.console()
    stop = threading.Event()
    # By ourselves: a shell's background job has SIGINT ignored, and would never end.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    while not stop.is_set():
        now = time.time_ns() // 1000
        for one in source.events(begin, now + 1_000_000, hosts, kinds):
            if not wanted(one) or told.get(one.id) == one:
                continue
            if output is session.Output.JSON:
                sys.stdout.write(json.dumps(one.as_json()) + "\n")
                sys.stdout.flush()
            elif one.id not in told or one.severity != told[one.id].severity:
                console.print(_one_line(one, hosts=len(hosts) > 1))
            told[one.id] = one
        stop.wait(FOLLOW_SECONDS)
    return errors.ExitCode.DONE


def _one_line(one: Event, *, hosts: bool) -> str:
    from rich.markup import escape

    from overnight.model import times

    style = STYLE.get(one.severity, "default")
    where = f"{escape(session.printable(one.host))}  " if hosts else ""
    core = f"core {one.core}  " if one.core >= 0 else ""
    text = escape(session.printable(one.text).replace("\n", " "))
    return (
        f"{times.format_instant(one.time_us)}  {where}[{style}]{escape(one.kind)}[/]  {core}{text}"
    )


def _hosts(source: reader.Reader, wanted: list[str] | None) -> tuple[str, ...]:
    known = source.hosts()
    if not known:
        raise errors.CannotError(
            f"no signals are recorded under {source.home}",
            why="overnight record has not run with this data home",
            todo="overnight record --signals-only --for 10m",
        )
    for name in wanted or ():
        if name not in known:
            raise errors.CannotError(
                f"no signals of host {name!r} are here", why=f"there are {', '.join(known)}",
                todo="choose one of these",
            )  # fmt: skip
    return tuple(wanted or known)


def _window(source: reader.Reader, hosts: tuple[str, ...], begin: str, end: str) -> tuple[int, int]:
    from overnight.model import times

    now = time.time_ns() // 1000
    extents = [extent for name in hosts if (extent := source.extent(name))]
    origin = min((first for first, _ in extents), default=0)
    first = times.parse_instant(begin, now_us=now, origin_us=origin) if begin else 0
    base = first if end.startswith("+") else origin
    last = times.parse_instant(end, now_us=now, origin_us=base) if end else now + 1_000_000
    if last <= first:
        raise errors.UsageError(
            "a window of no length", why="-e is not after -b", todo="exchange them, or -e +10m"
        )
    return first, last


def _show(
    found: list[Event],
    gaps: list[tuple[str, reader.Gap]],
    hosts: tuple[str, ...],
    console: rich.console.Console,
) -> None:
    from overnight.model import times

    if not found:
        console.print("no events")
    else:
        show_table(found, console, hosts=len(hosts) > 1)
        console.print(
            f"[dim]{len(found)} event{'s' * (len(found) != 1)}; "
            "overnight events ID shows one, the ids are in -O json[/]"
        )
    for name, gap in gaps:
        seconds = (gap.end_us - gap.begin_us) / 1e6
        console.print(
            f"nothing was recorded on {session.printable(name)} from "
            f"{times.format_instant(gap.begin_us)} for {seconds:.0f} s: {session.printable(gap.why)}",
            style="yellow", markup=False,
        )  # fmt: skip


def show_table(found: list[Event], console: rich.console.Console, *, hosts: bool = False) -> None:
    """One line an event."""
    import rich.table
    from rich.markup import escape

    from overnight.model import times

    table = rich.table.Table(box=None, pad_edge=False)
    for name in ("time (UTC)", *(["host"] if hosts else []), "event", "core", "what"):
        table.add_column(name, no_wrap=name != "what")
    for one in found:
        style = STYLE.get(one.severity, "")
        # What lasts says how long in its own words; what came again says how often.
        again = one.count > 1 and "seconds" not in one.fields
        often = f" [dim]({one.count} times)[/]" if again else ""
        table.add_row(
            times.format_instant(one.time_us)[:23],
            *([escape(session.printable(one.host))] if hosts else []),
            f"[{style}]{escape(one.kind)}[/]" if style else escape(one.kind),
            str(one.core) if one.core >= 0 else "",
            escape(session.printable(one.text).replace("\n", " ")) + often,
        )
    console.print(table)


def _show_one(one: Event, console: rich.console.Console) -> None:
    from overnight.model import times

    lines = {
        "event": one.id,
        "kind": f"{one.kind} ({one.severity})",
        "what": one.text,
        "host": one.host,
        "time": times.format_instant(one.time_us),
        "until": times.format_instant(one.until_us) if one.until_us else "",
        "monotonic": f"{one.monotonic_ns / 1e9:.6f} s of boot {one.boot[:8]}",
        "clock was set by": f"{one.skew_us / 1e6:+.3f} s since the recording began"
        if one.skew_us
        else "",
        "core": str(one.core) if one.core >= 0 else "",
        "unit": one.unit,
        "process": one.process,
        "seen": f"{one.count} times, by {one.source}",
        **{name: str(value) for name, value in one.fields.items()},
    }
    width = max(map(len, lines))
    for name, value in lines.items():
        if value:
            shown = session.printable(str(value)).replace("\n", " ")
            console.print(f"{session.printable(name):<{width}}  {shown}", markup=False)
    core = f" --core {one.core}" if one.core >= 0 else ""
    begin = times.format_instant(one.time_us)
    console.print(f"[dim]its profile: overnight flame -b {begin} -e +5s{core}[/]")
