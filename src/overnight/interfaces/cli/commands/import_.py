from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

from overnight.interfaces.cli import local_time, session, terminal
from overnight.model.text import plural

if TYPE_CHECKING:
    from overnight.app import imports

ORDER = 30


def register(cli: session.CommandLine) -> None:
    session.add_command(
        cli,
        import_,
        "During the night",
        "import perf.data other-host.perf.txt.gz --host db-7",
        name="import",
    )


def import_(
    current: session.Session,
    files: list[pathlib.Path] = session.argument(..., "Captures, one or more.", "FILE..."),
    host: str = session.option("", "Host of the captures.", "NAME"),
    kind: str = session.option("", "Format. Default: detected.", "NAME", "--format"),
    kallsyms: pathlib.Path | None = session.option(
        None, "Copy of the host's /proc/kallsyms, for kernel names.", "FILE"
    ),
    root: pathlib.Path = session.option(
        pathlib.Path("/"), "Folder with the host's binaries.", "DIR"
    ),
) -> None:
    """Import captures: perf.data, perf script, collapsed, pprof.

    Text formats may be compressed (.gz, .zst). Importing a file twice changes nothing.
    """
    from overnight.app import imports

    imported: list[imports.Imported] = []
    with current.notes().status(f"importing {files[0].name} …") as status:
        for file in imports.import_files(
            current.home, files, host=host, kind=kind, kallsyms=kallsyms, root=root
        ):
            imported.append(file)
            if len(imported) < len(files):
                status.update(f"importing {files[len(imported)].name} …")
            if current.output is session.Output.TEXT:
                _show(file)
    current.printed_json(imports.ImportReport(tuple(imported)))


def _show(file: imports.Imported) -> None:

    begin, end = local_time.cell(file.begin_us), local_time.cell(file.end_us)
    terminal.echo(
        f"{file.path}: {plural(file.samples, 'sample')} of {file.host}, "
        f"{begin} … {end}, {file.lost} lost ({file.format})"
    )
    for note in file.notes:
        terminal.echo(f"  note: {note}")
