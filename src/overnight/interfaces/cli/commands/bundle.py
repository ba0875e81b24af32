from __future__ import annotations

import pathlib
import shlex
from typing import TYPE_CHECKING

from overnight import errors
from overnight.interfaces.cli import local_time, session, terminal
from overnight.model import times
from overnight.model.text import plural

if TYPE_CHECKING:
    from overnight.app import bundles

ORDER = 50


def create(
    current: session.Session,
    event_id: str = session.argument(
        "", "Event id or prefix; `overnight events` lists them.", "ID"
    ),
    event: str = session.option("", "Event id or prefix, instead of the argument.", "ID"),
    file: pathlib.Path | None = session.option(
        None, "File to write. Default: ID.overnight.", "FILE", "-o", "--file"
    ),
    before: str = session.option("15m", "Time to include before the event.", "DURATION"),
    after: str = session.option("2m", "Time to include after the event.", "DURATION"),
    all_recurrences: bool = session.flag("Include the latest 50 events of the same kind."),
    hide: list[str] | None = session.option(None, "Word to mask as well (repeatable).", "WORD"),
) -> None:
    """Write the evidence of an event to one file.

    A bundle has signals, stacks, events, facts and snapshots around the event, with secrets masked.
    """
    from overnight.app import bundles, events

    if not event_id and not event:
        raise errors.UsageError(
            "no event was given",
            why="a bundle holds the evidence of one event",
            todo="`overnight bundle create ID`, or --event ID; `overnight events` lists the ids",
        )
    before_s, after_s = times.parse_duration(before), times.parse_duration(after)
    found = current.evidence(event_id=event_id or event)
    chosen = events.find_event(found.home, found.event_id)
    with current.progress("bundle", 1.0) as update:
        bundle = bundles.create(
            found.home,
            chosen,
            file or bundles.default_file(chosen),
            before_s=before_s,
            after_s=after_s,
            all_recurrences=all_recurrences,
            hide=tuple(word for word in hide or () if word),
            progress=lambda what, share: update(share, what),
        )
    if not current.printed_json(bundle):
        _show(bundle, f"wrote {bundle.file} ({bundle.bytes / 1e6:.1f} MB)")


def open_(
    current: session.Session,
    file: pathlib.Path = session.argument(..., "Bundle to open.", "FILE"),
    into: pathlib.Path | None = session.option(
        None, "New folder for the data home. Default: FILE's name.", "DIR"
    ),
) -> None:
    """Open a bundle as a data home.

    Read it with `overnight --home DIR`. Checksums are verified first; a damaged or hostile bundle is refused
    and nothing is written.
    """
    from overnight.app import bundles

    target = into or pathlib.Path(file.name.removesuffix(bundles.SUFFIX))
    if into is None and target.name == file.name:
        target = pathlib.Path(f"{file.name}.home")
    with current.progress("bundle", 1.0) as update:
        bundle = bundles.open_into(file, target, lambda what, share: update(share, what))
    if not current.printed_json(bundle):
        event = bundle.header.event
        _show(
            bundle,
            f"opened; read it with: `overnight --home {shlex.quote(str(target.absolute()))} events {event}`",
        )


def _show(bundle: bundles.Bundle, ending: str) -> None:
    header = bundle.header
    lines = [f"{header.kind} on {header.host} at {local_time.format_instant(header.time_us)}"]
    for window in header.windows:
        length = times.format_duration((window.end_us - window.begin_us) / 1e6)
        lines.append(f"  {window.host}: {length} from {local_time.cell(window.begin_us)}")
    others = len(header.hosts) - len({window.host for window in header.windows})
    if others > 0:
        lines.append(f"  events, facts and census of {plural(others, 'more host')}")
    masked = ", ".join(f"{place} ({count})" for place, count in header.masked.items())
    lines.append(f"masked: {masked or 'nothing looked like a secret'}")
    lines += [f"note: {note}" for note in header.notes]
    for line in (*lines, ending):
        terminal.echo(line.replace("\n", " "))


register = session.group(
    "bundle",
    "Write or open a file with the evidence of an event.",
    "In the morning",
    "create 1a2b3c4d",
    ("create", create, "1a2b3c4d -o reset.overnight"),
    ("open", open_, "reset.overnight --into reset"),
    scope=session.Scope.SERVER,
    on_host=("open",),
)
