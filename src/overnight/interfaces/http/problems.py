"""Errors as problem documents (RFC 9457): `title` is what failed, `detail` why, `todo` what to do."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Mapping
from typing import Any

import fastapi
import fastapi.exceptions
import pydantic
import starlette.exceptions
from starlette.requests import Request

from overnight import errors
from overnight.app import serving

CONTENT_TYPE = "application/problem+json"
CHALLENGE = 'Bearer realm="overnight"'
CLOSE = {"connection": "close"}  # the rest of the request is not read
RETRY_SECONDS = 5
OWN = "/overnight/"  # in the paths of its modules
MAX_LOGGED, MAX_FRAMES = 1_000, 20
_logged: set[tuple[object, ...]] = set()
DESCRIBED = "read /api/v1/openapi.json"

# Kind, why and what to do, of requests that are refused before they reach a use case.
REFUSALS = {
    400: ("bad-request", "the request line or a header is invalid or too long", "send valid HTTP/1.1"),
    401: ("unauthenticated", "the token is missing, unknown, expired or revoked", "on the server: `overnight token create --role viewer`; send it as Authorization: Bearer TOKEN"),
    403: ("forbidden", "the token has another role", "use a token with that role"),
    404: ("not-found", "the server has no such operation", DESCRIBED),
    405: ("method-not-allowed", "the server has no such operation", DESCRIBED),
    408: ("too-slow", "the client sent or read too slowly, or the answer took too long", "repeat the request"),
    413: ("body-too-large", "bodies are limited", "send less at once"),
    421: ("misdirected", "the host name of the request is not one of this server", "use the address that the server prints"),
    429: ("too-many-requests", "this address or credential exceeds its rate", "wait as long as Retry-After says"),
    431: ("head-too-large", "URL and headers are limited", "send shorter headers"),
    500: ("bug", "this is a bug in overnight", "read the log of `overnight serve`, and report it"),
    503: ("overloaded", "too many requests wait, or a resource is used up", "wait as long as Retry-After says"),
}  # fmt: skip


class ProblemDocument(pydantic.BaseModel):
    """What failed, why, and what to do (RFC 9457)."""

    type: str = pydantic.Field(
        description="URN that ends with the kind.",
        examples=["urn:overnight:problem:host-not-found"],
    )
    title: str = pydantic.Field(description="What failed.", examples=["host 'db-7' not found"])
    status: int = pydantic.Field(description="HTTP status.", examples=[404])
    detail: str = pydantic.Field(
        description="Why it failed.", examples=["no agent with that name has enrolled"]
    )
    todo: str = pydantic.Field(description="What to do next.", examples=["overnight hosts"])
    kind: str = pydantic.Field(description="Stable name for programs.", examples=["host-not-found"])  # fmt: skip


class HttpError(errors.OvernightError):
    """A request that is refused before it reaches a use case."""

    def __init__(
        self,
        status: int,
        what: str,
        *,
        why: str = "",
        kind: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        usual, reason, todo = REFUSALS.get(status, REFUSALS[400])
        super().__init__(what, why=why or reason, todo=todo)
        self.status, self._kind, self.headers = status, kind or usual, headers or {}

    @property
    def kind(self) -> str:
        return self._kind


def respond(error: Exception) -> fastapi.Response:
    """Return the problem document of any error; one that is not ours is a bug, and is logged."""
    known = _translate(error)
    status = known.status if isinstance(known, HttpError) else serving.status_of(known)
    headers: dict[str, str] = {}
    if status in (429, 503):
        headers["retry-after"] = str(getattr(known, "retry_seconds", RETRY_SECONDS))
    if status == 401:
        headers["www-authenticate"] = CHALLENGE
    headers |= getattr(known, "headers", {})
    document = {
        "type": f"urn:overnight:problem:{known.kind}",
        "title": known.what,
        "status": status,
        "detail": known.why,
        "todo": known.todo,
        "kind": known.kind,
        **getattr(known, "details", {}),
    }
    return fastapi.Response(json.dumps(document), status, headers, CONTENT_TYPE)


async def handle(_: Request, error: Exception) -> fastapi.Response:
    return respond(error)


# FastAPI's own answers are not problem documents.
HANDLERS: dict[int | type[Exception], Any] = dict.fromkeys(
    (
        errors.OvernightError,
        fastapi.exceptions.RequestValidationError,
        starlette.exceptions.HTTPException,
    ),
    handle,
)


def _translate(error: Exception) -> errors.OvernightError:
    """Return what the client may know of an error."""
    if isinstance(error, serving.DatabaseAwayError):
        # Where the database is does not concern clients.
        return HttpError(503, "the database cannot be reached", kind=error.kind)
    if isinstance(error, errors.OvernightError):
        return error
    if isinstance(error, fastapi.exceptions.RequestValidationError):
        first = error.errors()[0]
        # Not `input`: it may be a secret.
        place = ".".join(str(part) for part in first["loc"] if part != "body") or "body"
        return errors.UsageError(f"invalid {place}", why=str(first["msg"]), todo=DESCRIBED)
    if isinstance(error, starlette.exceptions.HTTPException):
        return HttpError(error.status_code, str(error.detail), headers=error.headers)
    if isinstance(error, TimeoutError):
        return HttpError(408, "the request took too long", headers=CLOSE)
    if errors.is_own(error):  # a full disk, no descriptors: temporary, we hope
        return HttpError(503, "the server has run out of resources", why=errors.own_error(error).why)  # fmt: skip
    _log(error)
    return HttpError(500, "internal error")


def _log(error: Exception) -> None:
    """Log a bug, once for each place: a client may repeat the request that shows it."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if OWN in frame.filename] or frames
    kind = type(error).__name__
    place = (kind, *((frame.filename, frame.lineno) for frame in (*own[-1:], *frames[-1:])))
    if place in _logged or len(_logged) >= MAX_LOGGED:
        return
    _logged.add(place)
    # Not the message: it may hold what a client sent.
    text = "".join(traceback.format_list(frames[-MAX_FRAMES:]))
    sys.stderr.write(f"overnight serve: internal error, logged once: {kind}\n{text}")
    sys.stderr.flush()
