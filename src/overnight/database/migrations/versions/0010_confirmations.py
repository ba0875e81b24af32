"""Tokens of assistants, and what people confirm for them."""

from __future__ import annotations

import sqlalchemy as sa

from overnight.database import columns

revision = "0010"
down_revision = "0009"


def upgrade(op: columns.Operations) -> None:
    """Make the table of confirmations; older tokens are not those of assistants."""
    op.add_column("fleet_tokens", *columns.optional(sa.Boolean, "assistant"))
    # `subject` is a digest of action and arguments, `seen` one of the effect that a person saw.
    op.create_table(
        "fleet_confirmations",
        sa.Column("id", sa.Text, primary_key=True),
        *columns.required(sa.Text, "code", "action", "arguments", "subject", "effect", "seen"),
        *columns.required(sa.Text, "caller", "caller_name", "role", "state", "decided_by"),
        *columns.required(columns.Instant, "made_us", "expires_us"),
        *columns.optional(columns.Instant, "decided_us"),
        columns.one_of(
            "fleet_confirmations_state", "state",
            "pending", "confirmed", "declined", "used", "void",
        ),
        sa.Index("fleet_confirmations_by_expiry", "expires_us"),
    )  # fmt: skip
