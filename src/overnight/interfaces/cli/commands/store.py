"""`overnight store`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from overnight import errors
from overnight.interfaces.cli import profile_options, session

if TYPE_CHECKING:
    from overnight.store import check as checking

__all__ = ["ORDER", "register"]

ORDER = 60


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True)
    group.command(epilog="Example: overnight store check -O json")(check)
    group.command(epilog="Example: overnight store ingest")(ingest)
    group.command(
        epilog="Example: overnight store pin reset-0314 -b 2026-11-15T03:13 -e +2m --why 'NIC reset'"
    )(pin)
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


def pin(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call it.")] = "",
    begin: profile_options.BeginOption = "",
    end: profile_options.EndOption = "",
    why: Annotated[str, typer.Option(metavar="TEXT", help="Why it is kept.")] = "",
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """Keep a window whatever the budget says; without a name, list what is kept."""
    import dataclasses

    from overnight.agent import spool
    from overnight.app import spool_paths
    from overnight.model import times

    current: session.Session = context.obj
    kept = spool.Spool(spool_paths.spool_folder(current.home), 0, 0)
    if name:
        source = profile_options.open_reader(current)
        window = profile_options.window_between(source, source.hosts(), begin, end)
        kept.pin(spool.Pin(name, window.begin_us * 1000, window.end_us * 1000, why))
    pins = kept.pins()
    if output is session.Output.JSON:
        current.print_json(
            {"schema": "overnight.pins/1", "pins": [dataclasses.asdict(one) for one in pins]}
        )
        return errors.ExitCode.DONE
    for one in pins:
        first, last = (times.format_instant(ns // 1000) for ns in (one.begin_ns, one.end_ns))
        typer.echo(f"{one.id}  {first} … {last}  {session.printable(one.why)}")
    if not pins:
        typer.echo("nothing is pinned")
    return errors.ExitCode.DONE


def unpin(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Which one.")],
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """Let a pinned window go: the budget may take it from then on."""
    import dataclasses

    from overnight.agent import spool
    from overnight.app import spool_paths

    current: session.Session = context.obj
    kept = spool.Spool(spool_paths.spool_folder(current.home), 0, 0)
    if not kept.unpin(name):
        raise errors.CannotError(
            f"nothing is pinned as {name!r}",
            why="it was let go before, or never pinned",
            todo="overnight store pin   lists what is",
        )
    if output is session.Output.JSON:
        left = [dataclasses.asdict(one) for one in kept.pins()]
        current.print_json({"schema": "overnight.pins/1", "pins": left})
    else:
        typer.echo(f"{name} is let go")
    return errors.ExitCode.DONE
