"""One-shot clusters, and why a pool launches nothing."""

from __future__ import annotations

import sqlalchemy as sa

from overnight.database import columns

revision = "0009"
down_revision = "0008"


def upgrade(op: columns.Operations) -> None:
    """Make the table of clusters; the pool of each has its template, sizes and members."""
    # Until then a paused pool launches members for its cluster, and nobody else claims them.
    op.add_column("pools", *columns.optional(columns.Instant, "assemble_until_us"))
    op.add_column("pools", *columns.optional(sa.Text, "launch_skipped"))
    op.create_table(
        "pool_clusters",
        columns.reference("pool_id", "pools.id", "clusters_pool", key=True),
        *columns.required(sa.Integer, "lease_seconds"),
        *columns.required(sa.Text, "acquired_by", "acquired_for"),
        *columns.optional(columns.Instant, "held_us", "ended_us"),
        *columns.required(sa.Text, "reason"),
        sa.CheckConstraint("lease_seconds > 0", name="clusters_lease"),
    )
