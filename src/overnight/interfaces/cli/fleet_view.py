"""What `overnight cohorts` and `overnight hazard` print around their tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from overnight.interfaces.cli import terminal
from overnight.model.finding import Status
from overnight.model.text import percent, plural

if TYPE_CHECKING:
    import rich.console

    from overnight.app import fleet_questions

WHAT = {
    Status.FOUND: "found",
    Status.CLEAR: "nothing found",
    Status.NO_DATA: "no data",
    Status.FAILED: "failed",
}


def show_head(result: fleet_questions.FleetAnswer, console: rich.console.Console) -> None:
    watched = result.watched
    share = f" ({percent(watched.hosts_with_event / watched.hosts)})" if watched.hosts else ""
    text = (
        f"{plural(watched.events, 'event')} {result.kind} on {watched.hosts_with_event:,} of "
        f"{plural(watched.hosts, 'watched host')}{share}, in {watched.host_days:,.1f} watched host days"
    )
    terminal.print_line(console, text)


def show_findings(result: fleet_questions.FleetAnswer, console: rich.console.Console) -> None:
    """Print the answer in words: each finding with its evidence, or why there is none."""
    for finding in result.findings:
        terminal.print_line(console, f"found: {finding.summary}", "bold red")
        for evidence in finding.evidence:
            terminal.print_line(console, f"    {evidence.text}", "dim")
        for evidence in finding.against:
            terminal.print_line(console, f"    against it: {evidence.text}", "yellow")
    if not result.findings:
        terminal.print_line(console, f"{WHAT[result.status]}: {result.why}", "bold")
    for problem in result.problems:
        terminal.print_line(console, f"not read: {problem}", "yellow")
