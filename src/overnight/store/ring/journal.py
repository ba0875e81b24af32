"""A file of JSON lines that is only ever appended to: events, and gaps."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator

from overnight.model import files

__all__ = ["Journal", "read_lines"]

MOST_WAITING = 1000
MOST_LINE = 64 << 10


class Journal:
    """Lines reach the disk at once; while it is full they wait in memory, the newest thousand."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.dropped = 0
        self._waiting: list[bytes] = []

    def add(self, entry: dict[str, object]) -> bool:
        """Write an entry down; False: it waits, or was too long and is counted as dropped."""
        line = json.dumps(entry, separators=(",", ":")).encode() + b"\n"
        if len(line) > MOST_LINE:
            self.dropped += 1
            return False
        self._waiting.append(line)
        surplus = len(self._waiting) - MOST_WAITING
        if surplus > 0:
            self.dropped += surplus
            del self._waiting[:surplus]
        return self.flush()

    def flush(self) -> bool:
        """Write what waits; False while the disk does not take it."""
        if self._waiting and not files.append_lines(self.path, self._waiting):
            return False
        self._waiting.clear()
        return True


def read_lines(path: pathlib.Path) -> Iterator[tuple[int, dict[str, object] | None]]:
    """Each line's number and entry; None: it makes no sense. A file that is gone has no lines."""
    try:
        file = path.open("rb")
    except OSError:
        return
    with file:
        number = 0
        while line := file.readline(MOST_LINE):
            number += 1
            if not line.strip():
                continue
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                entry = None
            yield number, entry if isinstance(entry, dict) else None
