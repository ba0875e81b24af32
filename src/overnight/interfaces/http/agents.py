"""Operations of agents: raw bodies, no validation by FastAPI, one job of a worker thread each."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable
from typing import Any

import fastapi
from fastapi.types import DecoratedCallable
from starlette.requests import Request

from overnight.app import fleet_agents
from overnight.interfaces.http import access, problems

JSON = "application/json"
ROUTER = fastapi.APIRouter(prefix="/api/v1/agents", tags=["agents"])
SECURITY: dict[str, Any] = {"security": [{"credential": []}]}


class Workers:
    """Threads for the database work of agents; refuses jobs when too many wait."""

    def __init__(self, threads: int = 8, waiting: int = 512) -> None:
        self._pool = concurrent.futures.ThreadPoolExecutor(threads, "agents")
        self._waiting, self._most = 0, waiting

    async def run(self, call: Callable[..., bytes], *arguments: object) -> bytes:
        if self._waiting >= self._most:
            raise problems.HttpError(503, "the server is overloaded")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, call, *arguments)
        finally:
            self._waiting -= 1


TEXT = {"type": "string", "minLength": 1, "maxLength": 255}
SECRET = {"type": "string", "pattern": "^[A-Za-z0-9_-]{32,128}$"}
TIME = {"type": "integer", "minimum": 0, "description": "µs since 1970 on the host's clock."}
LIST = {"type": "array", "items": {"type": "object"}}
REPORT = {
    "version": {"type": "integer", "enum": [1]},
    "sent_us": TIME,
    "boot": {"type": "string", "pattern": "^[0-9a-fA-F-]{1,64}$"},
    "uptime_us": {"type": "integer", "minimum": 0},
    "spells": LIST | {"description": "Observed time since the last accepted report."},
    "labels": {"type": "object", "description": "Labels, if they changed or were asked for."},
    "events": LIST | {"description": "Events (schema event-1); a known id replaces the event."},
    "rollups": LIST | {"description": "CPU time per core and interval: mean, maximum, worst second."},
    "snapshot": {"type": "object", "description": "Snapshot, if it changed or was asked for."},
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
    "state": {"type": "string", "enum": ["running", "done", "failed", "refused"]},
    "detail": {"type": "string", "maxLength": 2048},
    "progress": {"type": "number", "minimum": 0, "maximum": 1},
    "result": {"type": "object"},
}
PIECE = {"type": "string", "format": "binary", "maxLength": 1 << 20}


def _operation(
    path: str, summary: str, properties: dict[str, Any], required: list[str], example: object,
    about: str, answer: object, **more: Any,
) -> Callable[[DecoratedCallable], DecoratedCallable]:  # fmt: skip
    """Return the decorator of an operation whose JSON body is described, but not validated by FastAPI."""
    schema = {"type": "object", "properties": properties, "required": required}
    content = {JSON: {"schema": schema, "example": example}}
    return ROUTER.post(
        path,
        summary=summary,
        openapi_extra={"requestBody": {"required": True, "content": content}, **more},
        responses=_answer(about, answer),
    )


def _answer(about: str, example: object) -> dict[int | str, dict[str, Any]]:
    content = {JSON: {"schema": {"type": "object"}, "example": example}}
    return {200: {"description": about, "content": content}}


async def _run(
    call: Callable[..., bytes], request: Request, *arguments: object, raw: bool = False
) -> fastapi.Response:
    workers: Workers = request.app.state.workers
    encoding = () if raw else (request.headers.get("content-encoding", "").lower(),)
    body = await request.body()
    answer = await workers.run(call, access.bearer(request), *arguments, body, *encoding)
    return fastapi.Response(answer, media_type=JSON)


def _agents(request: Request) -> fleet_agents.Agents:
    agents: fleet_agents.Agents = request.app.state.server.agents
    return agents


@_operation(
    "/enrol", "Enrol a host",
    {"token": TEXT, "credential": SECRET, "host": TEXT}, ["token", "credential", "host"],
    {"token": "ovn_4f1a9c205b7e_…", "credential": "made by the agent", "host": "db-7"},
    "The host is enrolled.", {"host": "db-7", "host_id": "5f0c9a41d2b70a1b"}, security=[],
)  # fmt: skip
async def enrol(request: Request) -> fastapi.Response:
    """Exchange a single-use token for the agent's own credential, which the agent makes.

    The same token with the same credential is answered again: the first answer may be lost.
    """
    return await _run(_agents(request).enrol, request)


@_operation(
    "/rotate", "Replace the credential",
    {"credential": SECRET}, ["credential"], {"credential": "the new one"},
    "Both credentials are valid until the new one is used.", {"host": "db-7"}, **SECURITY,
)  # fmt: skip
async def rotate(request: Request) -> fastapi.Response:
    """Announce a new credential. The old one stays valid until the new one is used."""
    return await _run(_agents(request).rotate, request)


@_operation(
    "/report", "Report events, rollups and observed time",
    REPORT, ["version", "sent_us", "boot", "uptime_us"], REPORT_EXAMPLE,
    "The report is stored. The answer has the next tasks.", REPLY_EXAMPLE, **SECURITY,
)  # fmt: skip
async def report(request: Request) -> fastapi.Response:
    """Store a report. The same report twice changes nothing the second time.

    The body may be compressed (`Content-Encoding: gzip`).
    """
    return await _run(_agents(request).report, request)


@_operation(
    "/tasks/{task_id}", "Report the state of a task", TASK, ["state"],
    {"state": "done", "detail": "", "progress": 1, "result": {"sha256": "ab…"}},
    "The state of the task; an agent sees here that it was cancelled.", {"state": "done"}, **SECURITY,
)  # fmt: skip
async def report_task(request: Request, task_id: str) -> fastapi.Response:
    return await _run(_agents(request).report_task, request, task_id)


@ROUTER.put(
    "/blobs/{sha256}",
    summary="Upload a part of a window",
    openapi_extra={"requestBody": {"required": True, "content": {"application/octet-stream": {"schema": PIECE}}}, **SECURITY},
    responses=_answer("The part is stored.", {"offset": 1048576, "complete": False}),
    dependencies=[fastapi.Depends(access.refuse_unknown)],
)  # fmt: skip
async def put_blob(
    request: Request,
    sha256: str = fastapi.Path(pattern="^[0-9a-f]{64}$", description="Digest of the bundle."),
    offset: int = fastapi.Query(ge=0, le=1 << 40, description="Bytes that the server has."),
    size: int = fastapi.Query(ge=1, le=1 << 40, description="Bytes of the whole bundle."),
) -> fastapi.Response:
    """Append at most 1 MiB. 409 names the offset at which the upload continues."""
    return await _run(_agents(request).put_blob, request, sha256, offset, size, raw=True)
