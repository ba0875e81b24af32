"""The host of a member whose machine only a server there can reach."""

from __future__ import annotations

import sqlalchemy as sa

from overnight.database import columns

revision = "0005"
down_revision = "0004"


def upgrade(op: columns.Operations) -> None:
    """Leave the host of older members open: the server that lists a machine records its own."""
    op.add_column("pool_members", *columns.optional(sa.Text, "host"))
