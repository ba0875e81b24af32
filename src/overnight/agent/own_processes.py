"""The signal `recorder`: the recorder's own processes, by their pids, and their CPU time.

A diagnosis takes these and nothing else for the recorder: whatever runs in the same environment, under the
same name or in the same unit may be the cause that it looks for.
"""

from __future__ import annotations

import functools
import json
import os
import pathlib
import time

from overnight import sources
from overnight.model.times import SECOND_NS
from overnight.sources.processes import table

EVERY_SECONDS = 5.0
STATUS = "spool/status.json"  # of the profiler, written each second
STALE_NS = 10 * SECOND_NS


def signal(home: pathlib.Path, parent: int = 0) -> sources.Signal:
    """Return the signal; `parent` is the process that started this one to record, 0 for none."""
    read = functools.partial(read_own, home, parent)
    # Not below the root: these are the pids of this process's namespace, as in the samples.
    return sources.Signal("recorder", EVERY_SECONDS, "process", ("utime", "stime"), lambda _: read)


def read_own(home: pathlib.Path, parent: int) -> sources.Rows:
    """Read the CPU time of this process, its parent, and the profiler that records into `home`."""
    rows: dict[str, tuple[int, ...]] = {}
    profiler = profiler_processes(sources.read_once(home / STATUS) or b"", time.time_ns())
    for pid in sorted({os.getpid(), *profiler, *([parent] if parent else [])}):
        if text := sources.read_once(f"/proc/{pid}/stat", 1024):
            comm, _, _, utime, stime, *_ = table.parse_stat(text)
            rows[f"{pid} {table.display_name(comm)}"] = (utime, stime)
    return rows


def profiler_processes(status: bytes, now_ns: int) -> tuple[int, ...]:
    """Return the profiler's processes by its status; none where it ended, also without writing so.

    >>> profiler_processes(b'{"mode": "recording", "updated_ns": 5, "processes": [7, 8]}', 6)
    (7, 8)
    >>> profiler_processes(b'{"mode": "stopped", "updated_ns": 5, "processes": [7, 8]}', 6)
    ()
    """
    try:
        known = json.loads(status)
        fresh = known["mode"] != "stopped" and now_ns - known["updated_ns"] < STALE_NS
        return tuple(map(int, known["processes"])) if fresh else ()
    except (ValueError, KeyError, TypeError):
        return ()
