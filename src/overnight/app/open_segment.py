"""Stacks that a running recording has not stored yet."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import time
from collections.abc import Collection
from typing import TYPE_CHECKING

from overnight.agent import own_processes, profiler
from overnight.app import spool_paths
from overnight.model import times
from overnight.model.times import SECOND_US
from overnight.sources import perf
from overnight.sources.perf import recovery

if TYPE_CHECKING:
    from overnight.model.selection import Window

INGEST_US = 20 * SECOND_US  # from the end of a segment until its stacks are stored


@dataclasses.dataclass(frozen=True)
class OpenSegment:
    """The segment being written; the recorder stores it after its end."""

    begin_us: int
    end_us: int
    host: str

    def holds(self, window: Window, hosts: Collection[str] = ()) -> bool:
        """Return whether it will have stacks of a window of these hosts; without any, of all."""
        is_then = self.begin_us < window.end_us and window.begin_us < self.end_us
        return is_then and (not hosts or self.host in hosts)

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
            end_us = begin_us + round(status["segment_seconds"] * SECOND_US)
            name = perf.parse_segment_name(current.file.removesuffix(perf.WRITING))
            return OpenSegment(begin_us, end_us, name.host if name else "")
    return None
