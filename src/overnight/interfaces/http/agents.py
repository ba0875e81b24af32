"""Operations of agents: raw bodies, no validation by FastAPI, one job of a worker thread each."""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
from collections.abc import Callable
from typing import Any, TypeVar

import fastapi
from fastapi.types import DecoratedCallable
from starlette.requests import Request

from overnight.app import fleet_agents
from overnight.interfaces.http import access, limits, problems
from overnight.interfaces.http import operations as ops
from overnight.model import protocol, uplink

JSON = "application/json"
ROUTER = ops.Router(prefix="/api/v1/agents", tags=["agents"])
Answer = TypeVar("Answer")
AGENT_JOBS = 2  # an agent sends one request after the other; the answer to one may have been lost


class Workers:
    """Threads for the database work of agents; refuses jobs when too many wait, or those of one agent."""

    def __init__(self, threads: int = 8, waiting: int = 512) -> None:
        self._pool = concurrent.futures.ThreadPoolExecutor(threads, "agents")
        self._waiting: collections.Counter[str] = collections.Counter()
        self._most = waiting

    async def run(self, call: Callable[..., Answer], *arguments: object, agent: str = "") -> Answer:
        """Run a call in a thread; `agent` is a credential. A large snapshot takes seconds and 200 MB."""
        if self._waiting.total() >= self._most or (agent and self._waiting[agent] >= AGENT_JOBS):
            raise problems.HttpError(503, "the server is overloaded")
        self._waiting[agent] += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, call, *arguments)
        finally:
            self._waiting[agent] -= 1
            self._waiting = +self._waiting


TEXT = {"type": "string", "minLength": 1, "maxLength": 255}
SECRET = {"type": "string", "pattern": f"^{uplink.CREDENTIAL.pattern}$"}
TIME = {"type": "integer", "minimum": 0, "description": "µs since 1970 on the host's clock."}
LIST = {"type": "array", "items": {"type": "object"}}
REPORT = {
    "version": {"type": "integer", "enum": [protocol.VERSION]},
    "sent_us": TIME,
    "boot": {"type": "string", "pattern": f"^{uplink.BOOT.pattern}$"},
    "uptime_us": {"type": "integer", "minimum": 0},
    "spells": LIST | {"description": "Observed time since the last accepted report."},
    "labels": {"type": "object", "description": "Labels, if they changed or were asked for."},
    "events": LIST | {"description": "Events (schema event-1); a known id replaces the event."},
    "rollups": LIST | {"description": "CPU time per core and interval: mean, maximum, worst second."},
    "snapshot": {"type": "object", "description": "Snapshot, if it changed or was asked for."},
    "audit": {"type": "object", "description": "Audit (schema audit-1), after each examination."},
    "windows": LIST | {"description": "Bundles that the host holds for upload."},
    "lost": {"type": "object", "description": "What the spool dropped since the last report."},
}  # fmt: skip
REPORT_EXAMPLE = {
    "version": 1, "sent_us": 1763240390000000, "boot": "5f0c9a41", "uptime_us": 86400000000,
    "spells": [{"boot": "5f0c9a41", "begin_us": 1763240360000000, "end_us": 1763240390000000, "uptime_us": 86370000000}],
    "events": [], "rollups": [], "windows": [], "lost": {"events": 0, "rollups": 0},
}  # fmt: skip
REPLY_EXAMPLE = {
    "interval": 30, "now_us": 1763240390100000, "tasks": [], "want": [], "send": ["labels"],
}  # fmt: skip
TASK = {
    "state": {"type": "string", "enum": [*protocol.REPORTED]},
    "detail": {"type": "string", "maxLength": uplink.MAX_DETAIL},
    "progress": {"type": "number", "minimum": 0, "maximum": 1},
    "result": {"type": "object"},
}
PIECE = {"type": "string", "format": "binary", "maxLength": limits.Limits.chunk_bytes}


def _operation(
    path: str, properties: dict[str, Any], required: list[str], example: object, about: str, answer: object,
) -> Callable[[DecoratedCallable], DecoratedCallable]:  # fmt: skip
    """Return the decorator of an operation whose JSON body is described, but not validated by FastAPI."""
    schema = {"type": "object", "properties": properties, "required": required}
    content = {JSON: {"schema": schema, "example": example}}
    return ROUTER.post(
        path,
        openapi_extra={"requestBody": {"required": True, "content": content}},
        responses=_answer(about, answer),
    )


def _answer(about: str, example: object) -> dict[int | str, dict[str, Any]]:
    content = {JSON: {"schema": {"type": "object"}, "example": example}}
    return {200: {"description": about, "content": content}}


async def _run(
    call: Callable[..., bytes], request: Request, sent: access.Sent = None, *arguments: object
) -> fastapi.Response:
    state = request.app.state
    encoding = request.headers.get("content-encoding", "").lower()
    credential, body = access.text(sent), await request.body()
    answer = await state.workers.run(
        call, state.server.agents, credential, *arguments, body, encoding, agent=credential
    )
    return fastapi.Response(answer, media_type=JSON)


@_operation(
    "/enrol",
    {"token": TEXT, "credential": SECRET, "host": TEXT}, ["token", "credential", "host"],
    {"token": "ovn_4f1a9c205b7e_…", "credential": "made by the agent", "host": "db-7"},
    "The host is enrolled.", {"host": "db-7", "host_id": "5f0c9a41d2b70a1b"},
)  # fmt: skip
async def enrol(request: Request) -> fastapi.Response:
    """Enrol a host.

    Exchange a single-use token for the agent's own credential, which the agent makes.

    The same token with the same credential is answered again: the first answer may be lost.
    """
    return await _run(fleet_agents.Agents.enrol, request)


@_operation(
    "/rotate", {"credential": SECRET}, ["credential"], {"credential": "the new one"},
    "Both credentials are valid until the new one is used.", {"host": "db-7"},
)  # fmt: skip
async def rotate(request: Request, sent: access.Credential) -> fastapi.Response:
    """Replace the credential.

    Announce a new credential. The old one stays valid until the new one is used.
    """
    return await _run(fleet_agents.Agents.rotate, request, sent)


@_operation(
    "/report", REPORT, ["version", "sent_us", "boot", "uptime_us"], REPORT_EXAMPLE,
    "The report is stored. The answer has the next tasks.", REPLY_EXAMPLE,
)  # fmt: skip
async def report(request: Request, sent: access.Credential) -> fastapi.Response:
    """Report events, rollups and observed time.

    Store a report. The same report twice changes nothing the second time.

    The body may be compressed (`Content-Encoding: gzip`).
    """
    return await _run(fleet_agents.Agents.report, request, sent)


@_operation(
    "/tasks/{task_id}", TASK, ["state"],
    {"state": "done", "detail": "", "progress": 1, "result": {"sha256": "ab…"}},
    "The state of the task; an agent sees here that it was cancelled.", {"state": "done"},
)  # fmt: skip
async def report_task(request: Request, sent: access.Credential, task_id: str) -> fastapi.Response:  # fmt: skip
    """Report the state of a task."""
    return await _run(fleet_agents.Agents.report_task, request, sent, task_id)


@ROUTER.put(
    "/blobs/{sha256}",
    openapi_extra={"requestBody": {"required": True, "content": {"application/octet-stream": {"schema": PIECE}}}},
    responses=_answer("The part is stored.", {"offset": 1048576, "complete": False}),
    dependencies=[fastapi.Depends(access.refuse_unknown)],
)  # fmt: skip
async def put_blob(
    request: Request,
    sent: access.Credential,
    sha256: ops.Sha256,
    offset: int = fastapi.Query(ge=0, le=1 << 40, description="Bytes that the server has."),
    size: int = fastapi.Query(ge=1, le=1 << 40, description="Bytes of the whole bundle."),
) -> fastapi.Response:
    """Upload a part of a window.

    Append at most 1 MiB. 409 names the offset at which the upload continues.
    """
    return await _run(fleet_agents.Agents.put_blob, request, sent, sha256, offset, size)
