"""Sizes that follow their demand."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from overnight.pools.sql import schema

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the table of policies, and find missed claims quickly."""
    op.create_table(
        "pool_autoscales",
        schema.reference("pool_id", "pools.id", "autoscales_pool", key=True),
        *schema.required(sa.Double, "miss"),
        *schema.optional(sa.Integer, "min_size", "max_size"),
        *schema.optional(sa.Double, "warm_up_seconds"),
        *schema.required(sa.Double, "window_seconds", "cooldown_seconds"),
        *schema.optional(sa.Double, "zero_after_seconds"),
        *schema.required(sa.Double, "burst_mean", "burst_spread"),
        *schema.required(sa.JSON, "openings"),
        *schema.required(schema.Instant, "since_us"),
        *schema.required(sa.JSON, "memory"),
        *schema.required(schema.Instant, "decided_us"),
        *schema.required(sa.Integer, "wanted_size"),
        *schema.required(sa.Text, "cause", "reason"),
        *schema.optional(schema.Instant, "changed_us"),
        *schema.required(schema.Instant, "measured_us"),
        *schema.optional(sa.Double, "measured_warm_up_seconds"),
        sa.CheckConstraint(
            "min_size IS NULL OR max_size IS NULL OR min_size <= max_size", name="autoscales_sizes"
        ),
        sa.CheckConstraint("miss > 0 AND miss < 1", name="autoscales_miss"),
    )
    op.create_index(
        "events_missed",
        "pool_events",
        ["pool_id", "at_us"],
        unique=False,
        sqlite_where=sa.text("kind = 'claim_missed'"),
        postgresql_where=sa.text("kind = 'claim_missed'"),
    )
