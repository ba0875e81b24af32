"""Counts for the metrics page that are cheaper in SQL than from the rows."""

from __future__ import annotations

import sqlalchemy as sa

from overnight.pools.sql import schema

pools, claims, members = schema.pools, schema.claims, schema.members


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
