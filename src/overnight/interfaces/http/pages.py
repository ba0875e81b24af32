"""Pages and state: reports, metrics, health, and the operations of pool members."""

from __future__ import annotations

import asyncio

import fastapi
import starlette.concurrency
from fastapi import Depends
from fastapi.responses import HTMLResponse, PlainTextResponse
from starlette.requests import Request

from overnight.interfaces.http import access, fleet, problems
from overnight.interfaces.http import operations as ops
from overnight.model.control_plane import Role
from overnight.model.openmetrics import CONTENT_TYPE

ROUTER = ops.Router(dependencies=[Depends(access.refuse_unknown)])
READY_SECONDS = 2.0
FOR_VIEWERS = [Depends(access.require(Role.VIEWER, page=True))]


@ROUTER.get("/healthz", tags=["server"], response_class=PlainTextResponse)
async def healthz() -> fastapi.Response:
    """Check that the process runs."""
    return PlainTextResponse("ok\n")


@ROUTER.get("/readyz", tags=["server"], response_class=PlainTextResponse)
async def readyz(request: Request, server: ops.Served) -> fastapi.Response:
    """Check that the database answers.

    The status is 503 while the database cannot be reached, or does not answer within two seconds.
    """
    state = request.app.state
    if state.probe is None or state.probe.done():
        # In a thread of its own: all others may wait for the database.
        state.probe = state.prober.submit(server.check_ready)
    probe = asyncio.wrap_future(state.probe)
    done, _ = await asyncio.wait([probe], timeout=READY_SECONDS)
    if not done:
        probe.add_done_callback(lambda late: late.cancelled() or late.exception())
        why = f"it did not answer within {READY_SECONDS:g} s"
        raise problems.HttpError(
            503, "the database does not answer", kind="database-unavailable", why=why
        )
    probe.result()
    return PlainTextResponse("ready\n")


@ROUTER.get("/metrics", tags=["server"], **ops.returns(CONTENT_TYPE), dependencies=FOR_VIEWERS)
def metrics(server: ops.Served) -> fastapi.Response:
    """Show metrics of the server and of pools."""
    return fastapi.Response(server.metrics(), media_type=CONTENT_TYPE)


@ROUTER.get(
    "/reports/{event_id}", tags=["events"], response_class=HTMLResponse, dependencies=FOR_VIEWERS
)
def show_report(server: ops.Served, event_id: ops.EventId, host: ops.Host = "") -> fastapi.Response:  # fmt: skip
    """Show the report of an event.

    The answer is the diagnosis as one HTML file. A browser sends the token as a password.
    """
    return fleet.respond_diagnosis(server, event_id, "html", host)


@ROUTER.get(
    "/investigations/{investigation_id}/{name}",
    tags=["investigations"],
    response_class=HTMLResponse,
    dependencies=FOR_VIEWERS,
)
def show_investigation(
    server: ops.Served, investigation_id: ops.Name, name: ops.Name
) -> fastapi.Response:
    """Show a file of the report of an investigation.

    The files are report.html, report.json, report.txt and the verdicts that the report links to. A browser sends the
    token as a password.
    """
    file, media = server.investigation_file(investigation_id, name)
    headers = {"content-security-policy": server.report_policy()}
    return fastapi.responses.FileResponse(file, media_type=media, headers=headers)


async def _answer_member(
    request: Request, server: ops.Served, sent: access.Credential
) -> fastapi.Response:
    answer = await starlette.concurrency.run_in_threadpool(
        server.answer_member, request.scope["path"], access.text(sent), await request.body()
    )
    return fastapi.Response(answer.body, answer.status, media_type=answer.content_type)


for _path in ("/v1/enrol", "/v1/phase", "/v1/beat"):  # baked into machine templates
    ROUTER.add_api_route(_path, _answer_member, methods=["POST"], include_in_schema=False)
