"""Pools, members, claims, waiters, events."""

from __future__ import annotations

import sqlalchemy as sa

from overnight.database import columns

revision = "0001"
down_revision = None


def upgrade(op: columns.Operations) -> None:
    """Make the first tables."""
    op.create_table(
        "pool_control",
        sa.Column("name", sa.Text, primary_key=True),
        *columns.required(sa.Text, "value"),
    )
    op.create_table(
        "pool_events",
        sa.Column("id", columns.ROW_ID, primary_key=True, autoincrement=True),
        *columns.required(columns.Instant, "at_us"),
        *columns.required(
            sa.Text, "kind", "pool_id", "pool", "member_id", "claim_id", "reason", "detail"
        ),
        sa.Index("events_of_pool", "pool_id", "id"),
    )
    op.create_table(
        "pools",
        sa.Column("id", sa.Text, primary_key=True),
        *columns.required(sa.Text, "name", "status", "template"),
        *columns.required(sa.Integer, "generation", "target_size", "min_size", "max_size"),
        *columns.required(sa.Text, "lifecycle_class", "provider", "region", "instance_type"),
        *columns.required(sa.JSON, "preferred_regions", "labels", "knobs"),
        *columns.required(columns.Instant, "created_us", "updated_us"),
        *columns.required(sa.Integer, "failures"),
        *columns.required(sa.Text, "last_failure"),
        *columns.required(columns.Instant, "launch_not_before_us"),
        *columns.optional(columns.Instant, "breaker_opened_us"),
        sa.UniqueConstraint("name", name="pools_name"),
        sa.CheckConstraint(
            "0 <= min_size AND min_size <= target_size AND target_size <= max_size",
            name="pools_sizes",
        ),
        columns.one_of("pools_status", "status", "active", "paused", "draining", "archived"),
        columns.one_of("pools_lifecycle", "lifecycle_class", "ephemeral", "spot"),
    )
    op.create_table(
        "pool_members",
        sa.Column("id", sa.Text, primary_key=True),
        columns.reference("pool_id", "pools.id", "members_pool", ondelete=None),
        *columns.required(sa.Text, "state"),
        *columns.required(sa.Integer, "generation"),
        *columns.required(sa.Text, "provider"),
        *columns.optional(sa.Text, "machine_id"),
        *columns.required(sa.Text, "address", "region"),
        *columns.required(sa.Boolean, "cordoned"),
        *columns.required(sa.Text, "reason"),
        *columns.required(columns.Instant, "warming_started_us"),
        *columns.optional(
            columns.Instant, "launched_us", "ready_us", "acquired_us", "missing_us", "ended_us"
        ),
        *columns.required(sa.Integer, "attempts"),
        *columns.required(columns.Instant, "next_attempt_us"),
        *columns.optional(columns.Instant, "abandoned_us", "gone_us"),
        columns.one_of(
            "members_state", "state", "warming", "ready", "claimed", "draining", "errored"
        ),
        # Only what has a machine is given out.
        sa.CheckConstraint(
            "state NOT IN ('ready', 'claimed') OR machine_id IS NOT NULL", name="members_machine"
        ),
        sa.CheckConstraint(
            "state <> 'claimed' OR acquired_us IS NOT NULL", name="members_acquired"
        ),
        sa.CheckConstraint("attempts >= 0", name="members_attempts"),
        # What a claim looks for: ready members of a pool, the oldest first.
        columns.partial_index(
            "members_claimable",
            "state = 'ready' AND gone_us IS NULL",
            *("pool_id", "warming_started_us", "id"),
        ),
        sa.Index("members_of_pool", "pool_id", "gone_us"),
    )
    op.create_table(
        "pool_waiters",
        sa.Column("id", sa.Text, primary_key=True),
        columns.reference("pool_id", "pools.id", "waiters_pool"),
        *columns.required(sa.Integer, "priority", "wanted"),
        *columns.required(columns.Instant, "queued_us", "seen_us"),
        *columns.required(sa.Text, "acquired_by"),
        sa.CheckConstraint("wanted > 0", name="waiters_wanted"),
        sa.Index("waiters_of_pool", "pool_id", "priority", "queued_us"),
    )
    # Of their own: `SKIP LOCKED` would skip a member whose row is locked for a heartbeat, and a pool of one would
    # look empty.
    op.create_table(
        "pool_beats",
        columns.reference("member_id", "pool_members.id", "beats_member", key=True),
        *columns.required(columns.Instant, "at_us"),
        *columns.required(sa.Text, "phase"),
    )
    op.create_table(
        "pool_claims",
        sa.Column("id", sa.Text, primary_key=True),
        *columns.required(sa.Text, "pool_id"),
        columns.reference("member_id", "pool_members.id", "claims_member"),
        *columns.required(sa.Text, "acquired_by", "acquired_for"),
        *columns.required(columns.Instant, "acquired_us"),
        *columns.optional(columns.Instant, "lease_until_us"),
        *columns.required(sa.Integer, "renewals"),
        *columns.required(sa.Text, "batch_id"),
        *columns.required(sa.Integer, "batch_place"),
        *columns.optional(sa.Text, "idempotency_key"),
        *columns.required(columns.Instant, "waited_us"),
        *columns.required(sa.Boolean, "cold"),
        *columns.optional(columns.Instant, "stale_us", "released_us"),
        *columns.required(sa.Text, "release_reason"),
        # The database itself refuses a second open claim on a member, and a key used twice.
        columns.partial_index("claims_one_open", "released_us IS NULL", "member_id", unique=True),
        columns.partial_index(
            "claims_key",
            "idempotency_key IS NOT NULL",
            *("pool_id", "idempotency_key", "batch_place"),
            unique=True,
        ),
        sa.Index("claims_of_pool", "pool_id", "acquired_us"),
    )
    op.create_table(
        "pool_enrolments",
        columns.reference("member_id", "pool_members.id", "enrolments_member", key=True),
        *columns.required(sa.Text, "token_hash"),
        *columns.required(columns.Instant, "expires_us"),
        *columns.optional(columns.Instant, "used_us"),
        *columns.optional(sa.Text, "credential_hash"),
        sa.UniqueConstraint("token_hash", name="enrolments_token"),
        sa.UniqueConstraint("credential_hash", name="enrolments_credential"),
        # Consuming the token and issuing the credential are one.
        sa.CheckConstraint(
            "(used_us IS NULL) = (credential_hash IS NULL)", name="enrolments_used_once"
        ),
    )
