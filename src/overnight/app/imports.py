"""`overnight import`: captures of other tools and other hosts, into the store."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from overnight import app, errors
from overnight.app import home as homes
from overnight.app import reader_process
from overnight.ingest import formats
from overnight.store import capture, writer

if TYPE_CHECKING:
    from overnight.ingest import perfdata

PERFDATA = "perf.data"
CHECK_PATH = "check the path and its permissions"


@dataclasses.dataclass(frozen=True)
class Imported:
    path: str
    format: str
    host: str
    samples: int
    lost: int
    begin_us: int
    end_us: int
    segments: int
    notes: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class ImportReport:
    files: tuple[Imported, ...]

    def as_json(self) -> dict[str, object]:
        files = [dataclasses.asdict(file) for file in self.files]
        return {"schema": "overnight.import/1", "files": files}


def import_files(
    home: pathlib.Path,
    paths: Iterable[pathlib.Path],
    *,
    host: str = "",
    kind: str = "",
    kallsyms: pathlib.Path | None = None,
    root: pathlib.Path = pathlib.Path("/"),
) -> Iterator[Imported]:
    """Import files one by one, in a child process with limits; importing a file again changes nothing.

    For a capture of another host, `kallsyms` is a copy of its /proc/kallsyms and `root` a folder with
    its binaries.
    """
    if kind and kind not in format_names():
        raise errors.UsageError(
            f"no format {kind!r}",
            why="overnight reads " + ", ".join(format_names()),
            todo="leave --format out to detect the format",
        )
    homes.need_private(home)
    symbols: perfdata.Symbols | None = None

    def import_file(path: pathlib.Path) -> dict[str, Any]:
        nonlocal symbols
        form = kind or _recognise(path)
        try:
            if form == PERFDATA:
                from overnight.ingest import perfdata  # a fifth of the start-up time

                symbols = symbols or _symbols(kallsyms, root)
                samples = perfdata.read(path, symbols, host=host)
            else:
                samples = _readers()[form].read(path, host)
        except OSError as error:
            raise errors.unreadable(path, error, CHECK_PATH) from error
        return dataclasses.asdict(_store(home, path, form, samples))

    for fields in reader_process.read(list(paths), import_file):
        yield Imported(**{**fields, "notes": tuple(fields["notes"])})


def _symbols(kallsyms: pathlib.Path | None, root: pathlib.Path) -> perfdata.Symbols:
    from overnight.ingest import identities, perfdata

    if kallsyms is None and root == pathlib.Path("/"):
        return perfdata.live_symbols(registry=identities.Registry())
    try:
        text = kallsyms.read_bytes() if kallsyms else None
    except OSError as error:
        raise errors.unreadable(kallsyms, error, CHECK_PATH) from error
    return perfdata.foreign_symbols(text, root)


def _readers() -> dict[str, formats.Reader]:
    return {module.NAME: module for module in app.discover(formats)}


def format_names() -> tuple[str, ...]:
    return (PERFDATA, *_readers())


def _recognise(path: pathlib.Path) -> str:
    try:
        head = formats.read_head(path)
    except OSError as error:
        raise errors.unreadable(path, error, CHECK_PATH) from error
    if head.startswith(b"PERFILE2"):
        return PERFDATA
    for name, module in _readers().items():
        if module.sniff(head):
            return name
    raise errors.CannotError(
        f"{path} has an unknown format",
        why=f"it begins with {head[:16]!r}",
        todo=f"name the format: --format {'|'.join(format_names())}",
    )


def _store(home: pathlib.Path, path: pathlib.Path, kind: str, samples: capture.Capture) -> Imported:
    try:
        written = writer.write_capture(home, samples, source=path.name)
    except OSError as error:
        raise errors.CannotError(
            f"cannot store {path} in {home}",
            why=error.strerror or str(error),
            todo="free disk space, or choose another disk: overnight --home DIR import FILE",
        ) from error
    return Imported(
        path=str(path),
        format=kind,
        host=samples.host,
        samples=int(samples.count.sum()),
        lost=samples.lost,
        begin_us=samples.begin // 1000,
        end_us=samples.end // 1000,
        segments=len(written),
        notes=samples.notes,
    )
