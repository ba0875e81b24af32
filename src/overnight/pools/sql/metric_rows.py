"""Counts for the metrics page that are cheaper in SQL than from the rows."""

from __future__ import annotations

import sqlalchemy as sa

from overnight.pools.sql import schema

pools, claims, members = schema.pools, schema.claims, schema.members
Counted = tuple[sa.Table, sa.ColumnElement[bool], sa.ColumnElement[bool]]
STALE_CLAIMS: Counted = (claims, claims.c.released_us.is_(None), claims.c.stale_us.is_not(None))
ABANDONED: Counted = (members, members.c.gone_us.is_(None), members.c.abandoned_us.is_not(None))


def count_by_pool(connection: sa.Connection, counted: Counted) -> list[tuple[str, int]]:
    table, *where = counted
    chosen = (
        sa.select(pools.c.name, sa.func.count(table.c.id))
        .join(table, table.c.pool_id == pools.c.id)
        .where(*where)
        .group_by(pools.c.name)
    )
    return sorted((str(name), int(count)) for name, count in connection.execute(chosen))
