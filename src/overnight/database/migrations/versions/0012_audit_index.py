"""What a caller did: the guards of assistants read it from the audit log on each call."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from overnight.database import columns

revision = "0012"
down_revision = "0011"


def upgrade(op: columns.Operations) -> None:
    """Index all that such a question reads: without it, each reads the whole log."""
    op.create_index("fleet_audit_by_action", "fleet_audit", ["action", "who", "target"])
