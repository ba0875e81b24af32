from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

from overnight import errors
from overnight.interfaces.cli import local_time, profile_options, session, terminal
from overnight.model import stop_signals, times

if TYPE_CHECKING:
    from collections.abc import Sequence

    import rich.console

    from overnight.app import instrument
    from overnight.model.instrument import Reading, Recording

ORDER = 18
LIVE_ROWS = 5  # of a second, while it runs


def run_instrument(
    current: session.Session,
    name: str = session.argument("list", "Instrument; or list, or show.", "NAME"),
    target: str = session.argument(
        "", "Process or function to trace; of show: instrument or recording.", "TARGET"
    ),
    duration: str = session.option("30s", "Duration: 30s, 8h.", "DURATION", "--for"),
    begin: profile_options.BeginOption = "",
    end: profile_options.EndOption = "",
    host: str = session.option("", "show: host. Default: all.", "NAME"),
    limit: int = session.option(10, "Rows of each kind in text.", "N", min=1),
    config: pathlib.Path = session.option(
        pathlib.Path("/etc/overnight/agent.toml"), "File that lists further commands.", "FILE"
    ),
) -> None:
    """Trace the kernel with perf or bpftrace, and store readings.

    For hosts where the cost does not matter; the cost is measured, stored and shown. Diagnoses and bundles of the
    same time use the readings. "list" describes the instruments, "show" sums up what was read. Ctrl-C ends it.
    """
    from overnight.app import instrument

    if name == "list":
        _list(current, instrument.list_instruments(config))
        return
    if name == "show":
        found = instrument.show(current.home, begin=begin, end=end, host=host, name=target)
    elif begin or end or host:
        raise errors.UsageError(
            f"-b, -e and --host are options of show (got {name})",
            why="an instrument reads this host, from now on",
            todo=f"overnight instrument {name} --for 30s",
        )
    else:
        seconds = times.parse_duration(duration)
        request = instrument.Request(name, target, seconds, current.home, config=config)
        notes = current.notes()
        with stop_signals.stop_on_signals() as stop:
            found = instrument.run(request, stop, lambda seen: _show_live(notes, seen))
    if not current.printed_json(found):
        _show(current, found, limit)


def _list(current: session.Session, listing: instrument.Listing) -> None:
    if current.printed_json(listing):
        return
    console = current.console()
    table = terminal.table("instrument", "needs", "target", "what it reads")
    for each in listing.instruments:
        target = each.target and (each.target if each.needs_target else f"[{each.target}]")
        table.add_row(*map(terminal.cell, (each.name, each.tool or "-", target or "-", each.about)))
    console.print(table)
    if listing.problem:
        terminal.print_line(console, f"commands of the administrator: {listing.problem}", "yellow")


def _show_live(notes: rich.console.Console, seen: Sequence[Reading]) -> None:
    from overnight.app import instrument

    if not notes.is_terminal:  # a night of them would fill the log of an agent's task
        return
    by_time: dict[int, list[Reading]] = {}
    for reading in seen:
        by_time.setdefault(reading.time_us, []).append(reading)
    for time_us, readings in by_time.items():
        clock = local_time.cell(time_us)[11:19]
        for row in instrument.sum_rows(readings)[:LIVE_ROWS]:
            terminal.print_line(notes, f"{clock}  {row.describe()}", "dim")


def _show(current: session.Session, found: instrument.Result, limit: int) -> None:
    console = current.console()
    shown: dict[str, int] = {}
    for row in found.rows:
        shown[row.kind] = shown.get(row.kind, 0) + 1
        if shown[row.kind] <= limit:
            terminal.print_line(console, row.describe())
    for kind, count in shown.items():
        if count > limit:
            terminal.print_line(console, f"{kind}  {count - limit} more rows (--limit)", "dim")
    if not found.rows:
        terminal.print_line(console, "nothing was read")
    for recording in found.recordings:
        terminal.print_line(console, _format_recording(recording), "dim")


def _format_recording(recording: Recording) -> str:
    name = " ".join(filter(None, (recording.instrument, recording.target)))
    state = "" if recording.ended else " (running)" if recording.running else " (cut off)"
    began = local_time.cell(recording.began_us)[:19]
    lasted = times.format_duration(recording.seconds)
    return f"{recording.id}  {name} on {recording.host}, {began}, {lasted}{state}; {recording.describe_cost()}"


register = session.command(
    run_instrument, "Before the night", "instrument runqueue-latency --for 30s"
)
