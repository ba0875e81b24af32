"""What every operation needs: database, blobs, clock, limits."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from overnight import errors

if TYPE_CHECKING:
    from overnight.database import engine
    from overnight.fleet import blobs


@dataclasses.dataclass(frozen=True)
class Limits:
    """How much one host may send, and how long what is stored is kept."""

    interval: int = 30  # seconds between two reports
    events_a_day: int = 50_000  # of a host
    snapshots: int = 16  # of a host
    open_tasks: int = 64  # of a host
    host_bytes: int = 4 << 30  # windows of a host
    total_bytes: int = 500 << 30  # windows of all hosts
    window_days: int = 90
    event_days: int = 400
    # Days that rollups of 30 s, 10 min and 1 h are kept.
    rollup_days: tuple[int, int, int] = (14, 100, 800)
    rollup_rows: int = 240  # rows of a host and day in the database before they are compacted


@dataclasses.dataclass(frozen=True)
class Context:
    """One control plane; several may use one database and one blob folder."""

    database: engine.Database
    blobs: blobs.Blobs
    clock: Callable[[], int]
    limits: Limits


def now_us() -> int:
    """Return µs since 1970: rows are shared between servers, so this is the wall clock."""
    return time.time_ns() // 1000


def refuse_unknown(what: str, name: str, todo: str) -> NoReturn:
    raise errors.NotFoundError(
        f"no {what} {name!r}", why="it never existed, or was removed", todo=todo
    )
