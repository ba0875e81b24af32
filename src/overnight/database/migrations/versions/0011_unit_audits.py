"""The newest audit of each host's units."""

from __future__ import annotations

import sqlalchemy as sa

from overnight.database import columns

revision = "0011"
down_revision = "0010"


def upgrade(op: columns.Operations) -> None:
    """Make the table of audits: compressed documents, one for each host."""
    op.create_table(
        "fleet_unit_audits",
        columns.reference("host_id", "fleet_hosts.id", "fleet_unit_audits_host", key=True),
        *columns.required(sa.LargeBinary, "document"),
    )
