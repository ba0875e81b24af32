"""`overnight token`: tokens of people and tools, and bootstrap tokens of agents, in the database itself."""

from __future__ import annotations

import getpass
import os
from typing import TYPE_CHECKING, Any

from overnight import errors
from overnight.model.times import SECOND_US

if TYPE_CHECKING:
    from overnight.app import pools
    from overnight.fleet import control

SCHEMA = "overnight.tokens/1"
ROLES = ("viewer", "operator", "admin", "agent")
DEFAULT_SECONDS = {"agent": 86_400.0}
EXPIRES_SECONDS = 90 * 86_400.0


def create(
    plane: control.ControlPlane,
    *,
    by: str,
    role: str,
    name: str = "",
    host: str = "",
    seconds: float | None = None,
    why: str = "",
) -> Any:
    """Create a token; its text is in the result, and nowhere else."""
    if role not in ROLES:
        raise errors.UsageError(
            f"unknown role {role!r}", why="a token has one role", todo=f"use one of: {', '.join(ROLES)}"
        )  # fmt: skip
    if host and role != "agent":
        raise errors.UsageError(
            f"a token for the role {role} cannot name a host",
            why="only an agent's token is for a host",
            todo=f"overnight token create --role agent --host {host}",
        )
    lasting = DEFAULT_SECONDS.get(role, EXPIRES_SECONDS) if seconds is None else seconds
    if lasting <= 0:
        raise errors.UsageError(
            "--expires must be greater than 0",
            why="the token would never be valid",
            todo="use for example --expires 90d",
        )
    expires_us = plane.clock() + round(lasting * SECOND_US)
    token = plane.tokens.create(role, name=name or role, expires_us=expires_us, host=host)
    plane.audit(by, "token.create", token.id, why)
    return token


def revoke(plane: control.ControlPlane, token_id: str, *, by: str, why: str = "") -> None:
    plane.tokens.revoke(token_id)
    plane.audit(by, "token.revoke", token_id, why)


def local_user() -> str:
    """Return who uses the database directly, for the audit log."""
    try:
        return f"local:{getpass.getuser()}"
    except (KeyError, OSError):
        return f"local:{os.geteuid()}"
