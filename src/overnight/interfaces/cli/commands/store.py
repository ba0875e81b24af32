from __future__ import annotations

from typing import TYPE_CHECKING

from overnight import errors
from overnight.interfaces.cli import local_time, profile_options, session, suggestions, terminal
from overnight.model.text import plural

if TYPE_CHECKING:
    from overnight.app import store

ORDER = 60


def check(
    current: session.Session,
    clean: bool = session.flag("Delete unfinished files of killed writers."),
) -> int:
    """Verify every stored file.

    Exits with 1 when a file is damaged.
    """
    from overnight.app import store

    with current.notes().status("checking …") as status:

        def show_progress(done: int, total: int) -> None:
            status.update(f"checking segment {done + 1} of {total} …")

        report = store.check(current.home, clean=clean, progress=show_progress)
    report = suggestions.complete_values(report)
    if not current.printed_json(report):
        _show(report, clean)
    return errors.ExitCode.FOUND if report.problems else errors.ExitCode.DONE


def _show(report: store.CheckReport, clean: bool) -> None:
    terminal.echo(
        f"{plural(report.segments, 'segment')}, {plural(report.samples, 'sample')}; "
        f"{plural(report.blocks, 'block')} of signals, {plural(report.looks, 'poll')}; {report.bytes / 1e6:.1f} MB"
    )
    if report.unfinished:
        action = "deleted" if clean else "delete with: `overnight store check --clean`"
        terminal.echo(
            f"{plural(len(report.unfinished), 'unfinished file')} of killed writers; {action}"
        )
    for problem in report.problems:
        terminal.echo(f"damaged: {problem.path}: {problem.what}")
        terminal.echo(f"   do: {problem.todo}")
    if not report.problems:
        terminal.echo("nothing is damaged")


def ingest(current: session.Session) -> int:
    """Ingest the data of a killed recording.

    `overnight record` does this too when it starts.
    """
    from overnight.app import store

    with current.notes().status("ingesting …"):
        leftovers = store.ingest(current.home)
    if not current.printed_json(leftovers):
        for problem in leftovers.problems:
            terminal.echo(problem)
        if not leftovers.problems:
            terminal.echo("nothing left to ingest")
    return errors.ExitCode.FOUND if leftovers.problems else errors.ExitCode.DONE


def pin(
    current: session.Session,
    name: str = session.argument("", "Name of the pin. Default: list all pins.", "NAME"),
    begin: profile_options.BeginOption = "",
    end: profile_options.EndOption = "",
    why: str = session.option("", "Reason, shown in the list.", "TEXT"),
) -> None:
    """Pin a window against the disk budget, or list pins.

    Profiles and signals of every host here are kept.
    """
    from overnight.app import store

    if name:
        pinned = store.pin(current.home, name, begin, end, why)
    else:
        pinned = store.list_pins(current.home)
    if current.printed_json(pinned):
        return
    rows = [
        (pin.id, local_time.cell(pin.begin_us), local_time.cell(pin.end_us), pin.why)
        for pin in pinned.pins
    ]
    listed = terminal.columns(("pin", "begin", "end", "why"), rows)
    terminal.echo(listed or "no pins", keep="\n")


def unpin(
    current: session.Session,
    name: str = session.argument(..., "Name of the pin.", "NAME"),
) -> None:
    """Remove a pin, so that the disk budget applies again."""
    from overnight.app import store

    pinned = store.unpin(current.home, name)
    if not current.printed_json(pinned):
        terminal.echo(f"removed pin {name}")


register = session.group(
    "store",
    "Check, ingest and pin stored data.",
    "Housekeeping",
    "check",
    ("check", check, "-O json"),
    ("ingest", ingest, ""),
    ("pin", pin, "reset-0314 -b 2026-11-15T03:13 -e +2m --why 'NIC reset'"),
    ("unpin", unpin, "reset-0314"),
)
