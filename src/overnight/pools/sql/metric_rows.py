"""Counts for the metrics page that are cheaper in SQL than from the rows."""

from __future__ import annotations

import dataclasses
from typing import Any

import sqlalchemy as sa

from overnight.pools.sql import schema

RECENT = 10_000  # a scrape must not read a week of events
pools, events, claims, members = schema.pools, schema.events, schema.claims, schema.members


@dataclasses.dataclass(frozen=True)
class RowCounts:
    events: tuple[
        tuple[str, str, str, int], ...
    ]  # pool, kind, reason, count in the last RECENT events
    stale_claims: tuple[tuple[str, int], ...]  # pool, count
    abandoned_members: tuple[tuple[str, int], ...]  # pool, count


def read_counts(connection: sa.Connection) -> RowCounts:
    last = int(connection.execute(sa.select(sa.func.max(events.c.id))).scalar() or 0)
    by_kind = (
        sa.select(events.c.pool, events.c.kind, events.c.reason, sa.func.count())
        .where(events.c.id > last - RECENT)
        .group_by(events.c.pool, events.c.kind, events.c.reason)
    )
    return RowCounts(
        tuple(
            sorted((p, kind, reason, int(n)) for p, kind, reason, n in connection.execute(by_kind))
        ),
        _by_pool(
            connection, claims, claims.c.released_us.is_(None), claims.c.stale_us.is_not(None)
        ),
        _by_pool(
            connection, members, members.c.gone_us.is_(None), members.c.abandoned_us.is_not(None)
        ),
    )


def _by_pool(
    connection: sa.Connection, table: sa.Table, *where: sa.ColumnElement[bool]
) -> tuple[tuple[str, Any], ...]:
    chosen = (
        sa.select(pools.c.name, sa.func.count(table.c.id))
        .join(table, table.c.pool_id == pools.c.id)
        .where(*where)
        .group_by(pools.c.name)
    )
    return tuple(sorted((str(name), int(n)) for name, n in connection.execute(chosen)))
