"""Real-time threads of the processes that use half a core or more.

/proc/PID/stat has the policy of the main thread only. Of the few busy processes, each thread's own line is read
once, a few dozen per poll. Real-time threads are then read at every poll, the others again after half a minute
or when the number of threads changes.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib

from overnight import errors, sources
from overnight.sources.processes import table

MAX_PROCESSES = 12
MAX_READ = 48  # threads that are read for the first time in one poll: 10 us each
MAX_KEPT = 24
AGAIN = 30  # polls until all threads of a process are read again
POLICIES = (1, 2, 6)  # FIFO, round robin, deadline


@dataclasses.dataclass(slots=True)
class _Process:
    started: int
    unread: list[int] = dataclasses.field(default_factory=list)
    real_time: set[int] = dataclasses.field(default_factory=set)
    threads: int = -1
    due: int = 0


class RealTime:
    """Reads `rt-threads`; the table of processes tells which processes are busy."""

    def __init__(self, processes: table.Table, root: pathlib.Path = sources.ROOT) -> None:
        self._table = processes
        self._proc = str(root / "proc")
        self._known: dict[int, _Process] = {}
        self._polls = 0

    def read(self) -> sources.Rows:
        """Return a row for each real-time thread except main threads."""
        self._polls += 1
        busy = self._table.busy(MAX_PROCESSES)
        for pid in self._known.keys() - busy.keys():
            del self._known[pid]
        rows: dict[str, tuple[int, ...]] = {}
        left = MAX_READ
        for pid, (started, threads) in busy.items():
            process = self._known.get(pid)
            if process is None or process.started != started:
                process = self._known[pid] = _Process(started)
            if threads < 2:
                continue
            if not process.unread and (threads != process.threads or self._polls >= process.due):
                process.unread = self._list(pid)
                process.threads, process.due = threads, self._polls + AGAIN
            now, process.unread = process.unread[:left], process.unread[left:]
            left -= len(now)
            for thread in [*process.real_time, *(n for n in now if n not in process.real_time)]:
                if len(rows) < MAX_KEPT:
                    self._read(pid, thread, process, rows)
        return rows

    def _list(self, pid: int) -> list[int]:
        try:
            names = os.listdir(f"{self._proc}/{pid}/task")  # noqa: PTH208 - polled: no Path per name
        except OSError as error:
            errors.raise_own(error)
            return []
        # The youngest first: a new thread is why the list is read again.
        return sorted((int(name) for name in names if name != str(pid)), reverse=True)

    def _read(
        self, pid: int, thread: int, process: _Process, rows: dict[str, tuple[int, ...]]
    ) -> None:
        text = sources.read_once(f"{self._proc}/{pid}/task/{thread}/stat", 1024)
        process.real_time.discard(thread)
        try:
            seen = table.parse_stat(text or b"")
        except (ValueError, IndexError):
            return  # it has ended
        comm, _, _, utime, stime, _, _, core, policy, priority, _ = seen
        if policy not in POLICIES:
            return
        process.real_time.add(thread)
        rows[f"{pid}/{thread} {table.display_name(comm)}"] = (utime, stime, core, policy, priority)
