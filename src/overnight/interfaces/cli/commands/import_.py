"""`overnight import`."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Annotated

import typer

from overnight import errors
from overnight.interfaces.cli import session

__all__ = ["ORDER", "register"]

ORDER = 30


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command(
        "import",
        rich_help_panel="During the night",
        epilog="Example: overnight import perf.data other-host.perf.txt.gz --host db-7",
    )(import_)


def import_(
    context: typer.Context,
    files: Annotated[list[pathlib.Path], typer.Argument(metavar="FILE…", help="Captures.")],
    host: Annotated[str, typer.Option(metavar="NAME", help="The host they are of.")] = "",
    kind: Annotated[
        str, typer.Option("--format", metavar="NAME", help="Do not guess the format.")
    ] = "",
    kallsyms: Annotated[
        pathlib.Path | None,
        typer.Option(
            metavar="FILE", help="A copy of that host's /proc/kallsyms, for kernel names."
        ),
    ] = None,
    root: Annotated[
        pathlib.Path, typer.Option(metavar="DIR", help="A folder with that host's binaries.")
    ] = pathlib.Path("/"),
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """Bring captures into the store: perf.data, perf script text (.gz, .zst), collapsed, pprof.

    Importing a file again changes nothing.
    """
    from overnight.app import imports
    from overnight.model import times

    current: session.Session = context.obj
    if kind and kind not in imports.format_names():
        raise errors.UsageError(
            f"no format {kind!r}",
            why="overnight reads " + ", ".join(imports.format_names()),
            todo="leave --format out to have it recognised",
        )
    done = []
    with current.notes().status(f"importing {files[0].name} …") as status:
        for made in imports.import_files(
            current.home, files, host=host, kind=kind, kallsyms=kallsyms, root=root
        ):
            done.append(made)
            if len(done) < len(files):
                status.update(f"importing {files[len(done)].name} …")
            if output is session.Output.TEXT:
                where = (
                    f"{times.format_instant(made.begin_us)} … {times.format_instant(made.end_us)}"
                )
                typer.echo(
                    f"{session.printable(made.path)}: {made.samples} samples of {session.printable(made.host)}, "
                    f"{where}, {made.lost} lost ({made.format})"
                )
                for note in made.notes:
                    typer.echo(f"  note: {session.printable(note)}")
    if output is session.Output.JSON:
        current.print_json(
            {"schema": "overnight.import/1", "files": [dataclasses.asdict(made) for made in done]}
        )
    return errors.ExitCode.DONE
