"""Rows of clusters; the rest of a cluster is the row of its pool, which has the same id."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from overnight.database import statements
from overnight.model.cluster import Cluster
from overnight.pools import pool_errors
from overnight.pools.sql import pool_rows, schema

if TYPE_CHECKING:
    from overnight.model.pool import Pool

clusters = schema.clusters
save = functools.partial(statements.update, clusters)  # of a cluster whose pool is locked
OWN = tuple(column.name for column in clusters.c if column.name != "pool_id")


def build(pool: Pool, **own: Any) -> Cluster:
    """Return the cluster of a pool, with the columns of its own row."""
    return Cluster(
        id=pool.id, template=pool.template, provider=pool.provider, count=pool.max_size,
        at_least=pool.min_size, created_us=pool.created_us,
        assemble_until_us=pool.assemble_until_us, **own,
    )  # fmt: skip


def find(connection: sa.Connection, pool: Pool) -> Cluster | None:
    """Read the cluster of a pool; None if it has none."""
    chosen = sa.select(clusters).where(clusters.c.pool_id == pool.id)
    row = connection.execute(chosen).mappings().first()
    return None if row is None else build(pool, **{name: row[name] for name in OWN})


def read(connection: sa.Connection, cluster_id: str, *, lock: bool = False) -> tuple[Pool, Cluster]:
    """Read a cluster with its pool, also after its end; raises ClusterNotFoundError."""
    try:
        pool = pool_rows.find(connection, cluster_id, deleted=True)
        pool = pool_rows.lock(connection, pool.id, deleted=True) if lock else pool
    except pool_errors.PoolNotFoundError:
        raise pool_errors.ClusterNotFoundError(cluster_id) from None
    cluster = find(connection, pool)
    if cluster is None:
        raise pool_errors.ClusterNotFoundError(cluster_id)
    return pool, cluster


def list_ids(connection: sa.Connection, *, ended: bool) -> list[str]:
    """Return the clusters, the newest first; with `ended` also those that have no members any more."""
    pools = schema.pools
    chosen = sa.select(pools.c.id).join(clusters, clusters.c.pool_id == pools.c.id)
    if not ended:
        chosen = chosen.where(pool_rows.EXISTS)
    newest = chosen.order_by(pools.c.created_us.desc(), pools.c.id)
    return list(connection.execute(newest).scalars())


def insert(connection: sa.Connection, cluster: Cluster) -> None:
    own = {name: getattr(cluster, name) for name in OWN}
    connection.execute(clusters.insert().values(pool_id=cluster.id, **own))


def refuse(connection: sa.Connection, pool: Pool) -> None:
    """Raise where a pool belongs to a cluster: its sizes and its end are the cluster's."""
    if find(connection, pool) is not None:
        raise pool_errors.MemberStateError(
            f"pool {pool.name} holds the members of a cluster",
            why="its sizes are fixed, and it ends with the cluster",
            todo=f"`overnight cluster show {pool.name}`; to end it: `overnight cluster cancel {pool.name}`",
        )
