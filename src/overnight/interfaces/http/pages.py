"""Pages and state: reports, metrics, health, and the operations of pool members."""

from __future__ import annotations

from typing import Any

import fastapi
import starlette.concurrency
from starlette.requests import Request

from overnight.interfaces.http import access
from overnight.model.control_plane import Role
from overnight.model.openmetrics import CONTENT_TYPE

ROUTER = fastapi.APIRouter(dependencies=[fastapi.Depends(access.refuse_unknown)])
TEXT: dict[str, Any] = {"content": {"text/plain": {"schema": {"type": "string"}}}}


@ROUTER.get("/healthz", tags=["server"], summary="Whether the process runs", responses={200: TEXT})
async def healthz() -> fastapi.Response:
    return fastapi.Response("ok\n", media_type="text/plain")


@ROUTER.get(
    "/readyz", tags=["server"], summary="Whether the database answers", responses={200: TEXT}
)
def readyz(request: Request) -> fastapi.Response:
    """Answer 503 while the database cannot be reached."""
    access.service(request).check_ready()
    return fastapi.Response("ready\n", media_type="text/plain")


@ROUTER.get(
    "/metrics",
    tags=["server"],
    summary="Metrics of the server and of pools",
    dependencies=[fastapi.Depends(access.require(Role.VIEWER, page=True))],
    response_class=fastapi.Response,
    responses={200: {"description": "OpenMetrics text.", "content": {CONTENT_TYPE: {"schema": {"type": "string"}}}}},
)  # fmt: skip
def metrics(request: Request) -> fastapi.Response:
    return fastapi.Response(
        access.service(request).metrics(), headers={"content-type": CONTENT_TYPE}
    )


@ROUTER.get(
    "/reports/{event_id}",
    tags=["events"],
    summary="Report of an event as a page",
    dependencies=[fastapi.Depends(access.require(Role.VIEWER, page=True))],
    response_class=fastapi.responses.HTMLResponse,
)
def show_report(request: Request, event_id: str) -> fastapi.Response:
    """Return the diagnosis of an event as one HTML file. A browser sends the token as a password."""
    server = access.service(request)
    file = server.diagnosis(event_id, "html")
    headers = {"content-security-policy": f"{server.report_policy()}; frame-ancestors 'none'"}
    return fastapi.responses.FileResponse(file, media_type="text/html", headers=headers)


async def _answer_member(request: Request) -> fastapi.Response:
    answer = access.service(request).answer_member
    path, credential = request.scope["path"], access.bearer(request)
    body = await request.body()
    status, answered = await starlette.concurrency.run_in_threadpool(answer, path, credential, body)
    return fastapi.Response(answered, status, media_type="application/json")


for _path in ("/v1/enrol", "/v1/phase", "/v1/beat"):  # baked into machine templates
    ROUTER.add_api_route(_path, _answer_member, methods=["POST"], include_in_schema=False)
