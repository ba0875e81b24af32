"""Append-only files of JSON lines: events and gaps."""

from __future__ import annotations

import contextlib
import json
import pathlib
from collections.abc import Iterator
from typing import Any

from overnight import errors
from overnight.model import files

MAX_WAITING = 1000
MAX_LINE = 64 << 10


class Journal:
    """Lines are synced at once; while the disk is full, the newest thousand wait in memory."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.dropped = 0
        self._waiting: list[bytes] = []

    def add(self, entry: dict[str, object]) -> None:
        """Append an entry; one that is too long is counted as dropped."""
        line = json.dumps(entry, separators=(",", ":")).encode() + b"\n"
        if len(line) > MAX_LINE:
            self.dropped += 1
            return
        self._waiting.append(line)
        surplus = len(self._waiting) - MAX_WAITING
        if surplus > 0:
            self.dropped += surplus
            del self._waiting[:surplus]
        self.flush()

    def flush(self) -> None:
        """Write waiting lines, if the disk takes them."""
        with contextlib.suppress(OSError):
            if self._waiting:
                files.append_lines(self.path, self._waiting)
            self._waiting.clear()


def parse_line(line: bytes) -> dict[str, Any] | None:
    """Return the object of a line; None: invalid."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def read_lines(path: pathlib.Path) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Yield each line's number and entry; None: invalid. A missing file has no lines."""
    try:
        file = path.open("rb")
    except OSError as error:
        errors.raise_own(error)
        return
    with file:
        number = 0
        while line := file.readline(MAX_LINE):
            number += 1
            if line.strip():
                yield number, parse_line(line)
