"""What every operation needs: database, blobs, clock, limits, hosts by name, pages of lists."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from overnight import errors
from overnight.fleet.sql import host_rows
from overnight.model.control_plane import Page, encode_cursor
from overnight.model.text import printable

if TYPE_CHECKING:
    from overnight.database import engine
    from overnight.fleet import blobs

MAX_PAGE = 1_000
Item = TypeVar("Item")


@dataclasses.dataclass(frozen=True)
class Limits:
    """How much one host may send, and how long what is stored is kept."""

    interval: int = 30  # seconds between two reports
    events_a_day: int = 50_000  # of a host; a large one counts once for each KiB
    # Of a host: its cores times its intervals, and 64 for each interval. 2,000 cores send 6 million.
    rollups_a_day: int = 6_000_000
    late_days: int = 31  # older rollups and observed time are not stored
    spells: int = 10_000  # of a host
    offers: int = 1_000  # windows of a host that were not uploaded
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


def find_host(connection: engine.Connection, name: str, *, lock: bool = False) -> str:
    """Return the id of a host; raise NotFoundError."""
    found = host_rows.find_id(connection, printable(name), lock=lock)
    return found or refuse_unknown("host", name, "overnight hosts")


def read_page(
    limit: int, read: Callable[[int], list[Item]], cursor: Callable[[Item], tuple[Any, ...]]
) -> Page[Item]:
    """Read a page and one item more, which shows that there is another page."""
    limit = max(1, min(limit, MAX_PAGE))
    rows = read(limit + 1)
    more = encode_cursor(*cursor(rows[limit - 1])) if len(rows) > limit else ""
    return Page(tuple(rows[:limit]), more)


def refuse_unknown(what: str, name: str, todo: str) -> NoReturn:
    raise errors.NotFoundError(
        f"no {what} {name!r}", why="it never existed, or was removed", todo=todo
    )
