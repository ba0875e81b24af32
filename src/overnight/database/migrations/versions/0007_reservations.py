"""Reservations, their hosts, and what happened to them."""

from __future__ import annotations

import sqlalchemy as sa

from overnight.database import columns

revision = "0007"
down_revision = "0006"


def upgrade(op: columns.Operations) -> None:
    """Make the tables of reservations."""
    # `fence` counts the drivers: every write names the one that it is from.
    op.create_table(
        "reservations",
        sa.Column("id", sa.Text, primary_key=True),
        *columns.required(sa.Text, "state", "order", "reason"),
        *columns.required(columns.Instant, "made_us", "until_us", "cap_us"),
        *columns.required(columns.Instant, "driver_until_us", "next_us"),
        *columns.required(sa.Integer, "fence", "attempts"),
        columns.one_of(
            "reservations_state", "state", "preparing", "active", "releasing", "released"
        ),
        sa.CheckConstraint("until_us <= cap_us", name="reservations_cap"),
        columns.partial_index("reservations_open", "state <> 'released'", "driver_until_us"),
    )
    op.create_table(
        "reservation_hosts",
        columns.reference("reservation_id", "reservations.id", "reservation_hosts_of", key=True),
        sa.Column("name", sa.Text, primary_key=True),
        *columns.required(sa.Integer, "position"),
        *columns.required(sa.Text, "state", "facts", "agent", "checks", "detail"),
        columns.one_of("reservation_hosts_state", "state", "planned", "held", "released"),
    )
    op.create_table(
        "reservation_events",
        sa.Column("id", columns.ROW_ID, primary_key=True, autoincrement=True),
        columns.reference("reservation_id", "reservations.id", "reservation_events_of"),
        *columns.required(columns.Instant, "at_us"),
        *columns.required(sa.Text, "kind", "host", "detail"),
        sa.Index("reservation_events_by_reservation", "reservation_id", "id"),
    )
