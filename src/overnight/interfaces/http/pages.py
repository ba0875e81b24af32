"""Pages and state: reports, metrics, health, and the operations of pool members."""

from __future__ import annotations

import fastapi
import starlette.concurrency
from fastapi import Depends
from starlette.requests import Request

from overnight.interfaces.http import access
from overnight.interfaces.http import operations as ops
from overnight.model.control_plane import Role
from overnight.model.openmetrics import CONTENT_TYPE

ROUTER = fastapi.APIRouter(dependencies=[Depends(access.refuse_unknown)])
TEXT = ("text/plain",)
FOR_VIEWERS = [Depends(access.require(Role.VIEWER, page=True))]


@ops.described(ROUTER.get, "/healthz", "server", media=TEXT)
async def healthz() -> fastapi.Response:
    """Whether the process runs."""
    return fastapi.Response("ok\n", media_type="text/plain")


@ops.described(ROUTER.get, "/readyz", "server", media=TEXT)
def readyz(server: ops.Served) -> fastapi.Response:  # fmt: skip
    """Whether the database answers.

    Answer 503 while the database cannot be reached.
    """
    server.check_ready()
    return fastapi.Response("ready\n", media_type="text/plain")


@ops.described(ROUTER.get, "/metrics", "server", media=(CONTENT_TYPE,), dependencies=FOR_VIEWERS)
def metrics(server: ops.Served) -> fastapi.Response:  # fmt: skip
    """Metrics of the server and of pools."""
    return fastapi.Response(server.metrics(), headers={"content-type": CONTENT_TYPE})


@ops.described(
    ROUTER.get, "/reports/{event_id}", "events", media=("text/html",), dependencies=FOR_VIEWERS
)
def show_report(server: ops.Served, event_id: ops.EventId, host: ops.Host = "") -> fastapi.Response:  # fmt: skip
    """Report of an event as a page.

    Return the diagnosis of an event as one HTML file. A browser sends the token as a password.
    """
    file = server.diagnosis(event_id, "html", host)
    headers = {"content-security-policy": f"{server.report_policy()}; frame-ancestors 'none'"}
    return fastapi.responses.FileResponse(file, media_type="text/html", headers=headers)


async def _answer_member(request: Request, server: ops.Served) -> fastapi.Response:
    path, credential = request.scope["path"], access.bearer(request)
    status, answered = await starlette.concurrency.run_in_threadpool(
        server.answer_member, path, credential, await request.body()
    )
    return fastapi.Response(answered, status, media_type="application/json")


for _path in ("/v1/enrol", "/v1/phase", "/v1/beat"):  # baked into machine templates
    ROUTER.add_api_route(_path, _answer_member, methods=["POST"], include_in_schema=False)
