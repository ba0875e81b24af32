"""`overnight store`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from overnight import errors
from overnight.interfaces.cli import profile_options, session

if TYPE_CHECKING:
    from overnight.model.pins import Pin
    from overnight.store import check as checking

__all__ = ["ORDER", "register"]

ORDER = 60


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True)
    group.command(epilog="Example: overnight store check -O json")(check)
    group.command(epilog="Example: overnight store ingest")(ingest)
    group.command(
        "pin",
        epilog="Example: overnight store pin reset-0314 -b 2026-11-15T03:13 -e +2m --why 'NIC reset'",
    )(pin_window)
    group.command(epilog="Example: overnight store unpin reset-0314")(unpin)
    cli.add_typer(
        group,
        name="store",
        rich_help_panel="Housekeeping",
        help="Look after what is stored.",
        epilog="Example: overnight store check",
    )


def check(
    context: typer.Context,
    clean: Annotated[
        bool, typer.Option("--clean", help="Delete what killed writers left unfinished.")
    ] = False,
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """Verify every stored file, and say what is damaged.

    Ends with 1 when something is.
    """
    from overnight.store import check as checking
    from overnight.store import segments

    current: session.Session = context.obj
    with current.notes().status("checking …") as status:
        report = checking.check(
            segments.Catalogue(current.home),
            lambda done, everything: status.update(
                f"checking segment {done + 1} of {everything} …"
            ),
        )
    if clean:
        checking.remove_unfinished(report)
    if output is session.Output.JSON:
        current.print_json(report.as_json())
    else:
        _show(report, clean)
    return errors.ExitCode.FOUND if report.problems else errors.ExitCode.DONE


def _show(report: checking.Report, clean: bool) -> None:
    typer.echo(
        f"{report.segments} segments, {report.samples} samples; "
        f"{report.blocks} blocks of signals, {report.looks} looks; {report.bytes / 1e6:.1f} MB"
    )
    if report.unfinished:
        what = "deleted" if clean else "can be deleted: overnight store check --clean"
        typer.echo(f"{len(report.unfinished)} unfinished, of writers that were killed; {what}")
    for problem in report.problems:
        typer.echo(f"damaged: {session.printable(problem.path)}: {session.printable(problem.what)}")
        typer.echo(f"   do: {session.printable(problem.todo)}")
    if not report.problems:
        typer.echo("nothing is damaged")


def ingest(context: typer.Context, output: session.OutputOption = session.Output.TEXT) -> int:
    """Bring in what a recording that was killed left behind.

    The next `overnight record` does it too.
    """
    from overnight.app import spool_ingest

    current: session.Session = context.obj
    with current.notes().status("bringing in what was left …"):
        problems = list(spool_ingest.ingest_leftovers(current.home))
    if output is session.Output.JSON:
        current.print_json({"schema": "overnight.store-ingest/1", "problems": problems})
    else:
        for problem in problems:
            typer.echo(session.printable(problem))
        if not problems:
            typer.echo("everything is in the store")
    return errors.ExitCode.FOUND if problems else errors.ExitCode.DONE


def pin_window(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call it.")] = "",
    begin: profile_options.BeginOption = "",
    end: profile_options.EndOption = "",
    why: Annotated[str, typer.Option(metavar="TEXT", help="Why it is kept.")] = "",
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """Pin a window so that no budget removes it; list the pins if no NAME is given.

    Profiles and signals of every host here are kept.
    """
    from overnight.app import pins as window_pins
    from overnight.model import times

    current: session.Session = context.obj
    if name:
        window = profile_options.window_between(
            window_pins.recorded_window(current.home), begin, end
        )
        window_pins.pin_window(current.home, name, window, why)
    pins = window_pins.list_pins(current.home)
    if output is session.Output.JSON:
        current.print_json(_pins_document(pins))
        return errors.ExitCode.DONE
    for pin in pins:
        first, last = times.format_instant(pin.begin_us), times.format_instant(pin.end_us)
        typer.echo(f"{pin.id}  {first} … {last}  {session.printable(pin.why)}")
    if not pins:
        typer.echo("nothing is pinned")
    return errors.ExitCode.DONE


def unpin(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Which one.")],
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """Remove a pin: the budget may remove the window from then on."""
    from overnight.app import pins as window_pins

    current: session.Session = context.obj
    window_pins.unpin(current.home, name)
    if output is session.Output.JSON:
        current.print_json(_pins_document(window_pins.list_pins(current.home)))
    else:
        typer.echo(f"removed pin {name}")
    return errors.ExitCode.DONE


def _pins_document(pins: tuple[Pin, ...]) -> dict[str, object]:
    return {"schema": "overnight.pins/1", "pins": [dataclasses.asdict(pin) for pin in pins]}
