"""Hosts of a fleet: tokens, credentials, labels, snapshots, spells, events, rollups, windows, tasks, audit."""

from __future__ import annotations

import sqlalchemy as sa

from overnight.database import columns

revision = "0006"
down_revision = "0005"


def upgrade(op: columns.Operations) -> None:
    """Make the tables of the control plane.

    Everything that belongs to a host is deleted with its row. A report locks that row first.
    """
    # Secrets are stored as SHA-256 alone. An agent's token is exchanged for one credential.
    op.create_table(
        "fleet_tokens",
        sa.Column("id", sa.Text, primary_key=True),
        *columns.required(sa.Text, "role", "name", "host", "created_by", "secret_hash"),
        *columns.required(columns.Instant, "created_us", "expires_us"),
        *columns.optional(columns.Instant, "used_us", "revoked_us"),
        *columns.optional(sa.Text, "credential_hash"),
        columns.one_of("fleet_tokens_role", "role", "viewer", "operator", "admin", "agent"),
        sa.CheckConstraint(
            "(used_us IS NULL) = (credential_hash IS NULL)", name="fleet_tokens_used_once"
        ),
    )
    op.create_table(
        "fleet_hosts",
        sa.Column("id", sa.Text, primary_key=True),
        *columns.required(sa.Text, "name", "boot", "note"),
        *columns.required(
            columns.Instant, "enrolled_us", "seen_us", "booted_us", "uptime_us", "skew_us"
        ),
        *columns.required(columns.Instant, "lost_events", "lost_rollups"),
        # Events sent on a day, for the quota.
        *columns.required(columns.Instant, "day", "day_events"),
        *columns.optional(columns.Instant, "labels_us", "snapshot_us"),
        sa.UniqueConstraint("name", name="fleet_hosts_name"),
    )
    op.create_table(
        "fleet_credentials",
        sa.Column("hash", sa.Text, primary_key=True),
        columns.reference("host_id", "fleet_hosts.id", "fleet_credentials_host"),
        *columns.required(columns.Instant, "created_us"),
        *columns.optional(columns.Instant, "used_us"),
        sa.Index("fleet_credentials_of_host", "host_id"),
    )
    op.create_table(
        "fleet_labels",
        columns.reference("host_id", "fleet_hosts.id", "fleet_labels_host", key=True),
        sa.Column("name", sa.Text, primary_key=True),
        *columns.required(sa.Text, "value"),
        sa.Index("fleet_labels_by_value", "name", "value"),
    )
    # Compressed documents; the digest is that of the parts, without the header.
    op.create_table(
        "fleet_snapshots",
        columns.reference("host_id", "fleet_hosts.id", "fleet_snapshots_host", key=True),
        sa.Column("taken_us", columns.Instant, primary_key=True, autoincrement=False),
        *columns.required(sa.Text, "digest"),
        *columns.required(sa.LargeBinary, "document"),
    )
    op.create_table(
        "fleet_spells",
        columns.reference("host_id", "fleet_hosts.id", "fleet_spells_host", key=True),
        sa.Column("begin_us", columns.Instant, primary_key=True, autoincrement=False),
        *columns.required(columns.Instant, "end_us", "uptime_us"),
        *columns.required(sa.Text, "boot"),
        sa.CheckConstraint("begin_us < end_us", name="fleet_spells_order"),
    )
    # An id is unique on its host alone: no host can replace the events of another.
    op.create_table(
        "fleet_events",
        columns.reference("host_id", "fleet_hosts.id", "fleet_events_host", key=True),
        sa.Column("id", sa.Text, primary_key=True),
        *columns.required(columns.Instant, "time_us", "until_us", "count", "received_us"),
        *columns.required(sa.Text, "kind", "severity", "document"),
        sa.Index("fleet_events_by_time", "time_us", "host_id", "id"),
        sa.Index("fleet_events_by_kind", "kind", "time_us"),
        sa.Index("fleet_events_of_host", "host_id", "time_us"),
        sa.Index("fleet_events_by_id", "id"),
    )
    # Rollups that are not in a file yet.
    op.create_table(
        "fleet_rollups",
        columns.reference("host_id", "fleet_hosts.id", "fleet_rollups_host", key=True),
        sa.Column("begin_us", columns.Instant, primary_key=True, autoincrement=False),
        *columns.required(sa.LargeBinary, "document"),
    )
    # The file of a host and day, and who compacts it at the moment.
    op.create_table(
        "fleet_rollup_days",
        columns.reference("host_id", "fleet_hosts.id", "fleet_rollup_days_host", key=True),
        sa.Column("day", columns.Instant, primary_key=True, autoincrement=False),
        *columns.required(sa.Text, "file", "locked_by"),
        *columns.required(columns.Instant, "locked_until_us"),
        *columns.required(sa.Integer, "least_level"),  # finer ones were removed
    )
    op.create_table(
        "fleet_windows",
        columns.reference("host_id", "fleet_hosts.id", "fleet_windows_host", key=True),
        sa.Column("sha256", sa.Text, primary_key=True),
        *columns.required(sa.Text, "event"),
        *columns.required(columns.Instant, "begin_us", "end_us", "bytes", "offered_us"),
        *columns.optional(columns.Instant, "received_us", "dropped_us"),
        sa.Index("fleet_windows_by_hash", "sha256"),
        sa.Index("fleet_windows_of_event", "host_id", "event"),
    )
    op.create_table(
        "fleet_tasks",
        sa.Column("id", sa.Text, primary_key=True),
        columns.reference("host_id", "fleet_hosts.id", "fleet_tasks_host"),
        *columns.required(sa.Text, "kind", "arguments", "state", "created_by", "why", "detail", "result"),
        *columns.required(columns.Instant, "created_us", "expires_us", "updated_us", "leased_until_us"),
        *columns.required(sa.Integer, "attempts"),
        *columns.required(sa.Double, "progress"),
        columns.one_of(
            "fleet_tasks_state", "state",
            "pending", "leased", "running", "done", "failed", "refused", "cancelled", "expired",
        ),
        sa.Index("fleet_tasks_of_host", "host_id", "created_us"),
        columns.partial_index("fleet_tasks_open", "state IN ('pending', 'leased', 'running')", "host_id"),
    )  # fmt: skip
    op.create_table(
        "fleet_audit",
        sa.Column("id", columns.ROW_ID, primary_key=True, autoincrement=True),
        *columns.required(columns.Instant, "at_us"),
        *columns.required(sa.Text, "who", "action", "target", "why"),
    )
    op.create_table(
        "fleet_settings",
        sa.Column("name", sa.Text, primary_key=True),
        *columns.required(sa.Text, "value"),
    )
