"""The host of a member whose machine only a server there can reach."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Leave the host of older members open: the server that lists a machine records its own."""
    op.add_column("pool_members", sa.Column("host", sa.Text(), nullable=True))
