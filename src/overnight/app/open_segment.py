"""Stacks that a running recording has not stored yet."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import time

from overnight.agent import own_processes, profiler
from overnight.app import spool_paths
from overnight.model import times
from overnight.model.times import SECOND_US
from overnight.sources.perf import recovery

INGEST_US = 20 * SECOND_US  # from the end of a segment until its stacks are stored


@dataclasses.dataclass(frozen=True)
class OpenSegment:
    """The segment being written; the recorder stores it after its end."""

    begin_us: int
    end_us: int

    def __str__(self) -> str:
        begin, end, stored = map(
            times.format_instant, (self.begin_us, self.end_us, self.end_us + INGEST_US)
        )
        return f"stacks from {begin} to {end} are still being written: available from {stored}"


def read_open(home: pathlib.Path) -> OpenSegment | None:
    """Return the segment that a recording into a data home writes now; None where none is running."""
    folder = spool_paths.spool_folder(home)
    current = recovery.read_current(folder)
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        status = json.loads((folder / profiler.STATUS).read_text())
        is_recent = time.time_ns() - status["updated_ns"] < own_processes.STALE_NS
        if current is not None and is_recent and status["mode"] == "recording":
            begin_us = current.began.wall_ns // 1000
            return OpenSegment(begin_us, begin_us + round(status["segment_seconds"] * SECOND_US))
    return None
