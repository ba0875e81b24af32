"""Rows of rollups that are not in a file yet, and the files of days."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import sqlalchemy as sa

from overnight.database import statements
from overnight.fleet.sql import schema
from overnight.model.times import DAY_US
from overnight.model.uplink import Rollup

rollups, days = schema.rollups, schema.rollup_days


def put(connection: sa.Connection, host_id: str, new: Iterable[Rollup]) -> None:
    """Add rollups; a known begin stays as it is."""
    rows = (
        {"host_id": host_id, "begin_us": rollup.begin_us, "document": vars(rollup)}
        for rollup in new
    )
    statements.add_missing(connection, rollups, *rows)


def read(
    connection: sa.Connection, host_id: str, begin_us: int, end_us: int, most: int
) -> list[Rollup]:
    """Return the first rollups that begin in a window, in order, until they have more than `most` cores together."""
    within = (rollups.c.begin_us >= begin_us, rollups.c.begin_us < end_us)
    chosen = sa.select(rollups.c.document).where(rollups.c.host_id == host_id, *within)
    streamed = chosen.order_by(rollups.c.begin_us).execution_options(yield_per=100)
    found: list[Rollup] = []
    with connection.execute(streamed) as result:
        for document in result.scalars():
            found.append(Rollup.from_json(document))
            most -= len(found[-1].cores)
            if most < 0:
                break
    return found


def delete(connection: sa.Connection, host_id: str, begins: Collection[int]) -> None:
    gone = sa.and_(rollups.c.host_id == host_id, rollups.c.begin_us.in_(begins))
    connection.execute(rollups.delete().where(gone))


def list_due(connection: sa.Connection, today: int, most: int, limit: int) -> list[tuple[str, int]]:
    """Return hosts and days to compact: past days, and those with at least `most` rows."""
    # Literal: PostgreSQL takes two parameters of one value for different groups.
    day = rollups.c.begin_us // sa.literal_column(str(DAY_US), sa.BigInteger)
    grouped = sa.select(rollups.c.host_id, day.label("day")).group_by(rollups.c.host_id, day)
    due = grouped.having(sa.or_(sa.func.count() >= most, day < today)).limit(limit)
    return [(row.host_id, row.day) for row in connection.execute(due)]


def lock_day(
    connection: sa.Connection, host_id: str, day: int, who: str, now_us: int, until_us: int
) -> sa.Row[Any] | None:
    """Take the lock of a host's day until a time and return the day; None if another has it."""
    key = {"host_id": host_id, "day": day}
    empty = {"file": "", "locked_by": "", "locked_until_us": 0, "least_level": 0}
    statements.add_missing(connection, days, key | empty)
    free = sa.or_(days.c.locked_until_us < now_us, days.c.locked_by == "")
    taken = (
        sa.update(days)
        .where(days.c.host_id == host_id, days.c.day == day, free)
        .values(locked_by=who, locked_until_us=until_us)
        .returning(days)
    )
    return connection.execute(taken).first()


def finish_day(connection: sa.Connection, host_id: str, day: int, who: str, **values: object) -> bool:  # fmt: skip
    """Store the new file of a day and free its lock; False if the lock was lost meanwhile."""
    own = (days.c.host_id == host_id, days.c.day == day, days.c.locked_by == who)
    done = sa.update(days).where(*own).values(locked_by="", locked_until_us=0, **values)
    return connection.execute(done).rowcount == 1


def list_days(connection: sa.Connection, begin: int, end: int, host_id: str) -> dict[int, str]:
    """Return the files of a host's days, from one to before another."""
    within = (days.c.day >= begin, days.c.day < end, days.c.file != "")
    chosen = sa.select(days.c.day, days.c.file).where(days.c.host_id == host_id, *within)
    return {row.day: row.file for row in connection.execute(chosen)}


def list_fine(
    connection: sa.Connection, before: int, level: int, limit: int
) -> list[tuple[str, int]]:
    """Return hosts and days before a day whose files have levels finer than this one."""
    old = (days.c.day < before, days.c.least_level < level, days.c.file != "")
    rows = connection.execute(sa.select(days.c.host_id, days.c.day).where(*old).limit(limit))
    return [(row.host_id, row.day) for row in rows]


def delete_days(connection: sa.Connection, before: int) -> list[str]:
    """Delete days before a day; return their files."""
    old = days.c.day < before
    found = list(connection.execute(sa.select(days.c.file).where(old)).scalars())
    connection.execute(days.delete().where(old))
    connection.execute(rollups.delete().where(rollups.c.begin_us < before * DAY_US))
    return [file for file in found if file]


def list_files(connection: sa.Connection, host_id: str | None = None) -> set[str]:
    chosen = sa.select(days.c.file)
    if host_id is not None:
        chosen = chosen.where(days.c.host_id == host_id)
    return {*connection.execute(chosen).scalars()} - {""}
