"""Investigations, and the lines of their log."""

from __future__ import annotations

import sqlalchemy as sa

from overnight.database import columns

revision = "0008"
down_revision = "0007"


def upgrade(op: columns.Operations) -> None:
    """Make the tables of investigations."""
    # `stop` is written by others than the driver; `progress` has reservations, arms, experiment and report.
    op.create_table(
        "investigations",
        sa.Column("id", sa.Text, primary_key=True),
        *columns.required(sa.Text, "owner", "phase", "outcome", "plan", "progress"),
        *columns.required(columns.Instant, "made_us", "phase_us", "driver_until_us", "next_us"),
        *columns.required(sa.Integer, "fence", "attempts"),
        *columns.required(sa.Boolean, "stop"),
        columns.one_of(
            "investigations_phase", "phase",
            "reserve", "check", "arms", "experiment", "report", "release", "ended",
        ),
        columns.partial_index("investigations_open", "phase <> 'ended'", "driver_until_us"),
    )  # fmt: skip
    op.create_table(
        "investigation_notes",
        sa.Column("id", columns.ROW_ID, primary_key=True, autoincrement=True),
        columns.reference("investigation_id", "investigations.id", "investigation_notes_of"),
        *columns.required(columns.Instant, "at_us"),
        *columns.required(sa.Text, "text", "host"),
        sa.Index("investigation_notes_by_investigation", "investigation_id", "id"),
    )
