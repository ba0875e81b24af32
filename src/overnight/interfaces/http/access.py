"""Authentication: tokens of people and tools, with the roles viewer, operator and admin."""

from __future__ import annotations

import base64
import binascii
import dataclasses
from collections.abc import Callable, Iterable
from typing import Annotated

from fastapi import Depends
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.requests import Request

from overnight.app import operations, serving
from overnight.interfaces.http import problems
from overnight.model.control_plane import Principal, Role

CHALLENGE = 'Basic realm="overnight", charset="UTF-8"'
TOKEN = HTTPBearer(scheme_name="token", description="Token of a person or tool.", auto_error=False)
CREDENTIAL = HTTPBearer(
    scheme_name="credential", description="Credential of an agent.", auto_error=False
)
Sent = HTTPAuthorizationCredentials | None
Credential = Annotated[Sent, Depends(CREDENTIAL)]


async def service(request: Request) -> serving.Server:
    """Return the server; a dependency, and not in a thread of its own."""
    server: serving.Server = request.app.state.server
    return server


def text(sent: Sent) -> str:
    """Return the credential of a request; '' if it has none."""
    return sent.credentials if sent else ""


def read_credential(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the credential of raw headers, in any scheme; '' if they have none. Raise for more than one."""
    sent = [value.decode("latin-1") for name, value in headers if name == b"authorization"]
    if len(sent) > 1:
        what = "more than one Authorization header"
        raise problems.HttpError(400, what, headers=problems.CLOSE)
    return _password(*sent) or "".join(sent).partition(" ")[2].strip()


def _password(header: str = "") -> str:
    """Return the password of HTTP Basic: how a browser sends a token to a page."""
    scheme, _, text = header.partition(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(text, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""


def require(role: Role, *, page: bool = False, people: bool = False) -> Callable[..., Principal]:
    """Return a dependency: the principal of a request, with at least that role; no assistant where only `people` may.

    Pages also accept the token as the password of HTTP Basic. Nothing that changes something does: a browser
    adds that password to requests of other sites.
    """

    def authenticate(request: Request, sent: Annotated[Sent, Depends(TOKEN)]) -> Principal:
        server: serving.Server = request.app.state.server
        basic = _password(request.headers.get("authorization", "")) if page else ""
        given = text(sent) or basic
        principal = server.fleet.tokens.authenticate(given) if given else None
        if principal is None:
            headers = {"www-authenticate": CHALLENGE} if page else None  # browsers ask then
            raise problems.HttpError(401, "a valid token is required", headers=headers)
        if not principal.role.allows(role):
            why = f"token {principal.name} has the role {principal.role}"
            raise problems.HttpError(403, f"the role {role} is required", why=why)
        if request.headers.get(operations.ASSISTANT):  # it can only take rights away
            principal = dataclasses.replace(principal, assistant=True)
        if people and principal.assistant:
            why = (
                f"{principal.name} asks for an assistant, and people cannot confirm this operation"
            )
            raise problems.HttpError(403, "only people may do this", why=why)
        return principal

    return authenticate


async def refuse_unknown(request: Request) -> None:
    """Refuse query parameters that the operation does not have: a misspelt filter must not be ignored.

    Not in a thread: `/healthz` answers also while all of them wait for the database.
    """
    known = {field.alias for field in request.scope["route"].dependant.query_params}
    for name in request.query_params:
        if name not in known:
            allowed = ", ".join(sorted(known)) or "no parameter"
            raise problems.HttpError(
                400, f"unknown query parameter {name[:60]!r}", kind="unknown-parameter",
                why=f"this operation takes {allowed}; others are refused, never ignored",
            )  # fmt: skip
