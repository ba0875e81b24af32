"""Totals of events since the database has them, by pool, kind, reason and duration.

Events are deleted after a while, and a counter must not fall. A claim only adds its event: a counter in a row
of its own would make claims wait for each other. The reaper adds events to the totals later, once.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import sqlalchemy as sa

from overnight.database import statements
from overnight.model.times import SECOND_US
from overnight.pools.sql import schema, shared_values

totals, events, pools, control = schema.totals, schema.events, schema.pools, schema.control
COUNTED = "events_counted"  # the id of the last event in the totals
BATCH = 10_000  # events in one transaction: other writers wait meanwhile
# On PostgreSQL a transaction that began earlier may commit later, with a smaller id.
SETTLED_US = 30 * SECOND_US
LIMITS_S = (0, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14400, 86400)
NO_DURATION, LONGER = -1, 2**62
KEYS = ("pool_id", "kind", "reason", "limit_us")


@dataclasses.dataclass(frozen=True)
class Total:
    """Events of a pool ('' for none) whose duration is at most `limit_us` and above the limit before."""

    pool: str
    kind: str
    reason: str
    limit_us: int
    number: int  # for claim_missed: members
    took_us: int


def read_counted(connection: sa.Connection) -> int:
    return int(shared_values.get(connection, COUNTED) or 0)


def _sum_events(*where: sa.ColumnElement[bool]) -> sa.Select[Any]:
    took = events.c.took_us
    limits = [round(limit * SECOND_US) for limit in LIMITS_S]
    limit = sa.case(
        (took.is_(None), NO_DURATION), *((took <= each, each) for each in limits), else_=LONGER
    )
    missed = events.c.kind == "claim_missed"
    number = sa.case((missed, sa.cast(events.c.detail, sa.BigInteger)), else_=1)
    # In a subquery, so that PostgreSQL recognises the grouped expression.
    rows = (
        sa.select(events, limit.label("limit_us"), number.label("number")).where(*where).subquery()
    )
    keys = [rows.c[name] for name in KEYS]
    took_us = sa.func.coalesce(sa.func.sum(rows.c.took_us), 0)
    return sa.select(
        *keys, sa.func.sum(rows.c.number).label("number"), took_us.label("took_us")
    ).group_by(*keys)


def add_settled(connection: sa.Connection, now_us: int) -> bool:
    """Add events to the totals that no transaction can precede any more; True if there are more."""
    shared_values.put(connection, COUNTED, "0", keep=True)
    chosen = sa.select(control.c.value).where(control.c.name == COUNTED).with_for_update()
    counted = int(connection.execute(chosen).scalar_one())
    after = events.c.id > counted
    last = connection.execute(sa.select(sa.func.max(events.c.id)).where(after)).scalar()
    recent = connection.execute(
        sa.select(sa.func.min(events.c.id)).where(after, events.c.at_us > now_us - SETTLED_US)
    ).scalar()
    until = min(counted + BATCH, last or 0, (recent or LONGER) - 1)
    if until <= counted:
        return False
    existing = sa.select(pools.c.id).where(pools.c.deleted_us.is_(None))
    known = sa.or_(events.c.pool_id == "", events.c.pool_id.in_(existing))
    names = [*KEYS, "number", "took_us"]
    new = statements.insert(connection, totals).from_select(
        names, _sum_events(after, events.c.id <= until, known)
    )
    sums = {name: totals.c[name] + new.excluded[name] for name in ("number", "took_us")}
    connection.execute(
        new.on_conflict_do_update(index_elements=[totals.c[name] for name in KEYS], set_=sums)
    )
    shared_values.put(connection, COUNTED, str(until))
    return until == counted + BATCH


def list_all(connection: sa.Connection) -> list[Total]:
    """Read the totals with the events that are not in them yet."""
    recent = _sum_events(events.c.id > read_counted(connection))
    both = sa.union_all(sa.select(totals), recent).subquery()
    keys = [sa.func.coalesce(pools.c.name, ""), both.c.kind, both.c.reason, both.c.limit_us]
    chosen: sa.Select[Any] = (
        sa.select(*keys, sa.func.sum(both.c.number), sa.func.sum(both.c.took_us))
        .select_from(both.outerjoin(pools, pools.c.id == both.c.pool_id))
        .where(sa.or_(both.c.pool_id == "", pools.c.id.is_not(None)), pools.c.deleted_us.is_(None))
        .group_by(both.c.pool_id, *keys)
    )
    return [
        Total(str(pool), str(kind), str(reason), int(limit), int(number), int(took))
        for pool, kind, reason, limit, number, took in connection.execute(chosen)
    ]
