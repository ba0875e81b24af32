"""Real-time threads of the processes that use much of a core.

/proc/PID/stat tells the policy of a process's first thread only. Of the few processes that use half of a
core or more, each thread's own line is read once, a few dozen a look, and then of those that are
real-time at every look; the others again after half a minute, or when a thread was made or ended.
"""

from __future__ import annotations

import os
import pathlib

from overnight import sources
from overnight.sources.processes import table

__all__ = ["RealTime"]

MOST_PROCESSES = 12
MOST_READ = 48  # threads that are read for the first time in one look: 10 us each
MOST_KEPT = 24
AGAIN = 30  # looks until all threads of a process are read again
POLICIES = (1, 2, 6)  # FIFO, round robin, deadline


class _Process:
    """The threads of one that burns."""

    __slots__ = ("due", "real_time", "started", "threads", "unread")

    def __init__(self, started: int) -> None:
        self.started = started
        self.unread: list[int] = []
        self.real_time: set[int] = set()
        self.threads = -1
        self.due = 0


class RealTime:
    """What `rt-threads` looks at; the table of processes says who burns."""

    def __init__(self, processes: table.Table, root: pathlib.Path = sources.ROOT) -> None:
        self._table = processes
        self._proc = str(root / "proc")
        self._known: dict[int, _Process] = {}
        self._looks = 0

    def read(self) -> sources.Rows:
        """A row for each real-time thread that is not the first of its process."""
        self._looks += 1
        burning = self._table.burning(MOST_PROCESSES)
        for pid in self._known.keys() - burning.keys():
            del self._known[pid]
        rows: dict[str, tuple[int, ...]] = {}
        left = MOST_READ
        for pid, (started, threads) in burning.items():
            one = self._known.get(pid)
            if one is None or one.started != started:
                one = self._known[pid] = _Process(started)
            if threads < 2:
                continue
            if not one.unread and (threads != one.threads or self._looks >= one.due):
                one.unread = self._list(pid)
                one.threads, one.due = threads, self._looks + AGAIN
            now, one.unread = one.unread[:left], one.unread[left:]
            left -= len(now)
            for thread in [*one.real_time, *(n for n in now if n not in one.real_time)]:
                if len(rows) < MOST_KEPT:
                    self._read(pid, thread, one, rows)
        return rows

    def _list(self, pid: int) -> list[int]:
        try:
            names = os.listdir(f"{self._proc}/{pid}/task")  # noqa: PTH208
        except OSError:
            return []
        # The youngest first: a thread that was just made is why the list is read again.
        return sorted((int(name) for name in names if name != str(pid)), reverse=True)

    def _read(self, pid: int, thread: int, one: _Process, rows: dict[str, tuple[int, ...]]) -> None:
        text = sources.read_once(f"{self._proc}/{pid}/task/{thread}/stat", 1024)
        try:
            seen = table.parse_stat(text or b"")
        except (ValueError, IndexError):
            one.real_time.discard(thread)  # it has ended
            return
        comm, _, _, utime, stime, _, _, core, policy, priority = seen
        if policy not in POLICIES:
            one.real_time.discard(thread)
            return
        one.real_time.add(thread)
        rows[f"{pid}/{thread} {table.name_of(comm)}"] = (utime, stime, core, policy, priority)
