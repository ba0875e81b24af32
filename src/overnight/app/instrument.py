"""Use cases of `overnight instrument`: list instruments, run one and store its readings, show a window of them."""

from __future__ import annotations

import dataclasses
import pathlib
import platform
import threading
from collections.abc import Callable, Mapping, Sequence

from overnight import errors, instruments
from overnight.agent import task_config
from overnight.app import home as homes
from overnight.app import windows
from overnight.instruments import _commands, runner
from overnight.model.instrument import Reading, Recording, Row, Usage
from overnight.model.selection import Window
from overnight.queries import readings as sums
from overnight.store import readings

SCHEMA = "overnight.instrument/1"


@dataclasses.dataclass(frozen=True)
class Request:
    name: str
    target: str = ""
    seconds: float | None = 30.0  # None: until it is stopped
    home: pathlib.Path = pathlib.Path()
    host: str = ""  # '': this machine's name
    config: pathlib.Path = task_config.PATH  # lists the commands of the administrator


@dataclasses.dataclass(frozen=True)
class Result:
    """The recordings of a run or a window, and their readings summed up."""

    recordings: tuple[Recording, ...]
    rows: tuple[Row, ...]

    def as_json(self) -> dict[str, object]:
        return {
            "schema": SCHEMA,
            "recordings": [recording.as_json() for recording in self.recordings],
            "rows": [row.as_json() for row in self.rows],
        }


@dataclasses.dataclass(frozen=True)
class Listing:
    instruments: tuple[instruments.Instrument, ...]
    problem: str  # why the administrator's commands are not among them

    def as_json(self) -> dict[str, object]:
        names = ("name", "about", "tool", "target", "needs_target")
        listed = [{name: getattr(each, name) for name in names} for each in self.instruments]
        return {"schema": "overnight.instruments/1", "instruments": listed, "problem": self.problem}


sum_rows = sums.sum_rows


def list_instruments(config: pathlib.Path = task_config.PATH) -> Listing:
    try:
        known, problem = _find_all(config), ""
    except errors.OvernightError as error:
        known, problem = instruments.discover(), f"{error.what}: {error.why}"
    return Listing(tuple(known.values()), problem)


def run(
    request: Request,
    stop: threading.Event,
    on_readings: Callable[[Sequence[Reading]], None] = lambda _: None,
) -> Result:
    """Run an instrument in this thread until its time is over or `stop` is set. Raises CannotError, UsageError."""
    if request.seconds is not None and request.seconds <= 0:
        raise errors.UsageError(
            f"--for must be greater than 0 (got {request.seconds:g}s)",
            why="nothing would be read",
            todo="write it like --for 30s",
        )
    pipeline = _prepare(request)
    homes.need_writable(request.home)
    host = request.host or platform.node() or "host"
    writer = readings.ReadingWriter(request.home, host, request.name, request.target)

    def take(found: Sequence[Reading]) -> None:
        writer.add(found)
        on_readings(found)

    try:
        usage = runner.run(pipeline, request.seconds, stop, take, writer.add_usage)
        writer.add_usage(usage, ended=True)
    except errors.OvernightError:
        writer.add_usage(Usage(), ended=True)
        raise
    finally:
        writer.close()
    own = [each for each in readings.read_recordings(request.home, host) if each.id == writer.id]
    return _sum_up(request.home, own, Window(writer.began_us, 1 << 62))


def show(
    home: pathlib.Path, *, begin: str = "", end: str = "", host: str = "", name: str = ""
) -> Result:
    """Return what instruments read in a window; `name` is an instrument or a recording. Raise CannotError for none."""
    stored = [
        each
        for each in readings.read_recordings(home, host)
        if not name or name in (each.id, each.instrument)
    ]
    if not stored:
        raise errors.NotFoundError(
            f"no readings{f' of {name}' if name else ''}{f' on {host}' if host else ''}",
            why=f"no such instrument has run with the data home {home}",
            todo="`overnight instrument list` shows those that can run",
        )
    recorded = Window(min(each.began_us for each in stored), max(each.until_us for each in stored) + 1)  # fmt: skip
    return _sum_up(home, stored, windows.resolve_window(recorded, begin, end))


def _sum_up(home: pathlib.Path, stored: Sequence[Recording], window: Window) -> Result:
    begin, end = window.begin_us, window.end_us
    chosen = {each.id: each for each in stored if each.began_us <= end and each.until_us >= begin}
    found = [
        reading
        for host in sorted({each.host for each in chosen.values()})
        for recording, reading in readings.read_readings(home, host, begin, end)
        if recording.id in chosen
    ]
    return Result(tuple(chosen.values()), sums.sum_rows(found))


def _find_all(config: pathlib.Path) -> Mapping[str, instruments.Instrument]:
    known = instruments.discover()
    for name, command in task_config.read(config).instruments.items():
        known.setdefault(name, _commands.Command(name, command.argv))
    return known


def _prepare(request: Request) -> instruments.Pipeline:
    known = instruments.discover()
    if request.name not in known:
        known = dict(_find_all(request.config))
    if request.name not in known:
        raise errors.UsageError(
            f"unknown instrument {request.name!r}",
            why=f"instruments: {', '.join(known)}; commands must be listed in {request.config}",
            todo="`overnight instrument list` describes each of them",
        )
    instrument = known[request.name]
    if request.target and not instrument.target:
        raise errors.UsageError(
            f"{request.name} takes no TARGET (got {request.target!r})",
            why="it traces the whole host",
            todo=f"overnight instrument {request.name}",
        )
    if instrument.needs_target and not request.target:
        example = {"process": "kubelet", "function": "mem_cgroup_iter"}[instrument.target]
        raise errors.UsageError(
            f"{request.name} needs a {instrument.target}",
            why="it would cost too much for all of them",
            todo=f"overnight instrument {request.name} {example}",
        )
    return instrument.prepare(request.target)
