"""The tables. migrations/ creates them, with the same functions; a test compares the two on both databases.

Times are µs since 1970. Heartbeats have a table of their own: `SKIP LOCKED` would skip a member whose row is
locked for a heartbeat, and a pool of one would look empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

METADATA = sa.MetaData()
Instant = sa.BigInteger
ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # SQLite counts INTEGER alone


# Migrations use the functions below: what they return never changes.


def required(kind: type[sa.types.TypeEngine[Any]], *names: str) -> Iterator[sa.Column[Any]]:
    return (sa.Column(name, kind, nullable=False) for name in names)


def optional(kind: type[sa.types.TypeEngine[Any]], *names: str) -> Iterator[sa.Column[Any]]:
    return (sa.Column(name, kind) for name in names)


def reference(
    name: str, target: str, constraint: str, *, ondelete: str | None = "CASCADE", key: bool = False
) -> sa.Column[str]:
    reference = sa.ForeignKey(target, name=constraint, ondelete=ondelete)
    return sa.Column(name, sa.Text, reference, primary_key=key, nullable=False)


def one_of(constraint: str, column: str, *words: str) -> sa.CheckConstraint:
    listed = ", ".join(f"'{word}'" for word in words)
    return sa.CheckConstraint(f"{column} IN ({listed})", name=constraint)


def partial_index(name: str, where: str, *columns: str, unique: bool = False) -> sa.Index:
    condition = sa.text(where)
    return sa.Index(
        name, *columns, unique=unique, sqlite_where=condition, postgresql_where=condition
    )


pools = sa.Table(
    "pools",
    METADATA,
    sa.Column("id", sa.Text, primary_key=True),
    *required(sa.Text, "name", "status", "template"),
    *required(sa.Integer, "generation", "target_size", "min_size", "max_size"),
    *required(sa.Text, "lifecycle_class", "provider", "region", "instance_type"),
    *required(sa.JSON, "preferred_regions", "labels", "knobs"),
    *required(Instant, "created_us", "updated_us"),
    *required(sa.Integer, "failures"),
    *required(sa.Text, "last_failure"),
    *required(Instant, "launch_not_before_us"),
    *optional(Instant, "breaker_opened_us", "empty_since_us", "deleted_us"),
    sa.UniqueConstraint("name", name="pools_name"),
    sa.CheckConstraint(
        "0 <= min_size AND min_size <= target_size AND target_size <= max_size", name="pools_sizes"
    ),
    one_of("pools_status", "status", "active", "paused", "draining", "archived"),
    one_of("pools_lifecycle", "lifecycle_class", "ephemeral", "spot"),
)

members = sa.Table(
    "pool_members",
    METADATA,
    sa.Column("id", sa.Text, primary_key=True),
    reference("pool_id", "pools.id", "members_pool", ondelete=None),
    *required(sa.Text, "state"),
    *required(sa.Integer, "generation"),
    *required(sa.Text, "provider"),
    *optional(sa.Text, "machine_id"),
    *required(sa.Text, "address", "region"),
    *optional(sa.Text, "host"),
    *required(sa.Boolean, "cordoned"),
    *required(sa.Text, "reason"),
    *required(Instant, "warming_started_us"),
    *optional(Instant, "launched_us", "ready_us", "acquired_us", "missing_us", "ended_us"),
    *required(sa.Integer, "attempts"),
    *required(Instant, "next_attempt_us"),
    *optional(Instant, "abandoned_us", "gone_us"),
    one_of("members_state", "state", "warming", "ready", "claimed", "draining", "errored"),
    # Only what has a machine is given out.
    sa.CheckConstraint(
        "state NOT IN ('ready', 'claimed') OR machine_id IS NOT NULL", name="members_machine"
    ),
    sa.CheckConstraint("state <> 'claimed' OR acquired_us IS NOT NULL", name="members_acquired"),
    sa.CheckConstraint("attempts >= 0", name="members_attempts"),
    # What a claim looks for: ready members of a pool, the oldest first.
    partial_index(
        "members_claimable",
        "state = 'ready' AND gone_us IS NULL",
        *("pool_id", "warming_started_us", "id"),
    ),
    sa.Index("members_of_pool", "pool_id", "gone_us"),
)

beats = sa.Table(
    "pool_beats",
    METADATA,
    reference("member_id", "pool_members.id", "beats_member", key=True),
    *required(Instant, "at_us"),
    *required(sa.Text, "phase"),
)

enrolments = sa.Table(
    "pool_enrolments",
    METADATA,
    reference("member_id", "pool_members.id", "enrolments_member", key=True),
    *required(sa.Text, "token_hash"),
    *required(Instant, "expires_us"),
    *optional(Instant, "used_us"),
    *optional(sa.Text, "credential_hash"),
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
    *required(sa.Text, "pool_id"),
    reference("member_id", "pool_members.id", "claims_member"),
    *required(sa.Text, "acquired_by", "acquired_for"),
    *required(Instant, "acquired_us"),
    *optional(Instant, "lease_until_us"),
    *required(sa.Integer, "renewals"),
    *required(sa.Text, "batch_id"),
    *required(sa.Integer, "batch_place"),
    *optional(sa.Text, "idempotency_key"),
    *required(Instant, "waited_us"),
    *required(sa.Boolean, "cold"),
    *optional(Instant, "stale_us", "released_us"),
    *required(sa.Text, "release_reason"),
    # The database itself refuses a second open claim on a member, and a key used twice.
    partial_index("claims_one_open", "released_us IS NULL", "member_id", unique=True),
    partial_index(
        "claims_key",
        "idempotency_key IS NOT NULL",
        *("pool_id", "idempotency_key", "batch_place"),
        unique=True,
    ),
    sa.Index("claims_of_pool", "pool_id", "acquired_us"),
)

waiters = sa.Table(
    "pool_waiters",
    METADATA,
    sa.Column("id", sa.Text, primary_key=True),
    reference("pool_id", "pools.id", "waiters_pool"),
    *required(sa.Integer, "priority", "wanted"),
    *required(Instant, "queued_us", "seen_us"),
    *required(sa.Text, "acquired_by"),
    sa.CheckConstraint("wanted > 0", name="waiters_wanted"),
    sa.Index("waiters_of_pool", "pool_id", "priority", "queued_us"),
)

events = sa.Table(
    "pool_events",
    METADATA,
    sa.Column("id", ROW_ID, primary_key=True, autoincrement=True),
    *required(Instant, "at_us"),
    *required(sa.Text, "kind", "pool_id", "pool", "member_id", "claim_id", "reason", "detail"),
    *optional(Instant, "took_us"),  # a wait, warm-up or lifetime
    sa.Index("events_of_pool", "pool_id", "id"),
    # Missed claims are demand; an autoscaled pool reads them every few seconds.
    partial_index("events_missed", "kind = 'claim_missed'", "pool_id", "at_us"),
)

# Events outlive their rows here, summed by the smallest bucket limit that their duration does not exceed.
totals = sa.Table(
    "pool_totals",
    METADATA,
    *(sa.Column(name, sa.Text, primary_key=True) for name in ("pool_id", "kind", "reason")),
    sa.Column("limit_us", Instant, primary_key=True, autoincrement=False),
    *required(Instant, "number", "took_us"),
)

# A policy and its last decision. Changed only under the lock of the pool's row.
autoscales = sa.Table(
    "pool_autoscales",
    METADATA,
    reference("pool_id", "pools.id", "autoscales_pool", key=True),
    *required(sa.Double, "miss"),
    *optional(sa.Integer, "min_size", "max_size"),
    *optional(sa.Double, "warm_up_seconds"),
    *required(sa.Double, "window_seconds", "cooldown_seconds"),
    *optional(sa.Double, "zero_after_seconds"),
    *required(sa.Double, "burst_mean", "burst_spread"),
    *required(sa.JSON, "openings"),
    *required(Instant, "since_us"),
    *required(sa.JSON, "memory"),
    *required(Instant, "decided_us"),
    *required(sa.Integer, "wanted_size"),
    *required(sa.Text, "cause", "reason"),
    *optional(Instant, "changed_us"),
    *required(Instant, "measured_us"),
    *optional(sa.Double, "measured_warm_up_seconds"),
    sa.CheckConstraint(
        "min_size IS NULL OR max_size IS NULL OR min_size <= max_size", name="autoscales_sizes"
    ),
    sa.CheckConstraint("miss > 0 AND miss < 1", name="autoscales_miss"),
)

control = sa.Table(
    "pool_control",
    METADATA,
    sa.Column("name", sa.Text, primary_key=True),
    *required(sa.Text, "value"),
)
