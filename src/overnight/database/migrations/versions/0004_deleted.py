"""Pools that are deleted, while records of their members are kept."""

from __future__ import annotations

from overnight.database import columns

revision = "0004"
down_revision = "0003"


def upgrade(op: columns.Operations) -> None:
    op.add_column("pools", *columns.optional(columns.Instant, "deleted_us"))
