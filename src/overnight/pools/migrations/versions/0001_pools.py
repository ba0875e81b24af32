"""Pools, members, claims, waiters, events."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from overnight.pools.sql import schema

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the first tables."""
    op.create_table(
        "pool_control",
        sa.Column("name", sa.Text, primary_key=True),
        *schema.required(sa.Text, "value"),
    )
    op.create_table(
        "pool_events",
        sa.Column("id", schema.ROW_ID, primary_key=True, autoincrement=True),
        *schema.required(schema.Instant, "at_us"),
        *schema.required(
            sa.Text, "kind", "pool_id", "pool", "member_id", "claim_id", "reason", "detail"
        ),
        sa.Index("events_of_pool", "pool_id", "id"),
    )
    op.create_table(
        "pools",
        sa.Column("id", sa.Text, primary_key=True),
        *schema.required(sa.Text, "name", "status", "template"),
        *schema.required(sa.Integer, "generation", "target_size", "min_size", "max_size"),
        *schema.required(sa.Text, "lifecycle_class", "provider", "region", "instance_type"),
        *schema.required(sa.JSON, "preferred_regions", "labels", "knobs"),
        *schema.required(schema.Instant, "created_us", "updated_us"),
        *schema.required(sa.Integer, "failures"),
        *schema.required(sa.Text, "last_failure"),
        *schema.required(schema.Instant, "launch_not_before_us"),
        *schema.optional(schema.Instant, "breaker_opened_us"),
        sa.UniqueConstraint("name", name="pools_name"),
        sa.CheckConstraint(
            "0 <= min_size AND min_size <= target_size AND target_size <= max_size",
            name="pools_sizes",
        ),
        schema.one_of("pools_status", "status", "active", "paused", "draining", "archived"),
        schema.one_of("pools_lifecycle", "lifecycle_class", "ephemeral", "spot"),
    )
    op.create_table(
        "pool_members",
        sa.Column("id", sa.Text, primary_key=True),
        schema.reference("pool_id", "pools.id", "members_pool", ondelete=None),
        *schema.required(sa.Text, "state"),
        *schema.required(sa.Integer, "generation"),
        *schema.required(sa.Text, "provider"),
        *schema.optional(sa.Text, "machine_id"),
        *schema.required(sa.Text, "address", "region"),
        *schema.required(sa.Boolean, "cordoned"),
        *schema.required(sa.Text, "reason"),
        *schema.required(schema.Instant, "warming_started_us"),
        *schema.optional(
            schema.Instant, "launched_us", "ready_us", "acquired_us", "missing_us", "ended_us"
        ),
        *schema.required(sa.Integer, "attempts"),
        *schema.required(schema.Instant, "next_attempt_us"),
        *schema.optional(schema.Instant, "abandoned_us", "gone_us"),
        schema.one_of(
            "members_state", "state", "warming", "ready", "claimed", "draining", "errored"
        ),
        sa.CheckConstraint(
            "state NOT IN ('ready', 'claimed') OR machine_id IS NOT NULL", name="members_machine"
        ),
        sa.CheckConstraint(
            "state <> 'claimed' OR acquired_us IS NOT NULL", name="members_acquired"
        ),
        sa.CheckConstraint("attempts >= 0", name="members_attempts"),
        schema.partial_index(
            "members_claimable",
            "state = 'ready' AND gone_us IS NULL",
            *("pool_id", "warming_started_us", "id"),
        ),
        sa.Index("members_of_pool", "pool_id", "gone_us"),
    )
    op.create_table(
        "pool_waiters",
        sa.Column("id", sa.Text, primary_key=True),
        schema.reference("pool_id", "pools.id", "waiters_pool"),
        *schema.required(sa.Integer, "priority", "wanted"),
        *schema.required(schema.Instant, "queued_us", "seen_us"),
        *schema.required(sa.Text, "acquired_by"),
        sa.CheckConstraint("wanted > 0", name="waiters_wanted"),
        sa.Index("waiters_of_pool", "pool_id", "priority", "queued_us"),
    )
    op.create_table(
        "pool_beats",
        schema.reference("member_id", "pool_members.id", "beats_member", key=True),
        *schema.required(schema.Instant, "at_us"),
        *schema.required(sa.Text, "phase"),
    )
    op.create_table(
        "pool_claims",
        sa.Column("id", sa.Text, primary_key=True),
        *schema.required(sa.Text, "pool_id"),
        schema.reference("member_id", "pool_members.id", "claims_member"),
        *schema.required(sa.Text, "acquired_by", "acquired_for"),
        *schema.required(schema.Instant, "acquired_us"),
        *schema.optional(schema.Instant, "lease_until_us"),
        *schema.required(sa.Integer, "renewals"),
        *schema.required(sa.Text, "batch_id"),
        *schema.required(sa.Integer, "batch_place"),
        *schema.optional(sa.Text, "idempotency_key"),
        *schema.required(schema.Instant, "waited_us"),
        *schema.required(sa.Boolean, "cold"),
        *schema.optional(schema.Instant, "stale_us", "released_us"),
        *schema.required(sa.Text, "release_reason"),
        schema.partial_index("claims_one_open", "released_us IS NULL", "member_id", unique=True),
        schema.partial_index(
            "claims_key",
            "idempotency_key IS NOT NULL",
            *("pool_id", "idempotency_key", "batch_place"),
            unique=True,
        ),
        sa.Index("claims_of_pool", "pool_id", "acquired_us"),
    )
    op.create_table(
        "pool_enrolments",
        schema.reference("member_id", "pool_members.id", "enrolments_member", key=True),
        *schema.required(sa.Text, "token_hash"),
        *schema.required(schema.Instant, "expires_us"),
        *schema.optional(schema.Instant, "used_us"),
        *schema.optional(sa.Text, "credential_hash"),
        sa.UniqueConstraint("token_hash", name="enrolments_token"),
        sa.UniqueConstraint("credential_hash", name="enrolments_credential"),
        sa.CheckConstraint(
            "(used_us IS NULL) = (credential_hash IS NULL)", name="enrolments_used_once"
        ),
    )
