"""Sizes that follow their demand."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the table of policies, and find missed claims quickly."""
    op.create_table(
        "pool_autoscales",
        sa.Column("pool_id", sa.Text(), nullable=False),
        sa.Column("miss", sa.Double(), nullable=False),
        sa.Column("min_size", sa.Integer(), nullable=True),
        sa.Column("max_size", sa.Integer(), nullable=True),
        sa.Column("warm_up_seconds", sa.Double(), nullable=True),
        sa.Column("window_seconds", sa.Double(), nullable=False),
        sa.Column("cooldown_seconds", sa.Double(), nullable=False),
        sa.Column("zero_after_seconds", sa.Double(), nullable=True),
        sa.Column("burst_mean", sa.Double(), nullable=False),
        sa.Column("burst_spread", sa.Double(), nullable=False),
        sa.Column("openings", sa.JSON(), nullable=False),
        sa.Column("since_us", sa.BigInteger(), nullable=False),
        sa.Column("memory", sa.JSON(), nullable=False),
        sa.Column("decided_us", sa.BigInteger(), nullable=False),
        sa.Column("wanted_size", sa.Integer(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("changed_us", sa.BigInteger(), nullable=True),
        sa.Column("measured_us", sa.BigInteger(), nullable=False),
        sa.Column("measured_warm_up_seconds", sa.Double(), nullable=True),
        sa.CheckConstraint(
            "min_size IS NULL OR max_size IS NULL OR min_size <= max_size", name="autoscales_sizes"
        ),
        sa.CheckConstraint("miss > 0 AND miss < 1", name="autoscales_miss"),
        sa.ForeignKeyConstraint(
            ["pool_id"], ["pools.id"], name="autoscales_pool", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("pool_id"),
    )
    op.create_index(
        "events_missed",
        "pool_events",
        ["pool_id", "at_us"],
        unique=False,
        sqlite_where=sa.text("kind = 'claim_missed'"),
        postgresql_where=sa.text("kind = 'claim_missed'"),
    )
