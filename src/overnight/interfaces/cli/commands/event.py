from __future__ import annotations

import pathlib
import platform
import sys
from typing import Any

from overnight import errors
from overnight.interfaces.cli import local_time, session, terminal
from overnight.model.text import plural

ORDER = 31
MAX_SHOWN = 10


def add(
    current: session.Session,
    kind: str = session.option("", "Kind: job.failed, request.timeout.", "KIND"),
    at: str = session.option("", "Time. Default: now.", "TIME", callback=local_time.read),
    host: str = session.option("", "Host. Default: this one.", "NAME"),
    label: list[str] | None = session.option(None, "Label: gpu=h100 (repeatable).", "NAME=VALUE"),
    text: str = session.option("", "Text to show. Default: the labels.", "TEXT"),
    severity: str = session.option(
        "", "Severity: info, warning (default) or critical.", "SEVERITY"
    ),
    core: int | None = session.option(None, "Core, if it is known.", "CORE"),
    process: str = session.option("", "Process, if it is known.", "NAME"),
    unit: str = session.option("", "systemd unit, if it is known.", "NAME"),
    file: str = session.option("", "JSON lines, one event each; - for standard input.", "FILE"),
) -> None:
    """Add an event, or many from a file of JSON lines.

    With --file, the other options are defaults for its lines. The same event twice is one event.
    """
    from overnight.app import added_events

    given: dict[str, Any] = {"kind": kind, "at": at, "host": host, "text": text, "severity": severity, "process": process, "unit": unit, "core": core}  # fmt: skip
    given["labels"] = dict(map(added_events.parse_label, label or ()))
    if file:
        try:
            data = sys.stdin.buffer.read() if file == "-" else pathlib.Path(file).read_bytes()
        except OSError as error:
            raise errors.unreadable(file, error, "give a file of JSON lines, or -") from error
        events = added_events.read_events(data, given)
    else:
        here = {"at": at or "now", "host": host or platform.node() or "host"}
        events = (added_events.make_event(given | here),)
    added = added_events.add(current.home, events)
    if current.printed_json(added):
        return
    for event in added.events[:MAX_SHOWN]:
        when = local_time.cell(event.time_us)
        terminal.echo(f"{event.short_id}  {when}  {event.host}  {event.kind}  {event.text}")
    more = len(added.events) - MAX_SHOWN
    if more > 0:
        terminal.echo(f"and {more} more, in -O json")
    known = f", {added.known} already there" if added.known else ""
    terminal.echo(f"added {plural(added.added, 'event')}{known}")
    if hosts := added.unrecorded:
        names = ", ".join(hosts[:MAX_SHOWN]) + " …" * (len(hosts) > MAX_SHOWN)
        note = "diagnose has no evidence there, and compare needs --per KIND"
        terminal.echo(f"note: no signals of {names} are recorded here: {note}", err=True)


def remove(
    current: session.Session,
    ids: list[str] = session.argument(..., "Event: id or prefix (repeatable).", "ID"),
) -> None:
    """Remove events that were added or imported."""
    from overnight.app import added_events

    removed = added_events.remove(current.home, ids)
    if not current.printed_json(removed):
        terminal.echo(f"removed {plural(len(removed.ids), 'event')}")


register = session.group(
    "event",
    "Add outcomes of applications as events.",
    "In the morning",
    "add --kind job.failed --host db-7 --label gpu=h100",
    ("add", add, "--kind job.failed --at 03:14:07 --host db-7 --label job=train-7"),
    ("remove", remove, "8f0c2d1e"),
    scope=session.Scope.HOME,
)
