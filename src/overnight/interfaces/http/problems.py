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


class HttpError(errors.OvernightError):
    """A request that is refused before it reaches a use case."""

    def __init__(
        self, status: int, kind: str, what: str, *, why: str, todo: str, challenge: str = ""
    ) -> None:
        super().__init__(what, why=why, todo=todo)
        self.status = status
        self.challenge = challenge
        self._kind = kind

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


def encode(
    error: errors.OvernightError, retry_seconds: float = 0.0
) -> tuple[int, bytes, dict[str, str]]:
    """Return status, body and headers."""
    retry_seconds = retry_seconds or getattr(error, "retry_seconds", RETRY_SECONDS)
    status = error.status if isinstance(error, HttpError) else serving.status_of(error)
    headers = {"content-type": CONTENT_TYPE}
    if status in (429, 503):
        headers["retry-after"] = str(max(1, round(retry_seconds)))
    if status == 401:
        headers["www-authenticate"] = getattr(error, "challenge", "") or CHALLENGE
    return status, json.dumps(document(error, status)).encode(), headers


def respond(
    error: errors.OvernightError, more: Mapping[str, str] | None = None
) -> fastapi.Response:
    status, body, headers = encode(error)
    return fastapi.Response(body, status, headers | dict(more or {}))


def as_problem(error: Exception) -> errors.OvernightError:
    """Return what the client may know of an error that is not ours; the log has the rest."""
    if errors.is_own(error):  # a full disk, no descriptors: temporary, we hope
        own = errors.own_error(error, "the server has run out of resources")
        return HttpError(503, "out-of-resources", own.what, why=own.why, todo=own.todo)
    frames = "".join(traceback.format_tb(error.__traceback__))
    # Not the message: it may hold what a client sent.
    sys.stderr.write(f"overnight serve: internal error: {type(error).__name__}\n{frames}")
    sys.stderr.flush()
    return HttpError(
        500,
        "bug",
        "internal error",
        why="this is a bug in overnight",
        todo="read the log of `overnight serve`, and report it",
    )


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
        return respond(
            errors.UsageError(
                f"invalid {place}", why=str(first["msg"]), todo="read /api/v1/openapi.json"
            )
        )

    async def refused(_: Request, error: Exception) -> fastapi.Response:
        assert isinstance(error, starlette.exceptions.HTTPException)
        status = error.status_code
        kind = {404: "not-found", 405: "method-not-allowed"}.get(status, "usage")
        wrapped = HttpError(
            status, kind, str(error.detail), why="the server has no such operation",
            todo="read /api/v1/openapi.json",
        )  # fmt: skip
        return respond(wrapped, error.headers)

    app.add_exception_handler(errors.OvernightError, known)
    app.add_exception_handler(fastapi.exceptions.RequestValidationError, invalid)
    app.add_exception_handler(starlette.exceptions.HTTPException, refused)
