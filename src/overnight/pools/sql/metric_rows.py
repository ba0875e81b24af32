"""Counts for the metrics page that are cheaper in SQL than from the rows."""

from __future__ import annotations

import sqlalchemy as sa

from overnight.pools.sql import schema

RECENT = 10_000  # a scrape must not read a week of events
pools, events, claims, members = schema.pools, schema.events, schema.claims, schema.members


def count_events(connection: sa.Connection) -> list[tuple[str, str, str, int]]:
    """Count the last RECENT events: pool, kind, reason, count."""
    last = int(connection.execute(sa.select(sa.func.max(events.c.id))).scalar() or 0)
    columns = (events.c.pool, events.c.kind, events.c.reason)
    chosen = (
        sa.select(*columns, sa.func.count()).where(events.c.id > last - RECENT).group_by(*columns)
    )
    rows = connection.execute(chosen)
    return sorted((pool, kind, reason, int(count)) for pool, kind, reason, count in rows)


def count_stale_claims(connection: sa.Connection) -> list[tuple[str, int]]:
    """Count the open claims that are flagged as stale, by pool."""
    conditions = (claims.c.released_us.is_(None), claims.c.stale_us.is_not(None))
    return _count_by_pool(connection, claims, *conditions)


def count_abandoned_members(connection: sa.Connection) -> list[tuple[str, int]]:
    """Count the members whose machines could not be terminated, by pool."""
    conditions = (members.c.gone_us.is_(None), members.c.abandoned_us.is_not(None))
    return _count_by_pool(connection, members, *conditions)


def _count_by_pool(
    connection: sa.Connection, table: sa.Table, *where: sa.ColumnElement[bool]
) -> list[tuple[str, int]]:
    chosen = (
        sa.select(pools.c.name, sa.func.count(table.c.id))
        .join(table, table.c.pool_id == pools.c.id)
        .where(*where)
        .group_by(pools.c.name)
    )
    return sorted((str(name), int(count)) for name, count in connection.execute(chosen))
