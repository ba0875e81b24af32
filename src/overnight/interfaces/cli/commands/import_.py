from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

from overnight.interfaces.cli import local_time, session, terminal
from overnight.model.text import plural

if TYPE_CHECKING:
    from overnight.app import imports

ORDER = 30


def import_(
    current: session.Session,
    files: list[pathlib.Path] = session.argument(..., "Captures, logs or folders.", "FILE..."),
    host: str = session.option("", "Host of the captures.", "NAME"),
    kind: str = session.option("", "Format. Default: detected.", "NAME", "--format"),
    timezone: str = session.option("", "Time zone of times without one.", "ZONE"),
    begin: str = session.option("", "Time of the first sample of a perf.data file.", "TIME"),
    boot: str = session.option("", "Boot time, for dmesg with seconds since boot.", "TIME"),
    kallsyms: pathlib.Path | None = session.option(
        None, "Copy of the host's /proc/kallsyms, for kernel names.", "FILE"
    ),
    root: pathlib.Path = session.option(
        pathlib.Path("/"), "Folder with the host's binaries.", "DIR"
    ),
) -> None:
    """Import captures and logs: perf, dmesg, journal, mpstat, sar.

    Captures are perf.data, perf script, collapsed and pprof. Text may be compressed (.gz, .zst). Lines of a
    kernel log become events; the CPU time of cores becomes the signal cpu, and pinned cores events. Importing
    a file twice changes nothing.
    """
    from overnight.app import imports

    options = imports.Options(host, kind, timezone or None, begin or None, boot or None)
    imported: list[imports.Imported] = []
    with current.notes().status(f"importing {files[0].name} …") as status:
        for file in imports.import_files(
            current.home,
            files,
            options,
            kallsyms=kallsyms,
            root=root,
            progress=lambda path, n, of: status.update(f"importing {path.name}, {n} of {of} …"),
        ):
            imported.append(file)
            if current.output is session.Output.TEXT:
                _show(file)
    current.printed_json(imports.ImportReport(tuple(imported)))


def _show(file: imports.Imported) -> None:
    begin, end = local_time.cell(file.begin_us), local_time.cell(file.end_us)
    if file.lines:
        amount = f"{plural(file.lines, 'line')} of {file.host}, {plural(file.events, 'event')}"
    elif file.readings:
        amount = f"{plural(file.readings, 'reading')} of the cores of {file.host}, {plural(file.events, 'event')}"
    else:
        amount = f"{plural(file.samples, 'sample')} of {file.host}"
    damage = f"{file.damaged} damaged" if file.lines or file.readings else f"{file.lost} lost"
    terminal.echo(f"{file.path}: {amount}, {begin} … {end}, {damage} ({file.format})")
    if file.known:
        terminal.echo("  note: imported before; nothing changed")
    for note in file.notes:
        terminal.echo(f"  note: {note}")


register = session.command(
    import_,
    "During the night",
    "import perf.data other-host.perf.txt.gz --host db-7",
    scope=session.Scope.HOME,
)
