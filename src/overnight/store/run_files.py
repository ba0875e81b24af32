"""Files of runs on a host: HOME/PART/HOST/BEGAN-ID.jsonl, append-only.

The first line describes the run and its process. A run that was killed is read up to its last whole line.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from overnight import errors
from overnight.model import files, process_identity
from overnight.store import host_names
from overnight.store.ring import journal

NAME = re.compile(r"(\d{1,18})-([0-9a-f]{8})\.jsonl", re.ASCII)
TAIL = 1 << 17  # what readers look for near the end is never further from it


class RunFile:
    """A new file of a run, in a folder that may take `room` bytes: the oldest files go first."""

    def __init__(
        self, folder: pathlib.Path, began_us: int, run: str, head: Mapping[str, object], room: int
    ) -> None:
        files.make_folder(folder)
        used = 0
        for path in sorted(filter(_is_run, folder.iterdir()), reverse=True):
            used += path.stat().st_size
            if used > room:
                path.unlink(missing_ok=True)
        self.path = folder / f"{began_us}-{run}.jsonl"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        self._file = files.open_private(self.path, flags)
        self.size = 0
        process = {"pid": os.getpid(), **process_identity.read_identity(os.getpid())}
        self.append({**head, **process}, sync=True)
        files.sync(folder)

    def append(self, entry: Mapping[str, object], *, sync: bool = False) -> None:
        # One write per line: readers see whole lines, and a kill truncates at most the last one.
        with files.named(self.path):
            self.size += os.write(
                self._file, json.dumps(entry, separators=(",", ":")).encode() + b"\n"
            )
        if sync:
            os.fsync(self._file)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def find_folder(home: pathlib.Path, part: str, host: str) -> pathlib.Path:
    return home / part / host_names.folder_name(host)


def list_files(home: pathlib.Path, part: str, host: str, end_us: int) -> Iterator[pathlib.Path]:
    """Yield the files of a host, or of all, that began until an instant, by name."""
    top = home / part
    folders = [find_folder(home, part, host)] if host else sorted(top.iterdir()) if top.is_dir() else []  # fmt: skip
    for folder in folders:
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if _is_run(path) and began(path) <= end_us:
                yield path


def began(path: pathlib.Path) -> int:
    """Return when a file began, in microseconds."""
    return int(path.name.partition("-")[0])


def read_ends(path: pathlib.Path, form: str, version: int) -> list[dict[str, Any]]:
    """Read the first line and those near the end, not the night between them; [] for another format or version."""
    try:
        with path.open("rb") as file:
            head = journal.parse_line(file.readline(TAIL)) or {}
            begin = file.tell()
            size = file.seek(0, os.SEEK_END)
            file.seek(max(begin, size - TAIL))
            lines = [journal.parse_line(line) or {} for line in file.read(TAIL).split(b"\n")]
    except OSError as error:
        errors.raise_own(error)
        return []
    known = head.get("format") == form and head.get("version") == version
    return [head, *lines] if known else []


def is_running(head: Mapping[str, Any]) -> bool:
    pid = head["pid"]
    return isinstance(pid, int) and process_identity.is_running(pid, head["started"], head["boot"])


def _is_run(path: pathlib.Path) -> bool:
    return NAME.fullmatch(path.name) is not None
