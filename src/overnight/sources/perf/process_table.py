"""The processes of a recording, one row for each from its fork to its exit, like `process_table.h` in C."""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Callable, Mapping

UNKNOWN = 2**32 - 1
# Of a stored table: fields of a row, and their types.
COLUMNS = {
    "pid": "i",
    "parent": "I",
    "start": "Q",
    "end": "Q",
    "name": "I",
    "executable": "I",
    "execed": "Q",
}
ROWS_LIMIT = 1 << 20  # a hostile file may have endless forks


@dataclasses.dataclass(slots=True)
class Row:
    pid: int
    name: int  # string: the last name of its main thread
    parent: int = UNKNOWN  # row
    start: int = 0  # its fork; 0: it ran before the recording
    end: int = 0  # its exit; 0: the recording has none
    executable: int = UNKNOWN  # string: the first file it mapped executable since its last exec
    execed: int = 0  # its last exec; 0: the recording has none
    exited: bool = False


class ProcessTable:
    def __init__(self, names: Mapping[int, int]) -> None:
        self.rows: list[Row] = []
        self._names = names  # string by tid
        self._current: dict[int, int] = {}

    def number(self, pid: int) -> int:
        """Return the row of the process that has this pid now, or UNKNOWN."""
        return self._current.get(pid, UNKNOWN)

    def _find(self, pid: int) -> Row | None:
        number = self._current.get(pid)
        return None if number is None else self.rows[number]

    def _ensure(self, pid: int) -> Row | None:
        """Return the row of a process: a new one where no fork was recorded, None beyond the limit."""
        if pid not in self._current and len(self.rows) < ROWS_LIMIT:
            self._current[pid] = len(self.rows)
            self.rows.append(Row(pid, self._names.get(pid, UNKNOWN)))
        return self._find(pid)

    def fork(self, pid: int, parent: int, time: int, *, inherits: bool) -> None:
        """Begin a row; `inherits` is whether the child runs its parent's executable.

        The recorder lists the running processes with time zero while the kernel records new ones: the fork
        of a listed process may follow.
        """
        source = self._ensure(parent)
        above = self.number(parent)
        listed = self._find(pid)
        if listed and (listed.start or listed.exited or listed.parent not in (UNKNOWN, above)):
            del self._current[pid]
            listed = None
        child = self._ensure(pid)
        if child is None:
            return
        child.parent, child.start = above, time
        if inherits and source is not None and listed is None:
            child.executable = source.executable

    def rename(self, pid: int, name: int, execed: int) -> None:
        row = self._ensure(pid)
        if row is None:
            return
        row.name = name
        if execed:
            row.executable, row.execed = UNKNOWN, execed

    def map_file(self, pid: int, name: int, time: int) -> None:
        """Note an executable mapping: later ones are libraries, also of a process listed without its mappings."""
        row = self._find(pid)
        if row is not None and row.executable == UNKNOWN and (row.execed or not time):
            row.executable = name

    def exit(self, pid: int, tid: int, time: int) -> None:
        """End a row; threads may outlive the main thread."""
        row = self._find(pid)
        if row is None:
            return
        row.exited |= pid == tid
        if row.exited:
            row.end = time

    def columns(self, intern: Callable[[bytes], int]) -> tuple[bytes, ...]:
        """Return pid, parent, start, end, name, executable and exec; following parents always ends."""
        walks = [UNKNOWN] * len(self.rows)
        for walk, row in enumerate(self.rows):
            if row.name == UNKNOWN:
                row.name = intern(b":%d" % row.pid)
            at = last = walk
            while at != UNKNOWN and walks[at] == UNKNOWN:
                walks[at], last, at = walk, at, self.rows[at].parent
            if at != UNKNOWN and walks[at] == walk:
                self.rows[last].parent = UNKNOWN
        return tuple(
            array(kind, (getattr(row, name) for row in self.rows)).tobytes()
            for name, kind in COLUMNS.items()
        )
