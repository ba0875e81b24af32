"""Stored loads, second by second: HOME/loads/HOST/BEGAN-ID.jsonl, append-only.

The first line describes the load; then comes a line per second, and every ten seconds the verdict so far with the
processes of the load. A load that was killed is read up to its last whole line, and has no final verdict.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import platform
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from overnight.model import files, process_identity, times
from overnight.model.load import VICTIM, Load, Worker
from overnight.store import run_files
from overnight.store.ring import journal

FORMAT, VERSION = "overnight.load", 1
PART = "loads"
SYNC_LINES = 10
# Of all loads of a host: 30 nights; the oldest are deleted when a new one starts.
MAX_BYTES = 256 << 20
MAX_WORKERS = 2000  # of one load


class LoadWriter:
    """Writes the file of a running load."""

    def __init__(
        self,
        home: pathlib.Path,
        host: str,
        workload: str,
        cores: tuple[int, ...],
        began_us: int,
        options: Mapping[str, object],
        pids: Iterable[int] = (),
    ) -> None:
        self.id = secrets.token_hex(4)
        head = {"format": FORMAT, "version": VERSION, "id": self.id, "host": host}
        run = {"workload": workload, "cores": list(cores), "began_us": began_us}
        folder = run_files.find_folder(home, PART, host)
        self._workers: dict[int, int] = {}
        self.add_workers(pids)
        whole = {**head, **run, "options": dict(options), "pids": [*self._workers.items()]}
        self._file = run_files.RunFile(folder, began_us, self.id, whole, MAX_BYTES)
        self.path = self._file.path
        self._lines = 0

    def second(self, line: Mapping[str, object]) -> None:
        """Append one second; `us` is its end."""
        self._append({"second": dict(line)})

    def verdict(self, us: int, verdict: Mapping[str, object], *, ended: bool = False) -> None:
        """Append the verdict so far, or with `ended` the final one."""
        workers = [*self._workers.items()]
        self._append({"verdict": dict(verdict), "us": us, "ended": ended, "pids": workers}, sync=ended)  # fmt: skip

    def add_workers(self, pids: Iterable[int]) -> None:
        """Note running processes of the load; the next verdict has them."""
        for pid in pids:
            if pid not in self._workers and len(self._workers) < MAX_WORKERS:
                self._workers[pid] = process_identity.read_started_us(pid)

    def close(self) -> None:
        self._file.close()

    def _append(self, entry: Mapping[str, object], *, sync: bool = False) -> None:
        self._lines += 1
        # Not every second: a file system commit each second would be a load of its own.
        self._file.append(entry, sync=sync or self._lines % SYNC_LINES == 0)


def read_loads(
    home: pathlib.Path, host: str = "", begin_us: int = 0, end_us: int = 1 << 62
) -> tuple[Load, ...]:
    """Return loads that ran in a time range, the oldest first; unreadable files are skipped."""
    loads = []
    for path in run_files.list_files(home, PART, host, end_us):
        load = _read(path)
        if load is not None and (load.running or load.until_us >= begin_us) and host in ("", load.host):  # fmt: skip
            loads.append(load)
    return tuple(sorted(loads, key=lambda load: (load.began_us, load.id)))


def read_seconds(home: pathlib.Path, load: Load) -> Iterator[dict[str, Any]]:
    for _, line in journal.read_lines(_path(home, load)):
        if line is not None and isinstance(line.get("second"), dict):
            yield line["second"]


@contextlib.contextmanager
def note_victim(home: pathlib.Path, core: int, pids: Iterable[int]) -> Iterator[None]:
    """Store which processes of this host a rehearsal starves while the block runs."""
    file = LoadWriter(home, platform.node() or "host", VICTIM, (core,), times.now_us(), {}, pids)
    try:
        yield
    finally:
        file.verdict(times.now_us(), {}, ended=True)
        file.close()


def copy_loads(
    home: pathlib.Path,
    target: pathlib.Path,
    host: str,
    begin_us: int,
    end_us: int,
    clean: Callable[[str], str] = lambda text: text,
) -> int:
    """Copy the loads of a time range to another data home, with cleaned texts; return how many."""
    loads = read_loads(home, host, begin_us, end_us)
    for load in loads:
        path = _path(target, load)
        files.make_folder(path.parent, durable=False)
        with os.fdopen(files.open_private(path, os.O_WRONLY | os.O_CREAT), "wb") as out:
            for _, line in journal.read_lines(_path(home, load)):
                if line is not None:
                    for key in {"options", "verdict"} & line.keys():
                        line[key] = _cleaned(line[key], clean)
                    out.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
    return len(loads)


def _cleaned(value: object, clean: Callable[[str], str]) -> object:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_cleaned(item, clean) for item in value]
    if isinstance(value, dict):
        return {key: _cleaned(item, clean) for key, item in value.items()}
    return value


def _path(home: pathlib.Path, load: Load) -> pathlib.Path:
    return run_files.find_folder(home, PART, load.host) / f"{load.began_us}-{load.id}.jsonl"


def _read(path: pathlib.Path) -> Load | None:
    head, *lines = run_files.read_ends(path, FORMAT, VERSION) or [{}]
    last: dict[str, Any] = {}
    try:
        began = until = int(head["began_us"])
        for line in lines:
            second = line.get("second")
            if isinstance(second, dict):
                until = int(second["us"])
            elif isinstance(line.get("verdict"), dict):
                last, until = line, max(until, int(line["us"]))
        verdict = last.get("verdict", {})
        return Load(
            id=str(head["id"]),
            host=str(head["host"]),
            workload=str(head["workload"]),
            cores=tuple(int(core) for core in head["cores"]),
            began_us=began,
            until_us=until,
            ended=bool(last.get("ended")),
            running=not last.get("ended") and run_files.is_running(head),
            status=str(verdict.get("status", "")),
            says=str(verdict.get("says", "")),
            crossed=tuple(map(str, verdict.get("crossed", ()))),
            workers=tuple(Worker(int(pid), int(us)) for pid, us in {**head, **last}.get("pids", ())),
        )  # fmt: skip
    except (KeyError, OverflowError, TypeError, ValueError):
        return None
