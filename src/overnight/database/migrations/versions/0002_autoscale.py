"""Sizes that follow their demand."""

from __future__ import annotations

import sqlalchemy as sa

from overnight.database import columns

revision = "0002"
down_revision = "0001"


def upgrade(op: columns.Operations) -> None:
    """Make the table of policies, and find missed claims quickly."""
    # A policy and its last decision. Changed only under the lock of the pool's row.
    op.create_table(
        "pool_autoscales",
        columns.reference("pool_id", "pools.id", "autoscales_pool", key=True),
        *columns.required(sa.Double, "miss"),
        *columns.optional(sa.Integer, "min_size", "max_size"),
        *columns.optional(sa.Double, "warm_up_seconds"),
        *columns.required(sa.Double, "window_seconds", "cooldown_seconds"),
        *columns.optional(sa.Double, "zero_after_seconds"),
        *columns.required(sa.Double, "burst_mean", "burst_spread"),
        *columns.required(sa.JSON, "openings"),
        *columns.required(columns.Instant, "since_us"),
        *columns.required(sa.JSON, "memory"),
        *columns.required(columns.Instant, "decided_us"),
        *columns.required(sa.Integer, "wanted_size"),
        *columns.required(sa.Text, "cause", "reason"),
        *columns.optional(columns.Instant, "changed_us"),
        *columns.required(columns.Instant, "measured_us"),
        *columns.optional(sa.Double, "measured_warm_up_seconds"),
        sa.CheckConstraint(
            "min_size IS NULL OR max_size IS NULL OR min_size <= max_size", name="autoscales_sizes"
        ),
        sa.CheckConstraint("miss > 0 AND miss < 1", name="autoscales_miss"),
    )
    # Missed claims are demand; an autoscaled pool reads them every few seconds.
    op.create_index(
        "events_missed",
        "pool_events",
        ["pool_id", "at_us"],
        unique=False,
        sqlite_where=sa.text("kind = 'claim_missed'"),
        postgresql_where=sa.text("kind = 'claim_missed'"),
    )
