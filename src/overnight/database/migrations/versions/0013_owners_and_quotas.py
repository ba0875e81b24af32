"""Whose an event is, what a host sent today, and what a call of an assistant was about."""

from __future__ import annotations

import sqlalchemy as sa

from overnight.database import columns

revision = "0013"
down_revision = "0012"


def upgrade(op: columns.Operations) -> None:
    """Add columns; earlier events belong to the host that was heard of last, as before."""
    op.add_column("fleet_hosts", *columns.optional(sa.BigInteger, "day_rollups"))
    op.add_column("fleet_events", *columns.optional(columns.Instant, "first_us"))
    op.execute("UPDATE fleet_events SET first_us = received_us")
    # The name of the assistant, what its call was about, and by how many hosts it raised limits.
    for column in columns.optional(sa.Text, "caller", "target_kind", "target_id"):
        op.add_column("fleet_audit", column)
    op.add_column("fleet_audit", *columns.optional(sa.BigInteger, "hosts"))
    op.create_index("fleet_audit_by_caller", "fleet_audit", ["caller", "action"])
    op.add_column("fleet_confirmations", *columns.optional(sa.Text, "about"))
