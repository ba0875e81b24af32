"""The HTTP API for members: enrol, phase, beat.

`MemberApi` is all that it needs of the control plane, so that another server can mount the same.

    POST /v1/enrol  {"token", "credential"}     -> {"member_id"}
    POST /v1/phase  {"phase", "reason", "detail"} with `Authorization: Bearer CREDENTIAL`
    POST /v1/beat   {}                           the same; the answer has the member's state
"""

from __future__ import annotations

import functools
import json
from typing import Any, Protocol

from overnight import errors, http_listener
from overnight.pools import pool_errors

LIMITS = http_listener.Limits(connections=128, seconds=10.0, body_bytes=65536, per_second=1000.0)


class MemberApi(Protocol):
    """The requests of a member's agent; `enrolment.Enrolment` answers them."""

    def enrol(self, token: str, credential: str) -> str: ...
    def phase(
        self, credential: str, phase: str, reason: str = "", detail: str = ""
    ) -> dict[str, Any]: ...
    def beat(self, credential: str) -> dict[str, Any]: ...


Answer = tuple[int, dict[str, Any]]
STATUS: tuple[tuple[type[errors.OvernightError], int], ...] = (
    (pool_errors.TooEarlyError, 425),
    (pool_errors.EnrolmentRefusedError, 403),
    (pool_errors.DatabaseUnavailableError, 503),
    (errors.UsageError, 400),
)


# path: required parameters, allowed parameters
PARAMETERS: dict[str, tuple[set[str], set[str]]] = {
    "/v1/enrol": ({"token", "credential"}, {"token", "credential"}),
    "/v1/phase": ({"phase"}, {"phase", "reason", "detail"}),
    "/v1/beat": (set(), set()),
}


def answer(api: MemberApi, path: str, credential: str, body: object) -> Answer:
    """Answer one request: HTTP status and document."""
    if not isinstance(body, dict) or not all(isinstance(v, str) for v in body.values()):
        return _refuse(400, "the body must be a JSON object of strings")
    if path not in PARAMETERS:
        return _refuse(404, f"unknown path {path}")
    needed, allowed = PARAMETERS[path]
    if not needed <= set(body) <= allowed:
        return _refuse(400, f"{path} takes {', '.join(sorted(allowed)) or 'nothing'}")
    try:
        if path == "/v1/enrol":
            return 200, {"member_id": api.enrol(**body)}
        if path == "/v1/phase":
            return 200, api.phase(credential, **body)
        return 200, api.beat(credential)
    except errors.OvernightError as error:
        status = next((code for kind, code in STATUS if isinstance(error, kind)), 500)
        return status, error.as_json()


def _refuse(status: int, what: str) -> Answer:
    return status, {"error": {"kind": "usage", "what": what}}


def respond(api: MemberApi, request: http_listener.Request) -> http_listener.Answer:
    """Answer a request of HTTP."""
    if request.method != "POST":
        return http_listener.refuse(404, "only POST is served")
    try:
        body = json.loads(request.body or b"{}")
    except (ValueError, RecursionError):
        body = None
    credential = request.headers.get("Authorization", "").removeprefix("Bearer ")
    return http_listener.answer_json(*answer(api, request.path, credential, body))


def serve(api: MemberApi, *, address: str = "127.0.0.1", port: int = 0) -> http_listener.Listener:
    """Answer members until the listener is closed."""
    return http_listener.Listener(
        address,
        port,
        functools.partial(respond, api),
        serves="members",
        option="--listen",
        limits=LIMITS,
    )
