"""The tables. migrations/ creates them; a test compares the two on both databases.

Times are µs since 1970. Heartbeats have a table of their own: `SKIP LOCKED` would skip a member whose row is
locked for a heartbeat, and a pool of one would look empty.
"""

from __future__ import annotations

import sqlalchemy as sa

__all__ = [
    "METADATA",
    "autoscales",
    "beats",
    "claims",
    "control",
    "enrolments",
    "events",
    "members",
    "pools",
    "waiters",
]

METADATA = sa.MetaData()
Instant = sa.BigInteger
ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # SQLite counts INTEGER alone


def _one_of(column: str, *words: str) -> str:
    listed = ", ".join(f"'{word}'" for word in words)
    return f"{column} IN ({listed})"


pools = sa.Table(
    "pools",
    METADATA,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("template", sa.Text, nullable=False),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("target_size", sa.Integer, nullable=False),
    sa.Column("min_size", sa.Integer, nullable=False),
    sa.Column("max_size", sa.Integer, nullable=False),
    sa.Column("lifecycle_class", sa.Text, nullable=False),
    sa.Column("provider", sa.Text, nullable=False),
    sa.Column("region", sa.Text, nullable=False),
    sa.Column("instance_type", sa.Text, nullable=False),
    sa.Column("preferred_regions", sa.JSON, nullable=False),
    sa.Column("labels", sa.JSON, nullable=False),
    sa.Column("knobs", sa.JSON, nullable=False),
    sa.Column("created_us", Instant, nullable=False),
    sa.Column("updated_us", Instant, nullable=False),
    sa.Column("failures", sa.Integer, nullable=False),
    sa.Column("last_failure", sa.Text, nullable=False),
    sa.Column("launch_not_before_us", Instant, nullable=False),
    sa.Column("breaker_opened_us", Instant),
    sa.UniqueConstraint("name", name="pools_name"),
    sa.CheckConstraint(
        "0 <= min_size AND min_size <= target_size AND target_size <= max_size", name="pools_sizes"
    ),
    sa.CheckConstraint(
        _one_of("status", "active", "paused", "draining", "archived"), name="pools_status"
    ),
    sa.CheckConstraint(_one_of("lifecycle_class", "ephemeral", "spot"), name="pools_lifecycle"),
)

members = sa.Table(
    "pool_members",
    METADATA,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("pool_id", sa.Text, sa.ForeignKey("pools.id", name="members_pool"), nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("provider", sa.Text, nullable=False),
    sa.Column("machine_id", sa.Text),
    sa.Column("address", sa.Text, nullable=False),
    sa.Column("region", sa.Text, nullable=False),
    sa.Column("cordoned", sa.Boolean, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("warming_started_us", Instant, nullable=False),
    sa.Column("launched_us", Instant),
    sa.Column("ready_us", Instant),
    sa.Column("acquired_us", Instant),
    sa.Column("missing_us", Instant),
    sa.Column("ended_us", Instant),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("next_attempt_us", Instant, nullable=False),
    sa.Column("abandoned_us", Instant),
    sa.Column("gone_us", Instant),
    sa.CheckConstraint(
        _one_of("state", "warming", "ready", "claimed", "draining", "errored"), name="members_state"
    ),
    # Only what has a machine is given out.
    sa.CheckConstraint(
        "state NOT IN ('ready', 'claimed') OR machine_id IS NOT NULL", name="members_machine"
    ),
    sa.CheckConstraint("state <> 'claimed' OR acquired_us IS NOT NULL", name="members_acquired"),
    sa.CheckConstraint("attempts >= 0", name="members_attempts"),
    # What a claim looks for: ready members of a pool, the oldest first.
    sa.Index(
        "members_claimable",
        "pool_id",
        "warming_started_us",
        "id",
        sqlite_where=sa.text("state = 'ready' AND gone_us IS NULL"),
        postgresql_where=sa.text("state = 'ready' AND gone_us IS NULL"),
    ),
    sa.Index("members_of_pool", "pool_id", "gone_us"),
)

beats = sa.Table(
    "pool_beats",
    METADATA,
    sa.Column(
        "member_id",
        sa.Text,
        sa.ForeignKey("pool_members.id", name="beats_member", ondelete="CASCADE"),
        primary_key=True,
    ),
    sa.Column("at_us", Instant, nullable=False),
    sa.Column("phase", sa.Text, nullable=False),
)

enrolments = sa.Table(
    "pool_enrolments",
    METADATA,
    sa.Column(
        "member_id",
        sa.Text,
        sa.ForeignKey("pool_members.id", name="enrolments_member", ondelete="CASCADE"),
        primary_key=True,
    ),
    sa.Column("token_hash", sa.Text, nullable=False),
    sa.Column("expires_us", Instant, nullable=False),
    sa.Column("used_us", Instant),
    sa.Column("credential_hash", sa.Text),
    sa.UniqueConstraint("token_hash", name="enrolments_token"),
    sa.UniqueConstraint("credential_hash", name="enrolments_credential"),
    # Consuming the token and issuing the credential are one.
    sa.CheckConstraint(
        "(used_us IS NULL) = (credential_hash IS NULL)", name="enrolments_used_once"
    ),
)

claims = sa.Table(
    "pool_claims",
    METADATA,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("pool_id", sa.Text, nullable=False),
    sa.Column(
        "member_id",
        sa.Text,
        sa.ForeignKey("pool_members.id", name="claims_member", ondelete="CASCADE"),
        nullable=False,
    ),
    sa.Column("acquired_by", sa.Text, nullable=False),
    sa.Column("acquired_for", sa.Text, nullable=False),
    sa.Column("acquired_us", Instant, nullable=False),
    sa.Column("lease_until_us", Instant),
    sa.Column("renewals", sa.Integer, nullable=False),
    sa.Column("batch_id", sa.Text, nullable=False),
    sa.Column("batch_place", sa.Integer, nullable=False),
    sa.Column("idempotency_key", sa.Text),
    sa.Column("waited_us", Instant, nullable=False),
    sa.Column("cold", sa.Boolean, nullable=False),
    sa.Column("stale_us", Instant),
    sa.Column("released_us", Instant),
    sa.Column("release_reason", sa.Text, nullable=False),
    # The database itself refuses a second open claim on a member, and a key used twice.
    sa.Index(
        "claims_one_open",
        "member_id",
        unique=True,
        sqlite_where=sa.text("released_us IS NULL"),
        postgresql_where=sa.text("released_us IS NULL"),
    ),
    sa.Index(
        "claims_key",
        "pool_id",
        "idempotency_key",
        "batch_place",
        unique=True,
        sqlite_where=sa.text("idempotency_key IS NOT NULL"),
        postgresql_where=sa.text("idempotency_key IS NOT NULL"),
    ),
    sa.Index("claims_of_pool", "pool_id", "acquired_us"),
)

waiters = sa.Table(
    "pool_waiters",
    METADATA,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column(
        "pool_id",
        sa.Text,
        sa.ForeignKey("pools.id", name="waiters_pool", ondelete="CASCADE"),
        nullable=False,
    ),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("wanted", sa.Integer, nullable=False),
    sa.Column("queued_us", Instant, nullable=False),
    sa.Column("seen_us", Instant, nullable=False),
    sa.Column("acquired_by", sa.Text, nullable=False),
    sa.CheckConstraint("wanted > 0", name="waiters_wanted"),
    sa.Index("waiters_of_pool", "pool_id", "priority", "queued_us"),
)

events = sa.Table(
    "pool_events",
    METADATA,
    sa.Column("id", ROW_ID, primary_key=True, autoincrement=True),
    sa.Column("at_us", Instant, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("pool_id", sa.Text, nullable=False),
    sa.Column("pool", sa.Text, nullable=False),
    sa.Column("member_id", sa.Text, nullable=False),
    sa.Column("claim_id", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
    sa.Index("events_of_pool", "pool_id", "id"),
    # Claims that missed are demand, and looked at every few seconds where a size follows it.
    sa.Index(
        "events_missed",
        "pool_id",
        "at_us",
        sqlite_where=sa.text("kind = 'claim_missed'"),
        postgresql_where=sa.text("kind = 'claim_missed'"),
    ),
)

# A policy and what came of it. Whoever changes it holds the row of its pool.
autoscales = sa.Table(
    "pool_autoscales",
    METADATA,
    sa.Column(
        "pool_id",
        sa.Text,
        sa.ForeignKey("pools.id", name="autoscales_pool", ondelete="CASCADE"),
        primary_key=True,
    ),
    sa.Column("miss", sa.Double, nullable=False),
    sa.Column("min_size", sa.Integer),
    sa.Column("max_size", sa.Integer),
    sa.Column("warm_up_seconds", sa.Double),
    sa.Column("window_seconds", sa.Double, nullable=False),
    sa.Column("cooldown_seconds", sa.Double, nullable=False),
    sa.Column("zero_after_seconds", sa.Double),
    sa.Column("burst_mean", sa.Double, nullable=False),
    sa.Column("burst_spread", sa.Double, nullable=False),
    sa.Column("openings", sa.JSON, nullable=False),
    sa.Column("since_us", Instant, nullable=False),
    sa.Column("memory", sa.JSON, nullable=False),
    sa.Column("decided_us", Instant, nullable=False),
    sa.Column("wanted_size", sa.Integer, nullable=False),
    sa.Column("cause", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("changed_us", Instant),
    sa.Column("measured_us", Instant, nullable=False),
    sa.Column("measured_warm_up_seconds", sa.Double),
    sa.CheckConstraint(
        "min_size IS NULL OR max_size IS NULL OR min_size <= max_size", name="autoscales_sizes"
    ),
    sa.CheckConstraint("miss > 0 AND miss < 1", name="autoscales_miss"),
)

control = sa.Table(
    "pool_control",
    METADATA,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)
