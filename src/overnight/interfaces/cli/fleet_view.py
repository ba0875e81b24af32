"""What `overnight cohorts` and `overnight hazard` share: an option, and all that they print but their tables."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from overnight.interfaces.cli import session, terminal
from overnight.model.finding import Status
from overnight.model.text import percent, plural

if TYPE_CHECKING:
    from overnight.app import fleet_questions

KindOption = Annotated[
    str, typer.Option(metavar="KIND", help="Kind: net.driver_reset, or net. for all.")
]
WHAT = {Status.CLEAR: "nothing found", Status.NO_DATA: "no data"}


def show(
    current: session.Session,
    result: fleet_questions.FleetAnswer,
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *notes: str,
) -> None:
    """Print an answer: the denominators, the table with its notes, and each finding or why there is none."""
    if current.printed_json(result):
        return
    line = functools.partial(terminal.print_line, current.console())
    watched = result.watched
    share = f" ({percent(watched.hosts_with_event / watched.hosts)})" if watched.hosts else ""
    line(
        f"{plural(watched.events, f'{result.kind} event')} on {watched.hosts_with_event:,} of "
        f"{plural(watched.hosts, 'watched host')}{share}, in {watched.host_days:,.1f} watched host days"
    )
    if rows:
        terminal.echo_columns(headings, rows)
        for note in notes:
            line(note, "dim")
    for finding in result.findings:
        line(f"found: {finding.summary}", "bold red")
        for evidence in finding.evidence:
            line(f"    {evidence.text}", "dim")
        for evidence in finding.against:
            line(f"    against it: {evidence.text}", "yellow")
    if not result.findings:
        line(f"{WHAT.get(result.status, result.status)}: {result.why}", "bold")
    for problem in result.problems:
        line(f"not read: {problem}", "yellow")
