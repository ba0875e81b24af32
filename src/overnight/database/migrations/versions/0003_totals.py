"""Totals of events that are never deleted, and since when a pool is empty."""

from __future__ import annotations

import sqlalchemy as sa

from overnight.database import columns

revision = "0003"
down_revision = "0002"


def upgrade(op: columns.Operations) -> None:
    """Make the table of totals; they count from here on, because older events may have been deleted."""
    op.add_column("pools", *columns.optional(columns.Instant, "empty_since_us"))
    # A wait, warm-up or lifetime.
    op.add_column("pool_events", *columns.optional(columns.Instant, "took_us"))
    # Events outlive their rows here, summed by the smallest bucket limit that their duration does not exceed.
    op.create_table(
        "pool_totals",
        *columns.required(sa.Text, "pool_id", "kind", "reason"),
        *columns.required(columns.Instant, "limit_us", "number", "took_us"),
        sa.PrimaryKeyConstraint("pool_id", "kind", "reason", "limit_us"),
    )
    op.execute(
        "INSERT INTO pool_control (name, value) "
        "SELECT 'events_counted', CAST(COALESCE(MAX(id), 0) AS TEXT) FROM pool_events"
    )
