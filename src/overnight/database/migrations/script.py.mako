"""${message}."""

from __future__ import annotations

import sqlalchemy as sa

from overnight.database import columns

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}


def upgrade(op: columns.Operations) -> None:
    """Make it so."""
    ${upgrades if upgrades else "pass"}
