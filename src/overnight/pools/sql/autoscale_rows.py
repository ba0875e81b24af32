"""Rows of autoscale policies, with what was last decided."""

from __future__ import annotations

import sqlalchemy as sa

from overnight.database import statements
from overnight.model.pool import Autoscale
from overnight.pools.sql import schema

autoscales = schema.autoscales


def _policy(row: sa.RowMapping) -> Autoscale:
    memory = tuple((float(when), int(size)) for when, size in row["memory"])
    return Autoscale(**{**row, "openings": tuple(row["openings"]), "memory": memory})


def find(connection: sa.Connection, pool_id: str) -> Autoscale | None:
    """Read a pool's policy; None if its size is set by hand."""
    chosen = sa.select(autoscales).where(autoscales.c.pool_id == pool_id)
    row = connection.execute(chosen).mappings().first()
    return None if row is None else _policy(row)


def list_all(connection: sa.Connection) -> dict[str, Autoscale]:
    """Read every policy, by the id of its pool."""
    rows = connection.execute(sa.select(autoscales)).mappings()
    return {str(row["pool_id"]): _policy(row) for row in rows}


def save(connection: sa.Connection, policy: Autoscale) -> None:
    """Write the policy of a pool that is locked, new or not."""
    values = {
        **vars(policy),
        "openings": list(policy.openings),
        "memory": [list(size) for size in policy.memory],
    }
    statements.upsert(connection, autoscales, values)


def delete(connection: sa.Connection, pool_id: str) -> bool:
    """Delete a pool's policy; False if it has none."""
    done = connection.execute(sa.delete(autoscales).where(autoscales.c.pool_id == pool_id))
    return bool(done.rowcount)
