"""`overnight bundle`."""

from __future__ import annotations

import contextlib
import pathlib
from typing import TYPE_CHECKING, Annotated

import typer

from overnight import errors
from overnight.interfaces.cli import session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from overnight.app import bundles

__all__ = ["ORDER", "register"]

ORDER = 50


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True)
    group.command(
        epilog="Example: overnight bundle create --event net.driver_reset-1a2b3c4d -o reset.overnight"
    )(create)
    group.command("open", epilog="Example: overnight bundle open reset.overnight --into reset")(
        open_
    )
    cli.add_typer(
        group,
        name="bundle",
        rich_help_panel="In the morning",
        help="The evidence of an event as one file, for another machine.",
        epilog="Example: overnight bundle create --event net.driver_reset-1a2b3c4d",
    )


def create(
    context: typer.Context,
    event: Annotated[
        str, typer.Option(metavar="ID", help="Which one; overnight events lists them.")
    ],
    file: Annotated[
        pathlib.Path | None,
        typer.Option("-o", "--file", metavar="FILE", help="Write there. Default: ID.overnight."),
    ] = None,
    before: Annotated[
        str, typer.Option(metavar="DURATION", help="How much of the time before the event.")
    ] = "15m",
    after: Annotated[
        str, typer.Option(metavar="DURATION", help="How much of the time after it.")
    ] = "2m",
    all_recurrences: Annotated[
        bool,
        typer.Option(
            "--all-recurrences", help="The same of every other event of its kind (the latest 50)."
        ),
    ] = False,
    hide: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORD", help="Hide this word as well, wherever it stands; repeatable."
        ),
    ] = None,
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """Write what is known around an event into one file, without secrets.

    Signals, stacks, events, facts, snapshots. Another machine opens it and sees the same.
    """
    from overnight.app import bundles
    from overnight.model import times

    current: session.Session = context.obj
    before_s, after_s = times.parse_duration(before), times.parse_duration(after)
    told = bundles.find_event(current.home, event)
    with _progress(current) as tell:
        made = bundles.create(
            current.home,
            told,
            file or bundles.default_file(told),
            before_s=before_s,
            after_s=after_s,
            all_recurrences=all_recurrences,
            hide=tuple(word for word in hide or () if word),
            progress=tell,
        )
    if output is session.Output.JSON:
        current.print_json(made.as_json())
        return errors.ExitCode.DONE
    _show(made)
    typer.echo(session.printable(f"written: {made.file} ({made.bytes / 1e6:.1f} MB)"))
    return errors.ExitCode.DONE


def open_(
    context: typer.Context,
    file: Annotated[pathlib.Path, typer.Argument(metavar="FILE", help="The bundle.")],
    into: Annotated[
        pathlib.Path | None,
        typer.Option(metavar="DIR", help="A folder that is not there yet. Default: FILE's name."),
    ] = None,
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """Make a data home of a bundle; every command reads it with --home DIR.

    All of it is compared with its checksums first: what is damaged or hostile is refused, and leaves
    nothing behind.
    """
    from overnight.app import bundles

    current: session.Session = context.obj
    target = into or pathlib.Path(file.name.removesuffix(bundles.SUFFIX))
    if into is None and target.name == file.name:
        target = pathlib.Path(f"{file.name}.home")
    with _progress(current) as tell:
        made = bundles.open_into(file, target, tell)
    if output is session.Output.JSON:
        current.print_json(made.as_json())
        return errors.ExitCode.DONE
    _show(made)
    typer.echo(session.printable(f"opened: overnight --home {target} events {made.header.event}"))
    return errors.ExitCode.DONE


def _show(made: bundles.Made) -> None:
    from overnight.model import times

    said = made.header
    lines = [f"{said.kind} on {said.host} at {times.format_instant(said.time_us)}"]
    for one in said.windows:
        length = times.format_duration((one.end_us - one.begin_us) / 1e6)
        lines.append(f"  {one.host}: {length} from {times.format_instant(one.begin_us)}")
    others = len(said.hosts) - len({one.host for one in said.windows})
    if others > 0:
        lines.append(f"  events, facts and census of {others} more hosts")
    hidden = ", ".join(f"{count} {place}" for place, count in said.masked.items())
    lines.append(f"masked: {hidden or 'nothing looked secret'}")
    lines += [f"note: {note}" for note in said.notes]
    for line in lines:
        typer.echo(session.printable(line).replace("\n", " "))


@contextlib.contextmanager
def _progress(current: session.Session) -> Iterator[bundles.Progress]:
    """A bar on a terminal; nothing in a pipe."""
    import rich.progress

    with rich.progress.Progress(
        rich.progress.TextColumn("{task.description}"),
        rich.progress.BarColumn(),
        rich.progress.TaskProgressColumn(),
        rich.progress.TimeRemainingColumn(),
        console=current.notes(),
        transient=True,
        disable=not current.notes().is_terminal,
    ) as bar:
        task = bar.add_task("", total=1.0)

        def tell(what: str, share: float) -> None:
            bar.update(task, description=what, completed=share)

        yield tell
