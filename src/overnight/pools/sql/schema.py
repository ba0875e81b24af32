"""The tables of pools. Migrations create them, with the same functions; a test compares the two on both databases.

Heartbeats have a table of their own: `SKIP LOCKED` would skip a member whose row is locked for a heartbeat, and
a pool of one would look empty.
"""

from __future__ import annotations

import sqlalchemy as sa

from overnight.database import columns

pools = sa.Table(
    "pools",
    columns.METADATA,
    sa.Column("id", sa.Text, primary_key=True),
    *columns.required(sa.Text, "name", "status", "template"),
    *columns.required(sa.Integer, "generation", "target_size", "min_size", "max_size"),
    *columns.required(sa.Text, "lifecycle_class", "provider", "region", "instance_type"),
    *columns.required(sa.JSON, "preferred_regions", "labels", "knobs"),
    *columns.required(columns.Instant, "created_us", "updated_us"),
    *columns.required(sa.Integer, "failures"),
    *columns.required(sa.Text, "last_failure"),
    *columns.required(columns.Instant, "launch_not_before_us"),
    *columns.optional(columns.Instant, "breaker_opened_us", "empty_since_us", "deleted_us"),
    sa.UniqueConstraint("name", name="pools_name"),
    sa.CheckConstraint(
        "0 <= min_size AND min_size <= target_size AND target_size <= max_size", name="pools_sizes"
    ),
    columns.one_of("pools_status", "status", "active", "paused", "draining", "archived"),
    columns.one_of("pools_lifecycle", "lifecycle_class", "ephemeral", "spot"),
)

members = sa.Table(
    "pool_members",
    columns.METADATA,
    sa.Column("id", sa.Text, primary_key=True),
    columns.reference("pool_id", "pools.id", "members_pool", ondelete=None),
    *columns.required(sa.Text, "state"),
    *columns.required(sa.Integer, "generation"),
    *columns.required(sa.Text, "provider"),
    *columns.optional(sa.Text, "machine_id"),
    *columns.required(sa.Text, "address", "region"),
    *columns.optional(sa.Text, "host"),
    *columns.required(sa.Boolean, "cordoned"),
    *columns.required(sa.Text, "reason"),
    *columns.required(columns.Instant, "warming_started_us"),
    *columns.optional(
        columns.Instant, "launched_us", "ready_us", "acquired_us", "missing_us", "ended_us"
    ),
    *columns.required(sa.Integer, "attempts"),
    *columns.required(columns.Instant, "next_attempt_us"),
    *columns.optional(columns.Instant, "abandoned_us", "gone_us"),
    columns.one_of("members_state", "state", "warming", "ready", "claimed", "draining", "errored"),
    # Only what has a machine is given out.
    sa.CheckConstraint(
        "state NOT IN ('ready', 'claimed') OR machine_id IS NOT NULL", name="members_machine"
    ),
    sa.CheckConstraint("state <> 'claimed' OR acquired_us IS NOT NULL", name="members_acquired"),
    sa.CheckConstraint("attempts >= 0", name="members_attempts"),
    # What a claim looks for: ready members of a pool, the oldest first.
    columns.partial_index(
        "members_claimable",
        "state = 'ready' AND gone_us IS NULL",
        *("pool_id", "warming_started_us", "id"),
    ),
    sa.Index("members_of_pool", "pool_id", "gone_us"),
)

beats = sa.Table(
    "pool_beats",
    columns.METADATA,
    columns.reference("member_id", "pool_members.id", "beats_member", key=True),
    *columns.required(columns.Instant, "at_us"),
    *columns.required(sa.Text, "phase"),
)

enrolments = sa.Table(
    "pool_enrolments",
    columns.METADATA,
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

claims = sa.Table(
    "pool_claims",
    columns.METADATA,
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

waiters = sa.Table(
    "pool_waiters",
    columns.METADATA,
    sa.Column("id", sa.Text, primary_key=True),
    columns.reference("pool_id", "pools.id", "waiters_pool"),
    *columns.required(sa.Integer, "priority", "wanted"),
    *columns.required(columns.Instant, "queued_us", "seen_us"),
    *columns.required(sa.Text, "acquired_by"),
    sa.CheckConstraint("wanted > 0", name="waiters_wanted"),
    sa.Index("waiters_of_pool", "pool_id", "priority", "queued_us"),
)

events = sa.Table(
    "pool_events",
    columns.METADATA,
    sa.Column("id", columns.ROW_ID, primary_key=True, autoincrement=True),
    *columns.required(columns.Instant, "at_us"),
    *columns.required(
        sa.Text, "kind", "pool_id", "pool", "member_id", "claim_id", "reason", "detail"
    ),
    *columns.optional(columns.Instant, "took_us"),  # a wait, warm-up or lifetime
    sa.Index("events_of_pool", "pool_id", "id"),
    # Missed claims are demand; an autoscaled pool reads them every few seconds.
    columns.partial_index("events_missed", "kind = 'claim_missed'", "pool_id", "at_us"),
)

# Events outlive their rows here, summed by the smallest bucket limit that their duration does not exceed.
totals = sa.Table(
    "pool_totals",
    columns.METADATA,
    *(sa.Column(name, sa.Text, primary_key=True) for name in ("pool_id", "kind", "reason")),
    sa.Column("limit_us", columns.Instant, primary_key=True, autoincrement=False),
    *columns.required(columns.Instant, "number", "took_us"),
)

# A policy and its last decision. Changed only under the lock of the pool's row.
autoscales = sa.Table(
    "pool_autoscales",
    columns.METADATA,
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

control = sa.Table(
    "pool_control",
    columns.METADATA,
    sa.Column("name", sa.Text, primary_key=True),
    *columns.required(sa.Text, "value"),
)
