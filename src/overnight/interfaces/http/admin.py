"""Tokens and the audit log."""

from __future__ import annotations

import fastapi
import pydantic

from overnight.app import tokens
from overnight.interfaces.http import operations as ops
from overnight.model.control_plane import AuditRow, Role, Token

ROUTER = ops.router(tags=["admin"])


class NewToken(pydantic.BaseModel, extra="forbid"):
    role: Role
    name: str = pydantic.Field("", max_length=64, description="Who uses it, for the audit log.", examples=["grafana"])  # fmt: skip
    host: str = pydantic.Field("", max_length=255, description="With the role agent: the only host that it enrols.")  # fmt: skip
    assistant: bool = pydantic.Field(
        False, description="People confirm what is destructive or costly."
    )
    expires_seconds: int | None = pydantic.Field(None, ge=1, le=10 * 366 * 86_400)
    why: str = pydantic.Field("", max_length=500, description="Reason, for the audit log.")


@ROUTER.get("/tokens", response_model=ops.Listed[Token])
def list_tokens(server: ops.Served, _: ops.Admin) -> fastapi.Response:  # fmt: skip
    """List tokens, without their text."""
    return ops.page(server.fleet.tokens.list())


@ROUTER.post("/tokens", response_model=Token, status_code=201)
def create_token(server: ops.Served, by: ops.Admin, token: NewToken, why: ops.Why = "") -> fastapi.Response:  # fmt: skip
    """Create a token; only this answer has its text."""
    created = tokens.create(
        server.fleet.tokens, token.role, by=by.title, name=token.name,
        host=token.host, assistant=token.assistant, seconds=token.expires_seconds, why=token.why or why,
    )  # fmt: skip
    return ops.answer(created, 201)


@ROUTER.delete("/tokens/{token_id}", status_code=204)
def revoke_token(server: ops.Served, by: ops.Admin, token_id: str, why: ops.Why = "") -> None:
    """Revoke a token."""
    server.fleet.tokens.revoke(token_id, by=by.title, why=why)


@ROUTER.get("/audit", response_model=ops.Listed[AuditRow])
def list_audit(server: ops.Served, _: ops.Admin, cursor: ops.Cursor = "", limit: ops.Limit = 100) -> fastapi.Response:  # fmt: skip
    """Show the audit log, the newest change first."""
    return ops.page(server.fleet.audit_log(cursor, limit))
