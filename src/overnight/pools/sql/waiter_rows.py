"""Rows of the queue: callers that wait for a member, by priority and age."""

from __future__ import annotations

import dataclasses

import sqlalchemy as sa

from overnight.database import statements
from overnight.model.pool import Pool, Waiter
from overnight.pools import decisions
from overnight.pools.sql import schema

waiters = schema.waiters


def insert(connection: sa.Connection, waiter: Waiter) -> None:
    connection.execute(waiters.insert().values(dataclasses.asdict(waiter)))


def delete(connection: sa.Connection, waiter_id: str) -> bool:
    """Delete a caller; False if it has left the queue."""
    statement = sa.delete(waiters).where(waiters.c.id == waiter_id)
    return connection.execute(statement).rowcount == 1


def exists(connection: sa.Connection, waiter_id: str) -> bool:
    chosen = sa.select(waiters.c.id).where(waiters.c.id == waiter_id)
    return connection.execute(chosen).scalar() is not None


def touch(connection: sa.Connection, waiter_id: str, now_us: int) -> None:
    """Record that the caller still waits."""
    statements.update(waiters, connection, waiter_id, seen_us=now_us)


def list_queue(connection: sa.Connection, pool: Pool, seen_since_us: int) -> list[Waiter]:
    """Read the queue in order, without the callers not seen since then."""
    chosen = sa.select(waiters).where(
        waiters.c.pool_id == pool.id, waiters.c.seen_us > seen_since_us
    )
    queue = [Waiter(**row) for row in connection.execute(chosen).mappings()]
    return sorted(queue, key=lambda w: (decisions.queue_key(pool, w.priority, w.queued_us), w.id))


def count_wanted(connection: sa.Connection, pool_id: str, seen_since_us: int) -> int:
    """Count the members that the queue asks for."""
    chosen = sa.select(sa.func.coalesce(sa.func.sum(waiters.c.wanted), 0)).where(
        waiters.c.pool_id == pool_id, waiters.c.seen_us > seen_since_us
    )
    return int(connection.execute(chosen).scalar_one())


def delete_unseen(connection: sa.Connection, pool_id: str, before_us: int) -> list[Waiter]:
    """Delete and return callers that were killed while they waited."""
    statement = sa.delete(waiters).where(
        waiters.c.pool_id == pool_id, waiters.c.seen_us < before_us
    )
    return [Waiter(**row) for row in connection.execute(statement.returning(waiters)).mappings()]
