"""Pools, members, claims, waiters, events."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the first tables."""
    op.create_table(
        "pool_control",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "pool_events",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("at_us", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("pool_id", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("member_id", sa.Text(), nullable=False),
        sa.Column("claim_id", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("events_of_pool", "pool_events", ["pool_id", "id"], unique=False)
    op.create_table(
        "pools",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("template", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("target_size", sa.Integer(), nullable=False),
        sa.Column("min_size", sa.Integer(), nullable=False),
        sa.Column("max_size", sa.Integer(), nullable=False),
        sa.Column("lifecycle_class", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("instance_type", sa.Text(), nullable=False),
        sa.Column("preferred_regions", sa.JSON(), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("knobs", sa.JSON(), nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.Column("updated_us", sa.BigInteger(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("last_failure", sa.Text(), nullable=False),
        sa.Column("launch_not_before_us", sa.BigInteger(), nullable=False),
        sa.Column("breaker_opened_us", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("lifecycle_class IN ('ephemeral', 'spot')", name="pools_lifecycle"),
        sa.CheckConstraint(
            "status IN ('active', 'paused', 'draining', 'archived')", name="pools_status"
        ),
        sa.CheckConstraint(
            "0 <= min_size AND min_size <= target_size AND target_size <= max_size",
            name="pools_sizes",
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name", name="pools_name"),
    )
    op.create_table(
        "pool_members",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("pool_id", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("machine_id", sa.Text(), nullable=True),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("cordoned", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("warming_started_us", sa.BigInteger(), nullable=False),
        sa.Column("launched_us", sa.BigInteger(), nullable=True),
        sa.Column("ready_us", sa.BigInteger(), nullable=True),
        sa.Column("acquired_us", sa.BigInteger(), nullable=True),
        sa.Column("missing_us", sa.BigInteger(), nullable=True),
        sa.Column("ended_us", sa.BigInteger(), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_attempt_us", sa.BigInteger(), nullable=False),
        sa.Column("abandoned_us", sa.BigInteger(), nullable=True),
        sa.Column("gone_us", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "state <> 'claimed' OR acquired_us IS NOT NULL", name="members_acquired"
        ),
        sa.CheckConstraint(
            "state IN ('warming', 'ready', 'claimed', 'draining', 'errored')", name="members_state"
        ),
        sa.CheckConstraint(
            "state NOT IN ('ready', 'claimed') OR machine_id IS NOT NULL", name="members_machine"
        ),
        sa.CheckConstraint("attempts >= 0", name="members_attempts"),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name="members_pool"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "members_claimable",
        "pool_members",
        ["pool_id", "warming_started_us", "id"],
        unique=False,
        sqlite_where=sa.text("state = 'ready' AND gone_us IS NULL"),
        postgresql_where=sa.text("state = 'ready' AND gone_us IS NULL"),
    )
    op.create_index("members_of_pool", "pool_members", ["pool_id", "gone_us"], unique=False)
    op.create_table(
        "pool_waiters",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("pool_id", sa.Text(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("wanted", sa.Integer(), nullable=False),
        sa.Column("queued_us", sa.BigInteger(), nullable=False),
        sa.Column("seen_us", sa.BigInteger(), nullable=False),
        sa.Column("acquired_by", sa.Text(), nullable=False),
        sa.CheckConstraint("wanted > 0", name="waiters_wanted"),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name="waiters_pool", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "waiters_of_pool", "pool_waiters", ["pool_id", "priority", "queued_us"], unique=False
    )
    op.create_table(
        "pool_beats",
        sa.Column("member_id", sa.Text(), nullable=False),
        sa.Column("at_us", sa.BigInteger(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["member_id"], ["pool_members.id"], name="beats_member", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("member_id"),
    )
    op.create_table(
        "pool_claims",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("pool_id", sa.Text(), nullable=False),
        sa.Column("member_id", sa.Text(), nullable=False),
        sa.Column("acquired_by", sa.Text(), nullable=False),
        sa.Column("acquired_for", sa.Text(), nullable=False),
        sa.Column("acquired_us", sa.BigInteger(), nullable=False),
        sa.Column("lease_until_us", sa.BigInteger(), nullable=True),
        sa.Column("renewals", sa.Integer(), nullable=False),
        sa.Column("batch_id", sa.Text(), nullable=False),
        sa.Column("batch_place", sa.Integer(), nullable=False),
        sa.Column("idempotency_key", sa.Text(), nullable=True),
        sa.Column("waited_us", sa.BigInteger(), nullable=False),
        sa.Column("cold", sa.Boolean(), nullable=False),
        sa.Column("stale_us", sa.BigInteger(), nullable=True),
        sa.Column("released_us", sa.BigInteger(), nullable=True),
        sa.Column("release_reason", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["member_id"], ["pool_members.id"], name="claims_member", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "claims_key",
        "pool_claims",
        ["pool_id", "idempotency_key", "batch_place"],
        unique=True,
        sqlite_where=sa.text("idempotency_key IS NOT NULL"),
        postgresql_where=sa.text("idempotency_key IS NOT NULL"),
    )
    op.create_index("claims_of_pool", "pool_claims", ["pool_id", "acquired_us"], unique=False)
    op.create_index(
        "claims_one_open",
        "pool_claims",
        ["member_id"],
        unique=True,
        sqlite_where=sa.text("released_us IS NULL"),
        postgresql_where=sa.text("released_us IS NULL"),
    )
    op.create_table(
        "pool_enrolments",
        sa.Column("member_id", sa.Text(), nullable=False),
        sa.Column("token_hash", sa.Text(), nullable=False),
        sa.Column("expires_us", sa.BigInteger(), nullable=False),
        sa.Column("used_us", sa.BigInteger(), nullable=True),
        sa.Column("credential_hash", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "(used_us IS NULL) = (credential_hash IS NULL)", name="enrolments_used_once"
        ),
        sa.ForeignKeyConstraint(
            ["member_id"], ["pool_members.id"], name="enrolments_member", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("member_id"),
        sa.UniqueConstraint("credential_hash", name="enrolments_credential"),
        sa.UniqueConstraint("token_hash", name="enrolments_token"),
    )
