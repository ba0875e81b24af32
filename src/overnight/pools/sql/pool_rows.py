"""Rows of pools, and everything that a pool holds at one moment."""

from __future__ import annotations

import dataclasses
from typing import Any

import sqlalchemy as sa
import sqlalchemy.exc

from overnight.database import column_types
from overnight.model.pool import Pool, PoolSettings, PoolStatus
from overnight.model.times import SECOND_US
from overnight.pools import decisions, pool_errors
from overnight.pools.sql import claim_rows, member_rows, schema, waiter_rows

pools = schema.pools
EXISTS = pools.c.deleted_us.is_(None)


def _pool(row: sa.RowMapping) -> Pool:
    values = dict(row)
    if values.pop("deleted_us") is not None:
        values["name"] = values["name"].removesuffix(_suffix(values["id"]))
    values["settings"] = PoolSettings(**values.pop("knobs"))
    values["preferred_regions"] = tuple(values["preferred_regions"])
    return Pool(**values)


def _suffix(pool_id: str) -> str:
    """Return what the name of a deleted pool gets: it may be used again, and contains no space."""
    return f" {pool_id}"


def _read(connection: sa.Connection, chosen: sa.Select[Any]) -> list[Pool]:
    return [_pool(row) for row in connection.execute(chosen).mappings()]


def _row(pool: Pool) -> dict[str, Any]:
    return {
        **{name: value for name, value in vars(pool).items() if name != "settings"},
        "preferred_regions": list(pool.preferred_regions),
        "labels": dict(pool.labels),
        "knobs": dataclasses.asdict(pool.settings),
    }


def find(connection: sa.Connection, name_or_id: str, *, deleted: bool = False) -> Pool:
    """Read a pool; raises PoolNotFoundError. With `deleted`, also one of which only records are left."""
    chosen = sa.select(pools).where(
        sa.or_(pools.c.name == name_or_id, pools.c.id == name_or_id),
        sa.true() if deleted else EXISTS,
    )
    for pool in _read(connection, chosen):
        return pool
    raise pool_errors.PoolNotFoundError(name_or_id)


def lock(connection: sa.Connection, name_or_id: str, *, deleted: bool = False) -> Pool:
    """Read a pool and lock its row until the transaction ends: no other one launches, drains or changes it."""
    # `NO KEY`: a plain FOR UPDATE would also block inserts of members that refer to the pool.
    pool_id = find(connection, name_or_id, deleted=deleted).id
    chosen = sa.select(pools).where(pools.c.id == pool_id, sa.true() if deleted else EXISTS)
    for pool in _read(connection, chosen.with_for_update(key_share=True)):
        return pool
    raise pool_errors.PoolNotFoundError(name_or_id)  # deleted while we waited for the lock


def lock_of_token(connection: sa.Connection, token: str) -> Pool | None:
    """Read and lock the pool whose member has this bootstrap token; None if there is none."""
    members, enrolments = schema.members, schema.enrolments
    chosen = (
        sa.select(members.c.pool_id)
        .join(enrolments, enrolments.c.member_id == members.c.id)
        .where(enrolments.c.token_hash == column_types.hash_secret(token))
    )
    pool_id = connection.execute(chosen).scalar()
    try:
        return None if pool_id is None else lock(connection, pool_id, deleted=True)
    except pool_errors.PoolNotFoundError:
        return None


def find_of_member(connection: sa.Connection, member_id: str) -> Pool | None:
    members = schema.members
    chosen = (
        sa.select(pools)
        .join(members, members.c.pool_id == pools.c.id)
        .where(members.c.id == member_id)
    )
    return next(iter(_read(connection, chosen)), None)


def list_all(connection: sa.Connection) -> list[Pool]:
    """Read every pool, ordered by name."""
    return _read(connection, sa.select(pools).where(EXISTS).order_by(pools.c.name))


def insert(connection: sa.Connection, pool: Pool) -> None:
    """Write a new pool; raises PoolExistsError where the name is taken."""
    try:
        connection.execute(pools.insert().values(_row(pool)))
    except sqlalchemy.exc.IntegrityError as error:
        raise pool_errors.PoolExistsError(pool.name) from error


def save(connection: sa.Connection, pool: Pool) -> None:
    """Write a pool that is locked."""
    connection.execute(sa.update(pools).where(pools.c.id == pool.id).values(_row(pool)))


def delete(connection: sa.Connection, pool: Pool, now_us: int) -> None:
    """Delete a locked pool; records of its members, claims and events stay until `delete_forgotten`."""
    for table in (schema.waiters, schema.autoscales, schema.totals):
        connection.execute(sa.delete(table).where(table.c.pool_id == pool.id))
    changes = {"deleted_us": now_us, "name": pool.name + _suffix(pool.id)}
    archived = {"status": PoolStatus.ARCHIVED}  # so that no claim finds it by its id
    connection.execute(sa.update(pools).where(pools.c.id == pool.id).values(changes | archived))


def delete_forgotten(connection: sa.Connection, before_us: int) -> None:
    """Delete the records of pools that were deleted before then."""
    chosen = sa.select(pools.c.id).where(pools.c.deleted_us < before_us)
    # Locked first, as in every transaction.
    forgotten = list(connection.execute(chosen.with_for_update()).scalars())
    for column in (schema.claims.c.pool_id, schema.members.c.pool_id, pools.c.id):
        connection.execute(sa.delete(column.table).where(column.in_(forgotten)))


def view(connection: sa.Connection, pool: Pool, now_us: int) -> decisions.View:
    """Read what a pool holds now."""
    seen_since = now_us - pool.settings.waiter_stale_seconds * SECOND_US
    return decisions.View(
        pool=pool,
        members=member_rows.list_live(connection, pool.id),
        claims=claim_rows.list_open(connection, pool.id),
        waiting=waiter_rows.count_wanted(connection, pool.id, seen_since),
        now_us=now_us,
    )
