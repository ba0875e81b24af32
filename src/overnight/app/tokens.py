"""`overnight token`: tokens of people and tools, and those that enrol hosts, in the database itself."""

from __future__ import annotations

import getpass
import os
from typing import TYPE_CHECKING

from overnight import errors
from overnight.fleet import blobs, context, tokens
from overnight.model import times
from overnight.model.control_plane import Role, Token
from overnight.model.times import SECOND_US

if TYPE_CHECKING:
    from overnight.app import pools

SCHEMA = "overnight.tokens/1"
SECONDS = 90 * 86_400.0
AGENT_SECONDS = 86_400.0


def open_tokens(where: pools.Pools) -> tokens.Tokens:
    return tokens.Tokens(open_context(where))


def open_context(where: pools.Pools) -> context.Context:
    """Open the fleet of a database: without the blob folder, which only servers know."""
    database = where.plane.context.database
    return context.Context(database, blobs.Blobs(where.home), times.now_us, context.Limits())


def create(
    where: tokens.Tokens,
    role: Role,
    *,
    by: str,
    name: str = "",
    host: str = "",
    assistant: bool = False,
    seconds: float | None = None,
    why: str = "",
) -> Token:
    """Create a token; its text is in the result, and nowhere else."""
    default = AGENT_SECONDS if role is Role.AGENT else SECONDS
    lasting = default if seconds is None else seconds
    if lasting <= 0:
        raise errors.UsageError(
            f"--expires must be greater than 0 (got {lasting:g}s)",
            why="the token would never be valid",
            todo="use for example --expires 90d",
        )
    expires_us = times.now_us() + round(lasting * SECOND_US)
    return where.create(
        role, name=name, expires_us=expires_us, host=host, assistant=assistant, by=by, why=why
    )  # fmt: skip


def state(token: Token) -> str:
    """Return whether a token is valid, used, expired or revoked."""
    if token.revoked_us is not None:
        return "revoked"
    if token.used_us is not None:
        return "used"
    return "expired" if token.expires_us <= times.now_us() else "valid"


def document(*shown: Token) -> dict[str, object]:
    """Return the document; docs/schemas/tokens-1.json describes it."""
    return {"schema": SCHEMA, "tokens": [token.as_json() for token in shown]}


def local_user() -> str:
    """Return who uses the database directly, for the audit log."""
    try:
        return f"{getpass.getuser()} (local)"
    except (KeyError, OSError):
        return f"{os.geteuid()} (local)"
