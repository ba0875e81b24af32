"""The HTTP API for members, which `enrolment.Enrolment` answers.

POST /v1/enrol  {"token", "credential"}     -> {"member_id"}
POST /v1/phase  {"phase", "reason", "detail"} with `Authorization: Bearer CREDENTIAL`
POST /v1/beat   {}                           the same; the answer has the member's state
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING

from overnight import errors, http_listener
from overnight.database import database_errors
from overnight.pools import pool_errors

if TYPE_CHECKING:
    from overnight.pools import enrolment

LIMITS = http_listener.Limits(connections=128, seconds=10.0, body_bytes=65536, per_second=1000.0)
STATUS: tuple[tuple[type[errors.OvernightError], int], ...] = (
    (pool_errors.TooEarlyError, 425),
    (pool_errors.EnrolmentRefusedError, 403),
    (database_errors.DatabaseUnavailableError, 503),
    (errors.UsageError, 400),
)
# path: required parameters, allowed parameters
PARAMETERS: dict[str, tuple[set[str], set[str]]] = {
    "/v1/enrol": ({"token", "credential"}, {"token", "credential"}),
    "/v1/phase": ({"phase"}, {"phase", "reason", "detail"}),
    "/v1/beat": (set(), set()),
}


def answer(
    members: enrolment.Enrolment, path: str, credential: str, sent: bytes
) -> http_listener.Answer:
    refuse, answer_json = http_listener.refuse, http_listener.answer_json
    try:
        body = json.loads(sent or b"{}")
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict) or not all(isinstance(v, str) for v in body.values()):
        return refuse(400, "the body must be a JSON object of strings")
    if path not in PARAMETERS:
        return refuse(404, f"unknown path {path}")
    needed, allowed = PARAMETERS[path]
    if not needed <= set(body) <= allowed:
        return refuse(400, f"{path} takes {', '.join(sorted(allowed)) or 'nothing'}")
    try:
        if path == "/v1/enrol":
            return answer_json(200, {"member_id": members.enrol(**body)})
        if path == "/v1/phase":
            return answer_json(200, members.phase(credential, **body))
        return answer_json(200, members.beat(credential))
    except errors.OvernightError as error:
        status = next((code for kind, code in STATUS if isinstance(error, kind)), 500)
        return answer_json(status, error.as_json())


def respond(members: enrolment.Enrolment, request: http_listener.Request) -> http_listener.Answer:
    if request.method != "POST":
        return http_listener.refuse(404, "only POST is served")
    credential = request.headers.get("Authorization", "").removeprefix("Bearer ")
    return answer(members, request.path, credential, request.body)


def serve(
    members: enrolment.Enrolment, *, address: str = "127.0.0.1", port: int = 0
) -> http_listener.Listener:
    """Answer members until the listener is closed."""
    return http_listener.Listener(
        address,
        port,
        functools.partial(respond, members),
        serves="members",
        option="--listen",
        limits=LIMITS,
    )
