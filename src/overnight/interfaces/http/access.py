"""Who asks: tokens of people and tools, with the roles viewer, operator and admin."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable

from starlette.requests import Request

from overnight.app import serving
from overnight.interfaces.http import problems
from overnight.model.control_plane import Principal, Role


async def service(request: Request) -> serving.Server:
    """Return the server; a dependency, and not in a thread of its own."""
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
        tokens = request.app.state.server.fleet.tokens
        text = bearer(request) or (_basic(request) if page else "")
        principal: Principal | None = tokens.authenticate(text) if text else None
        if principal is None:
            challenge = (
                'Basic realm="overnight", charset="UTF-8"' if page else ""
            )  # browsers ask then
            raise problems.HttpError(401, "a valid token is required", challenge=challenge)
        if not principal.role.allows(role):
            why = f"token {principal.name} has the role {principal.role}"
            raise problems.HttpError(403, f"the role {role} is required", why=why)
        return principal

    return authenticate


def refuse_unknown(request: Request) -> None:
    """Refuse query parameters that the operation does not have: a misspelt filter must not be ignored."""
    known = {field.alias for field in request.scope["route"].dependant.query_params}
    for name in request.query_params:
        if name not in known:
            allowed = ", ".join(sorted(known)) or "no parameter"
            raise problems.HttpError(
                400, f"unknown query parameter {name[:60]!r}", kind="unknown-parameter",
                why=f"this operation takes {allowed}; others are refused, never ignored",
            )  # fmt: skip
