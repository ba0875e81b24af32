"""Pools that are deleted, while records of their members are kept."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("pools", sa.Column("deleted_us", sa.BigInteger(), nullable=True))
