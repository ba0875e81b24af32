"""`overnight run`."""

from __future__ import annotations

import functools
import getpass
import pathlib
import platform
import threading
from typing import TYPE_CHECKING

from overnight import errors
from overnight.interfaces.cli import investigation_view, pool_options, session, terminal
from overnight.model import stop_signals, times

if TYPE_CHECKING:
    from overnight.app import investigations

ORDER = 15
ID = "Id of the investigation."


def start(
    current: session.Session,
    plan: pathlib.Path | None = session.argument(None, "Plan file.", "PLAN"),
    dry_run: bool = session.flag("Show what would be done where, and exit."),
    example: str = session.option("", "Print an example plan, and exit.", "NAME"),
    lasting: str = session.option(
        "", "Duration of each arm, instead of the plan's.", "DURATION", "--for"
    ),
    why: pool_options.WhyOption = "",
    yes: pool_options.YesOption = False,
) -> int:
    """Carry out a plan, from the reservation to the report.

    The word start is optional. Every host is given back, whatever happens. Ctrl-C ends the investigation cleanly and
    reports what was learnt; a second Ctrl-C leaves it, and overnight run resume ID continues it. Exits with 0 if the
    event occurred, with 1 if it did not, with 3 if nothing could be observed.
    """
    from overnight.app import investigations

    if example:
        terminal.echo(investigations.find_example(example), nl=False, keep="\n")
        return errors.ExitCode.DONE
    if plan is None:
        raise errors.UsageError(
            "missing argument PLAN",
            why="an investigation needs a plan file",
            todo="`overnight run --example driver-resets` prints one",
        )
    given = investigations.load_plan(plan, times.parse_duration(lasting) if lasting else None)
    if dry_run and not given.is_local and current.server is None:
        return investigation_view.plan(current, investigations.check_alone(given))
    _check_server(current, given.hosts.provider, plan, local=given.is_local)
    use = _open(current, why)
    if dry_run:
        with current.notes().status("reading the platform …"):
            planned = use.preflight(given)
        return investigation_view.plan(current, planned)
    owner = "" if current.server else f"{getpass.getuser()}@{platform.node()}"
    for note in investigations.list_notes(given):
        terminal.print_line(current.notes(), f"note: {note}")
    made = session.call_confirmed(functools.partial(use.create, given, owner=owner), yes=yes)
    return _carry_out(current, use, made)


def list_(
    current: session.Session,
    everything: bool = session.flag("Include ended investigations.", "--all"),
) -> None:
    """List investigations, the newest first."""
    investigation_view.listing(current, _open(current).list(ended=everything))


def status(
    current: session.Session,
    investigation_id: str = session.argument(..., ID, "ID"),
    recent: pool_options.RecentOption = 20,
) -> int:
    """Show an investigation: arms, events, log."""
    return investigation_view.report(current, _open(current).show(investigation_id, recent=recent))


def stop(
    current: session.Session,
    investigation_id: str = session.argument(..., ID, "ID"),
    why: pool_options.WhyOption = "",
) -> int:
    """End an investigation cleanly, and report what was learnt.

    Waits until every host is given back and the report is written.
    """
    use = _open(current, why)
    with investigation_view.progress(current, use.show(investigation_id)) as (show, note):
        report = use.finish(investigation_id, show, note)
    return investigation_view.report(current, report)


def resume(
    current: session.Session, investigation_id: str = session.argument(..., ID, "ID")
) -> int:
    """Continue an investigation whose process was killed.

    While another process or a server carries it out, this command shows the progress.
    """
    use = _open(current)
    return _carry_out(current, use, use.show(investigation_id))


def _carry_out(
    current: session.Session, use: investigations.Investigations, begun: investigations.Report
) -> int:
    name, stopping = begun.investigation.id, threading.Event()
    terminal.print_line(current.notes(), f"{name}  {begun.investigation.plan.name}")
    try:
        with (
            stop_signals.stop_then_interrupt(stopping),
            investigation_view.progress(current, begun) as (show, note),
        ):
            report = use.run(name, stopping, show, note)
    except KeyboardInterrupt:
        terminal.print_line(current.notes(), f"interrupted; continue with: `overnight run resume {name}`")  # fmt: skip
        raise
    return investigation_view.result(current, report)


def _check_server(
    current: session.Session, provider: str, plan: pathlib.Path, *, local: bool
) -> None:
    """Raise UsageError for a plan with hosts elsewhere without a server, and the reverse."""
    if local:
        current.asks_server = False  # OVERNIGHT_SERVER is for plans with hosts elsewhere
    if local and current.chosen_server is not None:
        raise errors.UsageError(
            "a plan with provider local cannot be used with --server",
            why="provider local is the machine that runs the plan",
            todo=f"overnight run {plan}",
        )
    if not local and current.server is None:
        raise errors.UsageError(
            f"a plan with hosts of provider {provider} needs a server",
            why="agents report to the server, and it continues while this machine is off",
            todo=f"`overnight run {plan} --server URL` (`overnight serve` starts a server)",
        )


def _open(current: session.Session, why: str = "") -> investigations.Investigations:
    """Return the investigations of the data home, or of the server."""
    from overnight.app import investigations

    server = pool_options.find_server(current, "", why)
    return server.investigations if server else investigations.Investigations(current.home)


register = session.group(
    "run",
    "Carry out a plan: overnight run PLAN.yaml",
    "During the night",
    "plan.yaml",
    ("start", start, "plan.yaml --dry-run"),
    ("list", list_, ""),
    ("status", status, "i-5f0c9a41d2b7"),
    ("stop", stop, "i-5f0c9a41d2b7"),
    ("resume", resume, "i-5f0c9a41d2b7"),
    scope=session.Scope.SERVER,
    has_default=True,
)
