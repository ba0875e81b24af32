"""Stored readings of instruments: HOME/instruments/HOST/BEGAN-ID.jsonl, append-only.

The first line describes the recording; then comes a line for each second or event with its readings, and every ten
seconds what the instrument cost so far::

    {"format": "overnight.instrument", "version": 1, "id": "1a2b3c4d", "host": "db-7", "instrument": "cgroup-churn", …}
    {"us": 1794700000000000, "readings": [{"kind": "run-queue", "core": 3, "values": {"max_us": 812000.0}}]}
    {"usage": {"cpu_seconds": 0.2, "kernel_seconds": 0.06, "lost": 0, "dropped": 0}, "us": …, "ended": false}

A recording of a night has several files, each with the description; when a host's readings exceed their budget, the
oldest file is deleted. One that was killed is read up to its last whole line.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
import os
import pathlib
import re
import secrets
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from overnight import errors
from overnight.model import files, times
from overnight.model.instrument import Reading, Recording, Usage
from overnight.store import run_files
from overnight.store.ring import journal

FORMAT, VERSION = "overnight.instrument", 1
PART = "instruments"
TIME = re.compile(rb'\{"us":(\d{1,18}),')  # how a line of readings begins
FILE_BYTES, MAX_BYTES = 16 << 20, 256 << 20
# With the longest texts, all of them escaped, a line is below the 64 kB that readers accept.
LINE_READINGS = 4
MAX_TEXT = {"subject": 200, "text": 2000}
DEFAULTS = {field.name: field.default for field in dataclasses.fields(Reading)}


class ReadingWriter:
    """Writes the files of one recording."""

    def __init__(
        self, home: pathlib.Path, host: str, instrument: str, target: str, began_us: int = 0
    ) -> None:
        self.id = secrets.token_hex(4)
        self.began_us = began_us or times.now_us()
        self._folder = run_files.find_folder(home, PART, host)
        run = {"id": self.id, "host": host, "instrument": instrument, "target": target}
        self._head = {"format": FORMAT, "version": VERSION, **run, "began_us": self.began_us}
        self._file = self._open(self.began_us)

    @property
    def path(self) -> pathlib.Path:
        return self._file.path

    def _open(self, now_us: int) -> run_files.RunFile:
        room = MAX_BYTES - FILE_BYTES
        return run_files.RunFile(self._folder, now_us, self.id, self._head, room)

    def add(self, readings: Sequence[Reading]) -> None:
        for time_us, same in itertools.groupby(readings, key=lambda reading: reading.time_us):
            rows = map(_as_json, same)
            while some := list(itertools.islice(rows, LINE_READINGS)):
                self._file.append({"us": time_us, "readings": some})
        if self._file.size > FILE_BYTES:
            self._file.close()
            self._file = self._open(max(times.now_us(), run_files.began(self.path) + 1))

    def add_usage(self, usage: Usage, *, ended: bool = False) -> None:
        now = times.now_us()
        self._file.append(
            {"usage": dataclasses.asdict(usage), "us": now, "ended": ended}, sync=True
        )

    def close(self) -> None:
        self._file.close()


def read_recordings(
    home: pathlib.Path, host: str = "", begin_us: int = 0, end_us: int = 1 << 62
) -> tuple[Recording, ...]:
    """Return the recordings of a time range, the oldest first; unreadable files are skipped."""
    by_id: dict[str, Recording] = {}
    for path in sorted(run_files.list_files(home, PART, host, end_us), key=run_files.began):
        found = _read_ends(path)
        if found is not None and (not host or found.host == host):
            before = by_id.get(found.id)
            # A later file may have been cut off before its first line about the cost.
            usage = found.usage if found.usage != Usage() or before is None else before.usage
            by_id[found.id] = dataclasses.replace(found, usage=usage)
    chosen = [recording for recording in by_id.values() if recording.until_us >= begin_us]
    return tuple(sorted(chosen, key=lambda recording: (recording.began_us, recording.id)))


def read_readings(
    home: pathlib.Path, host: str, begin_us: int, end_us: int, kinds: Collection[str] = ()
) -> Iterator[tuple[Recording, Reading]]:
    """Yield the readings of a time range, each with its recording, file by file; of all kinds, or of these."""
    # Before a line is parsed: a large host has a thousand readings of other kinds each second.
    marks = [f'"kind":"{kind}"'.encode() for kind in kinds]
    for path, recording in _find_files(home, host, begin_us, end_us):
        for line in _select_lines(path, begin_us, end_us):
            if TIME.match(line) and (not marks or any(mark in line for mark in marks)):
                for reading in _parse_line(line):
                    if not kinds or reading.kind in kinds:
                        yield recording, reading


def copy_readings(
    home: pathlib.Path,
    target: pathlib.Path,
    host: str,
    begin_us: int,
    end_us: int,
    clean: Callable[[str], str] = lambda text: text,
) -> int:
    """Copy the readings of a time range to another data home, with cleaned texts; return how many files."""
    found = list(_find_files(home, host, begin_us, end_us))
    for path, _ in found:
        new = run_files.find_folder(target, PART, host) / path.name
        files.make_folder(new.parent, durable=False)
        with os.fdopen(files.open_private(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as out:
            for entry in filter(
                None, map(journal.parse_line, _select_lines(path, begin_us, end_us))
            ):
                for row in (entry, *entry.get("readings", ())):
                    for key in {"target", "subject", "text"} & row.keys():
                        row[key] = clean(str(row[key]))
                out.write(json.dumps(entry, separators=(",", ":")).encode() + b"\n")
    return len(found)


def _find_files(
    home: pathlib.Path, host: str, begin_us: int, end_us: int
) -> Iterator[tuple[pathlib.Path, Recording]]:
    for path in run_files.list_files(home, PART, host, end_us):
        recording = _read_ends(path)
        if recording is not None and recording.host == host and recording.until_us >= begin_us:
            yield path, recording


def _select_lines(path: pathlib.Path, begin_us: int, end_us: int) -> Iterator[bytes]:
    """Yield all lines but those of readings at other times."""
    try:
        file = path.open("rb")
    except OSError as error:
        errors.raise_own(error)
        return
    with file:
        while line := file.readline(journal.MAX_LINE):
            begins = TIME.match(line)
            if not begins or begin_us <= int(begins[1]) < end_us:
                yield line


def _as_json(reading: Reading) -> dict[str, object]:
    """Return the fields that are set; the time is the line's."""
    row: dict[str, object] = {"kind": str(reading.kind)}
    for name in ("core", "pid", "subject", "text"):
        value = getattr(reading, name)
        if value != DEFAULTS[name]:
            row[name] = value[: MAX_TEXT[name]] if isinstance(value, str) else value
    if reading.values:
        row["values"] = {name: round(value, 1) for name, value in reading.values.items()}
    return row


def _parse_line(line: bytes) -> Iterator[Reading]:
    entry = journal.parse_line(line) or {}
    rows = entry.get("readings")
    for row in rows if isinstance(rows, list) else ():
        with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError, OverflowError):
            yield Reading(
                int(entry["us"]),
                str(row["kind"]),
                int(row.get("core", -1)),
                int(row.get("pid", 0)),
                str(row.get("subject", "")),
                str(row.get("text", "")),
                {
                    str(name): float(value)
                    for name, value in row.get("values", {}).items()
                    if math.isfinite(value)
                },
            )


def _read_ends(path: pathlib.Path) -> Recording | None:
    head, *lines = run_files.read_ends(path, FORMAT, VERSION) or [{}]
    try:
        spent: dict[str, Any] = {}
        until, ended = run_files.began(path), False
        for line in lines:
            until = max(until, int(line.get("us", 0)))
            if isinstance(line.get("usage"), dict):
                spent, ended = line["usage"], bool(line.get("ended"))
        kernel = spent.get("kernel_seconds")
        return Recording(
            id=str(head["id"]),
            host=str(head["host"]),
            instrument=str(head["instrument"]),
            target=str(head["target"]),
            began_us=int(head["began_us"]),
            until_us=until,
            ended=ended,
            running=not ended and run_files.is_running(head),
            usage=Usage(
                float(spent.get("cpu_seconds", 0.0)),
                None if kernel is None else float(kernel),
                int(spent.get("lost", 0)),
                int(spent.get("dropped", 0)),
            ),
        )
    except (KeyError, OverflowError, TypeError, ValueError):
        return None
