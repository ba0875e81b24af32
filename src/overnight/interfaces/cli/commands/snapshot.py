"""`overnight snapshot`."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Annotated

import typer

from overnight import errors
from overnight.interfaces.cli import session

if TYPE_CHECKING:
    from overnight.model.snapshot import Snapshot

__all__ = ["ORDER", "register"]

ORDER = 16


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command(
        rich_help_panel="Before the night",
        epilog="Example: overnight snapshot --diff healthy.json sick.json",
    )(snapshot)


def snapshot(
    context: typer.Context,
    file: Annotated[
        pathlib.Path | None,
        typer.Option(
            "-o", "--file", metavar="FILE", help="Write there. Default: in the data home."
        ),
    ] = None,
    root: Annotated[
        pathlib.Path, typer.Option(metavar="DIR", help="An unpacked image instead of this host.")
    ] = pathlib.Path("/"),
    diff: Annotated[
        tuple[pathlib.Path, pathlib.Path] | None,
        typer.Option(metavar="A B", help="Show what differs between two snapshots instead."),
    ] = None,
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """Write down what this host is made of, to see later what drifted.

    Units, packages, modules, settings, versions; never a secret, an environment or a command line
    of a process.
    """
    from overnight.app import snapshot as taking

    current: session.Session = context.obj
    if diff is not None:
        return _diff(current, *diff, output)
    taken = taking.take(root)
    place = file or taking.default_file(current.home, taken)
    taking.save(taken, place)
    typer.echo(f"written: {place} ({place.stat().st_size / 1e3:.0f} kB)", err=True)
    if output is session.Output.JSON:
        current.print_json(taken.as_json())
    else:
        _show(taken)
    return errors.ExitCode.DONE


def _show(taken: Snapshot) -> None:
    typer.echo(f"{taken.header['host']} at {taken.header['taken_at']}")
    for name, part in taken.parts.items():
        typer.echo(f"  {name:10} {len(part):6}")
    for gap in taken.gaps[:20]:
        typer.echo(
            f"not read: {gap.part}: {session.printable(gap.what)}: {session.printable(gap.why)}"
        )
    if len(taken.gaps) > 20:
        typer.echo(f"not read: {len(taken.gaps) - 20} more, listed in the file")


def _diff(
    current: session.Session, before: pathlib.Path, after: pathlib.Path, output: session.Output
) -> int:
    from overnight.app import snapshot as taking
    from overnight.model.snapshot import compare

    found = compare(taking.load(before), taking.load(after))
    if output is session.Output.JSON:
        current.print_json(found.as_json())
        return errors.ExitCode.DONE
    for one in found.changes:
        name = f"{one.part}: {one.key}" + (f" {one.property}" if one.property else "")
        sides = ("-" if side is None else side for side in (one.before, one.after))
        typer.echo(session.printable(f"{name}: {' -> '.join(sides)}"))
    for part in found.unknown:
        typer.echo(f"{session.printable(part)}: one of the two could not read all of it")
    typer.echo(f"{len(found.changes)} differences" if found.changes else "nothing differs")
    return errors.ExitCode.DONE
