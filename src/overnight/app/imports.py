"""`overnight import`: captures of other tools and other hosts, into the store."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import datetime
import functools
import itertools
import pathlib
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from overnight import app, errors
from overnight.app import home as homes
from overnight.app import imported_logs, reader_process
from overnight.app import rules as kernel_rules
from overnight.ingest import formats, logs
from overnight.ingest.logs import dmesg, sadf, sysstat
from overnight.model import times
from overnight.model.finding import Need
from overnight.store import capture, writer

if TYPE_CHECKING:
    from overnight.ingest import perfdata

PERFDATA = "perf.data"
MAX_FILES = 10_000
UNKNOWN = "unknown"
CHECK_PATH = "check the path and its permissions"
Imported = imported_logs.Imported


@dataclasses.dataclass(frozen=True)
class Options:
    """What the files do not show; times and the zone are as users write them."""

    host: str = ""
    kind: str = ""  # the format
    timezone: str | None = None  # of times without one
    begin: str | None = None  # of a perf.data file
    boot: str | None = None  # of a host whose dmesg has seconds since boot


DEFAULTS = Options()


@dataclasses.dataclass(frozen=True)
class ImportReport:
    files: tuple[Imported, ...]

    def as_json(self) -> dict[str, object]:
        files = [dataclasses.asdict(file) for file in self.files]
        return {"schema": "overnight.import/1", "files": files}


def import_files(
    home: pathlib.Path,
    paths: Iterable[pathlib.Path],
    options: Options = DEFAULTS,
    *,
    kallsyms: pathlib.Path | None = None,
    root: pathlib.Path = pathlib.Path("/"),
    progress: Callable[[pathlib.Path, int, int], None] = lambda *_: None,
) -> Iterator[Imported]:
    """Import files, and those of folders that have a known format; importing a file again changes nothing.

    All of them are read once before the first is stored: where one is refused, nothing is imported. A child process
    with limits reads them. Those of dmesg come last: other files may name the host, and show the time of the boot. For a capture of another host, `kallsyms` is a copy of its /proc/kallsyms and
    `root` a folder with its binaries. `progress` gets the next file, its number and the number of files.
    """
    if options.kind and options.kind not in format_names():
        raise errors.UsageError(
            f"no format {options.kind!r}",
            why="overnight reads " + ", ".join(format_names()),
            todo="leave --format out to detect the format",
        )
    boot_us = None if options.boot is None else _parse_time(options.boot, options.timezone)
    begin_us = None if options.begin is None else _parse_time(options.begin, options.timezone)
    homes.need_private(home)
    found = sorted(_find_files(tuple(paths), options.kind), key=lambda file: file.rank)
    captures = sum(file.form == PERFDATA for file in found)
    if begin_us is not None and captures != 1:
        raise errors.UsageError(
            f"--begin needs one perf.data file (got {captures})",
            why="it is the time of the first sample of one capture",
            todo="import the captures one by one",
        )
    context = imported_logs.Context(options.host or None, boot_us)
    forms = {file.path: file.form for file in found}
    symbols: perfdata.Symbols | None = None

    def import_file(into: pathlib.Path, path: pathlib.Path) -> dict[str, Any]:
        nonlocal symbols
        form = forms[path]
        try:
            if form == UNKNOWN:
                form = options.kind or _recognise(path, formats.read_head(path))
            if form in _log_readers():
                file, reader = logs.LogFile(path, options.timezone), _log_readers()[form]
                rules = kernel_rules.list_rules(home).rules
                stored = imported_logs.store_file(into, reader, file, context, rules)
                return dataclasses.asdict(stored)
            if form == PERFDATA:
                from overnight.ingest import perfdata  # a fifth of the start-up time

                symbols = symbols or _symbols(kallsyms, root)
                samples = perfdata.read(
                    path, symbols, host=options.host, wall=_find_wall(path, begin_us, options)
                )
            else:
                samples = _readers()[form].read(path, options.host)
        except OSError as error:
            if errors.is_own(error):
                raise _make_store_error(into, path, error) from error
            raise errors.unreadable(path, error, CHECK_PATH) from error
        context.hosts.add(samples.host)
        return dataclasses.asdict(_store(home, path, form, samples)) if into == home else {}

    ordered = [file.path for file in found]
    if ordered:
        progress(ordered[0], 1, len(ordered))
    if len(ordered) > 1:
        with tempfile.TemporaryDirectory(prefix="overnight-import-") as scratch:
            check = functools.partial(import_file, pathlib.Path(scratch))
            collections.deque(reader_process.read(ordered, check), maxlen=0)
    store = functools.partial(import_file, home)
    for done, fields in enumerate(reader_process.read(ordered, store), 1):
        yield Imported(**{**fields, "notes": tuple(fields["notes"])})
        if done < len(ordered):
            progress(ordered[done], done + 1, len(ordered))


@dataclasses.dataclass(frozen=True)
class _Found:
    path: pathlib.Path
    form: str
    rank: tuple[bool, bool, float]


def _rank(path: pathlib.Path, form: str, head: bytes) -> tuple[bool, bool, float]:
    """Return the order of reading.

    dmesg is last: it does not name its host, and the time of the boot is in other files. Of files with CPU time
    the one with the shortest intervals is first: the same seconds are stored once.
    """
    seconds = 0.0
    if form in (sadf.NAME, sysstat.NAME):
        with contextlib.suppress(errors.OvernightError):
            first = next(_log_readers()[form].read(logs.LogFile(path, "UTC")), None)
            seconds = (
                (first.end_us - first.begin_us) / 1e6 if isinstance(first, logs.Reading) else 0.0
            )
    return form == dmesg.NAME, dmesg.needs_boot(head), seconds


def _find_files(paths: tuple[pathlib.Path, ...], kind: str) -> Iterator[_Found]:
    """Find the files to import; in folders those of a known format."""
    listed: list[tuple[pathlib.Path, bool]] = []  # whether it is from a folder
    for path in paths:
        if path.is_dir():
            inside = ((file, True) for file in sorted(path.rglob("*")) if file.is_file())
            listed += itertools.islice(inside, MAX_FILES)
        else:
            listed.append((path, False))
    if len(listed) >= MAX_FILES:
        raise errors.UsageError(
            f"{MAX_FILES} files or more",
            why="one import reads fewer",
            todo="import the folders one by one",
        )

    def recognise(path: pathlib.Path) -> tuple[str, tuple[bool, bool, float]]:
        try:
            head = formats.read_head(path)
            form = kind or _recognise(path, head)
            return form, _rank(path, form, head)
        except (OSError, errors.OvernightError):
            return UNKNOWN, (False, False, 0.0)

    found = reader_process.read([path for path, _ in listed], recognise)
    files = [(_Found(path, *file), inside) for (path, inside), file in zip(listed, found, strict=True)]  # fmt: skip
    known = [file for file, is_inside in files if file.form != UNKNOWN or not is_inside]
    if not known:
        raise errors.CannotError(
            f"no file in {paths[0]} has a known format",
            why=f"{len(listed)} files were tried",
            todo="`overnight import FILE` shows why a file is not recognised",
        )
    yield from known


def _parse_time(text: str, zone: str | None) -> int:
    """Parse a time as operators write it; one without a zone is in `--timezone`."""
    now_us = times.now_us()
    if zone is not None:
        with contextlib.suppress(ValueError):
            when = datetime.datetime.fromisoformat(text.strip())
            if when.tzinfo is None:
                return logs.parse_local(when, zone)
    return times.parse_instant(text, now_us=now_us, origin_us=now_us)


def _find_wall(path: pathlib.Path, begin_us: int | None, options: Options) -> perfdata.Wall | None:
    from overnight.ingest import perfdata

    if begin_us is not None:
        return perfdata.Wall(begin_us * 1000, is_given=True)
    return perfdata.parse_name(path.name, options.timezone)


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


def _log_readers() -> dict[str, logs.Reader]:
    return {module.NAME: module for module in app.discover(logs)}


def format_names() -> tuple[str, ...]:
    return (PERFDATA, *_readers(), *_log_readers())


def _recognise(path: pathlib.Path, head: bytes) -> str:
    if head.startswith(b"PERFILE2"):
        return PERFDATA
    modules: tuple[formats.Reader | logs.Reader, ...] = (*_log_readers().values(), *_readers().values())  # fmt: skip
    for module in modules:
        if module.sniff(head):
            return module.NAME
    raise errors.CannotError(
        f"{path} has an unknown format",
        why=f"it begins with {head[:16]!r}",
        todo=f"name the format: --format {'|'.join(format_names())}",
    )


def _make_store_error(home: pathlib.Path, path: pathlib.Path, error: OSError) -> errors.CannotError:
    error.filename = error.filename or str(home)
    return errors.CannotError(
        f"cannot store {path} in {home}",
        why=errors.reason(error),
        todo="free disk space, or choose another disk: `overnight --home DIR import FILE`",
    )


def _store(home: pathlib.Path, path: pathlib.Path, kind: str, samples: capture.Capture) -> Imported:
    begin_us, end_us = samples.begin // 1000, samples.end // 1000
    try:
        written = writer.write_capture(home, samples, source=path.name)
        is_new = imported_logs.register(home, path, Need.PROFILES, samples.host, begin_us, end_us)
    except OSError as error:
        raise _make_store_error(home, path, error) from error
    return Imported(
        path=str(path),
        format=kind,
        host=samples.host,
        samples=int(samples.count.sum()),
        lost=samples.lost,
        begin_us=begin_us,
        end_us=end_us,
        segments=len(written),
        notes=samples.notes,
        known=not is_new,
    )
