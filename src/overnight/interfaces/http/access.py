"""Who asks: tokens of people and tools, with the roles viewer, operator and admin."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import fastapi
from starlette.requests import Request

from overnight.interfaces.http import problems
from overnight.model.control_plane import Principal, Role

if TYPE_CHECKING:
    from overnight.app import serving

WHY = "X-Overnight-Why"
Why = Annotated[
    str,
    fastapi.Header(
        alias=WHY, max_length=500, description="Reason for the change, for the audit log."
    ),
]


def service(request: Request) -> serving.Server:
    server: serving.Server = request.app.state.server
    return server


def who(principal: Principal) -> str:
    """Return a principal as the audit log names it."""
    return f"{principal.name} ({principal.id})"


def bearer(request: Request) -> str:
    """Return the credential of a request; '' if it has none."""
    scheme, _, credential = request.headers.get("authorization", "").partition(" ")
    return credential.strip() if scheme.lower() == "bearer" else ""


def _basic(request: Request) -> str:
    """Return the password of HTTP Basic: how a browser sends a token to a page."""
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(text, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""


def require(role: Role, *, page: bool = False) -> Callable[[Request], Principal]:
    """Return a dependency: the principal of a request, with at least that role.

    Pages also accept the token as the password of HTTP Basic. Nothing that changes something does: a browser
    adds that password to requests of other sites.
    """

    def authenticate(request: Request) -> Principal:
        text = bearer(request) or (_basic(request) if page else "")
        principal = service(request).fleet.tokens.authenticate(text) if text else None
        if principal is None:
            raise problems.HttpError(
                401, "unauthenticated", "a valid token is required",
                why="the token is missing, unknown, expired or revoked",
                todo="on the server: overnight token create --role viewer; send it as Authorization: Bearer TOKEN",
                challenge='Basic realm="overnight", charset="UTF-8"' if page else "",  # browsers ask then
            )  # fmt: skip
        if not principal.role.allows(role):
            raise problems.HttpError(
                403, "forbidden", f"the role {role} is required",
                why=f"token {principal.name} has the role {principal.role}",
                todo=f"use a token with the role {role}",
            )  # fmt: skip
        return principal

    return authenticate


def refuse_unknown(request: Request) -> None:
    """Refuse query parameters that the operation does not have: a misspelt filter must not be ignored."""
    known = {field.alias for field in request.scope["route"].dependant.query_params}
    for name in request.query_params:
        if name not in known:
            raise problems.HttpError(
                400, "unknown-parameter", f"unknown query parameter {name[:60]!r}",
                why="unknown parameters are refused, never ignored",
                todo=f"use one of: {', '.join(sorted(known))}" if known else "leave it out",
            )  # fmt: skip
