"""Errors as problem documents (RFC 9457): `title` is what failed, `detail` why, `todo` what to do."""

from __future__ import annotations

import json
import sys
import traceback
from typing import TYPE_CHECKING, Any

import fastapi
import fastapi.exceptions
import starlette.exceptions

from overnight import errors
from overnight.app import serving
from overnight.model.control_plane import OffsetError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

CONTENT_TYPE = "application/problem+json"
CHALLENGE = 'Bearer realm="overnight"'
RETRY_SECONDS = 5
DESCRIBED = "read /api/v1/openapi.json"
EXAMPLE = {
    "type": "urn:overnight:problem:host-not-found",
    "title": "host 'db-7' not found",
    "status": 404,
    "detail": "no agent with that name has enrolled",
    "todo": "overnight hosts",
    "kind": "host-not-found",
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "What failed, why, and what to do (RFC 9457).",
    "required": ["type", "title", "status", "detail", "todo", "kind"],
    "properties": {
        "type": {"type": "string", "description": "URN that ends with the kind."},
        "title": {"type": "string", "description": "What failed."},
        "status": {"type": "integer", "description": "HTTP status."},
        "detail": {"type": "string", "description": "Why it failed."},
        "todo": {"type": "string", "description": "What to do next."},
        "kind": {"type": "string", "description": "Stable name for programs."},
    },
    "example": EXAMPLE,
}


# Kind, why and what to do, of requests that are refused before they reach a use case.
REFUSALS = {
    400: ("bad-request", "the request line or a header is invalid or too long", "send valid HTTP/1.1"),
    401: ("unauthenticated", "the token is missing, unknown, expired or revoked", "on the server: overnight token create --role viewer; send it as Authorization: Bearer TOKEN"),
    403: ("forbidden", "the token has another role", "use a token with that role"),
    404: ("not-found", "the server has no such operation", DESCRIBED),
    405: ("method-not-allowed", "the server has no such operation", DESCRIBED),
    408: ("too-slow", "the client sent or read too slowly, or the answer took too long", "repeat the request"),
    413: ("body-too-large", "bodies are limited", "send less at once"),
    429: ("too-many-requests", "this address or credential exceeds its rate", "wait as long as Retry-After says"),
    431: ("head-too-large", "URL and headers are limited", "send shorter headers"),
    500: ("bug", "this is a bug in overnight", "read the log of `overnight serve`, and report it"),
    503: ("overloaded", "too many requests wait, or a resource is used up", "wait as long as Retry-After says"),
}  # fmt: skip


class HttpError(errors.OvernightError):
    """A request that is refused before it reaches a use case."""

    def __init__(self, status: int, what: str, *, why: str = "", kind: str = "", challenge: str = "") -> None:  # fmt: skip
        usual, reason, todo = REFUSALS.get(status, REFUSALS[400])
        super().__init__(what, why=why or reason, todo=todo)
        self.status, self._kind, self.challenge = status, kind or usual, challenge

    @property
    def kind(self) -> str:
        return self._kind


def document(error: errors.OvernightError, status: int) -> dict[str, object]:
    more = {"offset": error.offset} if isinstance(error, OffsetError) else {}
    return {
        "type": f"urn:overnight:problem:{error.kind}",
        "title": error.what,
        "status": status,
        "detail": error.why,
        "todo": error.todo,
        "kind": error.kind,
        **getattr(error, "details", more),
    }


def encode(error: errors.OvernightError) -> tuple[int, bytes, dict[str, str]]:
    """Return status, body and headers."""
    if serving.is_database_away(error):  # where it is does not concern clients
        error = HttpError(503, "the database cannot be reached", kind=error.kind)
    status = error.status if isinstance(error, HttpError) else serving.status_of(error)
    headers = {"content-type": CONTENT_TYPE}
    if status in (429, 503):
        headers["retry-after"] = str(getattr(error, "retry_seconds", RETRY_SECONDS))
    if status == 401:
        headers["www-authenticate"] = getattr(error, "challenge", "") or CHALLENGE
    return status, json.dumps(document(error, status)).encode(), headers


def respond(
    error: errors.OvernightError, more: Mapping[str, str] | None = None
) -> fastapi.Response:
    status, body, headers = encode(error)
    return fastapi.Response(body, status, headers | dict(more or {}))


def as_problem(error: Exception) -> HttpError:
    """Return what the client may know of an error that is not ours; the log has the rest."""
    if errors.is_own(error):  # a full disk, no descriptors: temporary, we hope
        return HttpError(
            503, "the server has run out of resources", why=errors.own_error(error).why
        )
    frames = "".join(traceback.format_tb(error.__traceback__))
    # Not the message: it may hold what a client sent.
    sys.stderr.write(f"overnight serve: internal error: {type(error).__name__}\n{frames}")
    sys.stderr.flush()
    return HttpError(500, "internal error")


def install(app: fastapi.FastAPI) -> None:
    """Answer every error of an application with a problem document."""

    async def known(_: Request, error: Exception) -> fastapi.Response:
        assert isinstance(error, errors.OvernightError)
        return respond(error)

    async def invalid(_: Request, error: Exception) -> fastapi.Response:
        assert isinstance(error, fastapi.exceptions.RequestValidationError)
        first = error.errors()[0]
        # Not `input`: it may be a secret.
        place = ".".join(str(part) for part in first["loc"] if part != "body") or "body"
        what, why = f"invalid {place}", str(first["msg"])
        return respond(errors.UsageError(what, why=why, todo=DESCRIBED))

    async def refused(_: Request, error: Exception) -> fastapi.Response:
        assert isinstance(error, starlette.exceptions.HTTPException)
        return respond(HttpError(error.status_code, str(error.detail)), error.headers)

    app.add_exception_handler(errors.OvernightError, known)
    app.add_exception_handler(fastapi.exceptions.RequestValidationError, invalid)
    app.add_exception_handler(starlette.exceptions.HTTPException, refused)
