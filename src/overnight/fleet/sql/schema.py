"""The tables. database/migrations creates them; a test compares the two on both databases.

Everything that belongs to a host is deleted with its row. A report locks that row first.
"""

from __future__ import annotations

import sqlalchemy as sa

from overnight.database.columns import (
    METADATA,
    ROW_ID,
    Instant,
    one_of,
    optional,
    partial_index,
    reference,
    required,
)

# Secrets are stored as SHA-256 alone. An agent's token is exchanged for one credential.
tokens = sa.Table(
    "fleet_tokens",
    METADATA,
    sa.Column("id", sa.Text, primary_key=True),
    *required(sa.Text, "role", "name", "host", "created_by", "secret_hash"),
    *required(Instant, "created_us", "expires_us"),
    *optional(Instant, "used_us", "revoked_us"),
    *optional(sa.Text, "credential_hash"),
    one_of("fleet_tokens_role", "role", "viewer", "operator", "admin", "agent"),
    sa.CheckConstraint(
        "(used_us IS NULL) = (credential_hash IS NULL)", name="fleet_tokens_used_once"
    ),
)

hosts = sa.Table(
    "fleet_hosts",
    METADATA,
    sa.Column("id", sa.Text, primary_key=True),
    *required(sa.Text, "name", "boot", "note"),
    *required(Instant, "enrolled_us", "seen_us", "booted_us", "uptime_us", "skew_us"),
    *required(Instant, "lost_events", "lost_rollups"),
    *required(Instant, "day", "day_events"),  # events sent on a day, for the quota
    *optional(Instant, "labels_us", "snapshot_us"),
    sa.UniqueConstraint("name", name="fleet_hosts_name"),
)

credentials = sa.Table(
    "fleet_credentials",
    METADATA,
    sa.Column("hash", sa.Text, primary_key=True),
    reference("host_id", "fleet_hosts.id", "fleet_credentials_host"),
    *required(Instant, "created_us"),
    *optional(Instant, "used_us"),
    sa.Index("fleet_credentials_of_host", "host_id"),
)

labels = sa.Table(
    "fleet_labels",
    METADATA,
    reference("host_id", "fleet_hosts.id", "fleet_labels_host", key=True),
    sa.Column("name", sa.Text, primary_key=True),
    *required(sa.Text, "value"),
    sa.Index("fleet_labels_by_value", "name", "value"),
)

# Compressed documents; the digest is that of the parts, without the header.
snapshots = sa.Table(
    "fleet_snapshots",
    METADATA,
    reference("host_id", "fleet_hosts.id", "fleet_snapshots_host", key=True),
    sa.Column("taken_us", Instant, primary_key=True, autoincrement=False),
    *required(sa.Text, "digest"),
    *required(sa.LargeBinary, "document"),
)

spells = sa.Table(
    "fleet_spells",
    METADATA,
    reference("host_id", "fleet_hosts.id", "fleet_spells_host", key=True),
    sa.Column("begin_us", Instant, primary_key=True, autoincrement=False),
    *required(Instant, "end_us", "uptime_us"),
    *required(sa.Text, "boot"),
    sa.CheckConstraint("begin_us < end_us", name="fleet_spells_order"),
)

# An id is unique on its host alone: no host can replace the events of another.
events = sa.Table(
    "fleet_events",
    METADATA,
    reference("host_id", "fleet_hosts.id", "fleet_events_host", key=True),
    sa.Column("id", sa.Text, primary_key=True),
    *required(Instant, "time_us", "until_us", "count", "received_us"),
    *required(sa.Text, "kind", "severity", "document"),
    sa.Index("fleet_events_by_time", "time_us", "host_id", "id"),
    sa.Index("fleet_events_by_kind", "kind", "time_us"),
    sa.Index("fleet_events_of_host", "host_id", "time_us"),
    sa.Index("fleet_events_by_id", "id"),
)

# Rollups that are not in a file yet.
rollups = sa.Table(
    "fleet_rollups",
    METADATA,
    reference("host_id", "fleet_hosts.id", "fleet_rollups_host", key=True),
    sa.Column("begin_us", Instant, primary_key=True, autoincrement=False),
    *required(sa.LargeBinary, "document"),
)

# The file of a host and day, and who compacts it at the moment.
rollup_days = sa.Table(
    "fleet_rollup_days",
    METADATA,
    reference("host_id", "fleet_hosts.id", "fleet_rollup_days_host", key=True),
    sa.Column("day", Instant, primary_key=True, autoincrement=False),
    *required(sa.Text, "file", "locked_by"),
    *required(Instant, "locked_until_us"),
    *required(sa.Integer, "least_level"),  # finer ones were removed
)

windows = sa.Table(
    "fleet_windows",
    METADATA,
    reference("host_id", "fleet_hosts.id", "fleet_windows_host", key=True),
    sa.Column("sha256", sa.Text, primary_key=True),
    *required(sa.Text, "event"),
    *required(Instant, "begin_us", "end_us", "bytes", "offered_us"),
    *optional(Instant, "received_us", "dropped_us"),
    sa.Index("fleet_windows_by_hash", "sha256"),
    sa.Index("fleet_windows_of_event", "host_id", "event"),
)

tasks = sa.Table(
    "fleet_tasks",
    METADATA,
    sa.Column("id", sa.Text, primary_key=True),
    reference("host_id", "fleet_hosts.id", "fleet_tasks_host"),
    *required(sa.Text, "kind", "arguments", "state", "created_by", "why", "detail", "result"),
    *required(Instant, "created_us", "expires_us", "updated_us", "leased_until_us"),
    *required(sa.Integer, "attempts"),
    *required(sa.Double, "progress"),
    one_of(
        "fleet_tasks_state", "state",
        "pending", "leased", "running", "done", "failed", "refused", "cancelled", "expired",
    ),
    sa.Index("fleet_tasks_of_host", "host_id", "created_us"),
    partial_index("fleet_tasks_open", "state IN ('pending', 'leased', 'running')", "host_id"),
)  # fmt: skip

audit = sa.Table(
    "fleet_audit",
    METADATA,
    sa.Column("id", ROW_ID, primary_key=True, autoincrement=True),
    *required(Instant, "at_us"),
    *required(sa.Text, "who", "action", "target", "why"),
)

settings = sa.Table(
    "fleet_settings",
    METADATA,
    sa.Column("name", sa.Text, primary_key=True),
    *required(sa.Text, "value"),
)
