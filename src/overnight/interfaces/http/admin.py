"""Tokens and the audit log."""

from __future__ import annotations

from typing import Annotated

import fastapi
import pydantic
from fastapi import Depends
from starlette.requests import Request

from overnight.app import tokens
from overnight.interfaces.http import access, fleet
from overnight.model.control_plane import AuditRow, Role, Token

ROUTER = fastapi.APIRouter(
    prefix="/api/v1", tags=["admin"], dependencies=[Depends(access.refuse_unknown)]
)


class NewToken(pydantic.BaseModel, extra="forbid"):
    role: Role
    name: str = pydantic.Field("", max_length=64, description="Who uses it, for the audit log.", examples=["grafana"])  # fmt: skip
    host: str = pydantic.Field("", max_length=255, description="Of an agent's token: the only host that it enrols.")  # fmt: skip
    expires_seconds: int | None = pydantic.Field(None, ge=1, le=10 * 366 * 86_400)
    why: str = pydantic.Field("", max_length=500, description="Reason, for the audit log.")


@ROUTER.get(
    "/tokens",
    summary="List tokens",
    responses=fleet.documented(fleet.Listed[Token], "Tokens, without their text."),
)
def list_tokens(request: Request, _: fleet.Admin) -> fastapi.Response:  # fmt: skip
    found = access.service(request).fleet.tokens.list()
    return fleet.page((token.as_json() for token in found), "")


@ROUTER.post(
    "/tokens",
    summary="Create a token",
    status_code=201,
    responses={201: {"model": Token, "description": "The token. Its text is shown only here."}},
)
def create_token(request: Request, by: fleet.Admin, token: NewToken, why: access.Why = "") -> fastapi.Response:  # fmt: skip
    created = tokens.create(
        access.service(request).fleet.tokens, token.role, by=access.who(by), name=token.name,
        host=token.host, seconds=token.expires_seconds, why=token.why or why,
    )  # fmt: skip
    return fleet.answer(created.as_json(), 201)


@ROUTER.delete("/tokens/{token_id}", summary="Revoke a token", status_code=204)
def revoke_token(request: Request, by: fleet.Admin, token_id: str, why: access.Why = "") -> None:
    access.service(request).fleet.tokens.revoke(token_id, by=access.who(by), why=why)


@ROUTER.get(
    "/audit",
    summary="Show the audit log",
    responses=fleet.documented(fleet.Listed[AuditRow], "Changes, the newest first."),
)
def list_audit(
    request: Request,
    _: fleet.Admin,
    cursor: fleet.Cursor = "",
    limit: Annotated[int, fastapi.Query(ge=1, le=1000, description="Items on a page.")] = 100,
) -> fastapi.Response:  # fmt: skip
    found = access.service(request).fleet.audit_log(cursor, limit)
    return fleet.page((dict(vars(entry)) for entry in found.items), found.next)
