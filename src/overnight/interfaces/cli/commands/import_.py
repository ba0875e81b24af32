from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Annotated

import typer

from overnight.interfaces.cli import local_time, session, terminal
from overnight.model.text import plural

if TYPE_CHECKING:
    from overnight.app import imports

ORDER = 30


def register(cli: typer.Typer) -> None:
    session.add_command(
        cli,
        import_,
        "During the night",
        "import perf.data other-host.perf.txt.gz --host db-7",
        name="import",
    )


def import_(
    context: typer.Context,
    files: Annotated[
        list[pathlib.Path], typer.Argument(metavar="FILE...", help="Captures, one or more.")
    ],
    host: Annotated[str, typer.Option(metavar="NAME", help="Host of the captures.")] = "",
    kind: Annotated[
        str, typer.Option("--format", metavar="NAME", help="Format. Default: detected.")
    ] = "",
    kallsyms: Annotated[
        pathlib.Path | None,
        typer.Option(metavar="FILE", help="Copy of the host's /proc/kallsyms, for kernel names."),
    ] = None,
    root: Annotated[
        pathlib.Path, typer.Option(metavar="DIR", help="Folder with the host's binaries.")
    ] = pathlib.Path("/"),
    output: session.OutputOption = session.Output.TEXT,
) -> None:
    """Import captures: perf.data, perf script, collapsed, pprof.

    Text formats may be compressed (.gz, .zst). Importing a file twice changes nothing.
    """
    from overnight.app import imports

    current: session.Session = context.obj
    imported: list[imports.Imported] = []
    with current.notes().status(f"importing {files[0].name} …") as status:
        for file in imports.import_files(
            current.home, files, host=host, kind=kind, kallsyms=kallsyms, root=root
        ):
            imported.append(file)
            if len(imported) < len(files):
                status.update(f"importing {files[len(imported)].name} …")
            if output is session.Output.TEXT:
                _show(file)
    if output is session.Output.JSON:
        current.print_json(imports.ImportReport(tuple(imported)).as_json())


def _show(file: imports.Imported) -> None:

    begin, end = local_time.cell(file.begin_us), local_time.cell(file.end_us)
    terminal.echo(
        f"{file.path}: {plural(file.samples, 'sample')} of {file.host}, "
        f"{begin} … {end}, {file.lost} lost ({file.format})"
    )
    for note in file.notes:
        terminal.echo(f"  note: {note}")
