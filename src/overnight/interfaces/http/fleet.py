"""Hosts, events, windows and tasks."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import fastapi
import pydantic
from fastapi import Query

from overnight import errors
from overnight.app import fleet_windows, serving
from overnight.interfaces.http import operations as ops
from overnight.interfaces.http import problems
from overnight.model.audit import Report as Audit
from overnight.model.control_plane import EventFilter, HostFilter, HostRow, TaskRow, WindowRow
from overnight.model.event import Event
from overnight.model.selection import Window
from overnight.model.uplink import Rollup, TaskKind

ROUTER = ops.router()
MEDIA = {"json": "application/json", "html": "text/html", "text": "text/plain"}
Response = fastapi.Response
CPU_ANSWERS = threading.BoundedSemaphore(2)  # each may take 100 MB


class WantedWindow(pydantic.BaseModel, extra="forbid"):
    """The window of an event, or of a time."""

    event: str = pydantic.Field("", max_length=128, examples=["net.driver_reset-ddcefd90"])
    begin_us: int = pydantic.Field(0, ge=0, le=1 << 53)
    end_us: int = pydantic.Field(0, ge=0, le=1 << 53)


class HeldWindow(pydantic.BaseModel):
    sha256: str = pydantic.Field(description="Digest, for /api/v1/windows/{sha256}.")


class AskedTask(pydantic.BaseModel):
    task: str = pydantic.Field(description="Id of the task that uploads the window.")


class NewTask(pydantic.BaseModel, extra="forbid"):
    host: str = pydantic.Field(max_length=255, examples=["db-7"])
    kind: TaskKind
    arguments: dict[str, Any] = pydantic.Field({}, examples=[{"event": "net.driver_reset-ddcefd90"}])  # fmt: skip
    why: str = pydantic.Field("", max_length=500, description="Reason, for the audit log.")


def parse_labels(texts: Iterable[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    for name, sign, _ in pairs:
        if not sign or not name:
            raise errors.UsageError(
                f"invalid label {name[:60]!r}", why="a label is NAME=VALUE", todo="send label=zone=b"
            )  # fmt: skip
    return {name: value for name, _, value in pairs}


# --- hosts


@ROUTER.get("/hosts", tags=["hosts"], response_model=ops.Listed[HostRow])
def list_hosts(
    server: ops.Served, _: ops.Viewer,
    label: Annotated[list[str], Query(max_length=16, description="NAME=VALUE that the host has (repeatable).", examples=[["zone=b"]])] = [],  # noqa: B006  FastAPI copies it
    prefix: Annotated[str, Query(max_length=255, description="Prefix of the name.")] = "",
    state: Annotated[Literal["", "online", "offline"], Query(description="online: reported in the last five minutes.")] = "",
    cursor: ops.Cursor = "", limit: ops.Limit = 100,
) -> Response:  # fmt: skip
    """List hosts by name."""
    since = server.fleet.context.clock() - fleet_windows.OFFLINE_US
    chosen = HostFilter(
        parse_labels(label),
        prefix,
        seen_since_us=since if state == "online" else 0,
        seen_before_us=since if state == "offline" else 0,
    )
    return ops.page(server.fleet.hosts(chosen, cursor, limit))


@ROUTER.get("/hosts/{name}", tags=["hosts"], response_model=HostRow)
def show_host(server: ops.Served, _: ops.Viewer, name: ops.Name) -> Response:
    """Show a host."""
    return ops.answer(server.fleet.host(name))


@ROUTER.get("/hosts/{name}/audit", tags=["hosts"], response_model=Audit)
def show_audit(server: ops.Served, _: ops.Viewer, name: ops.Name) -> Response:
    """Show the audit of a host's units.

    The last one that the host reported (schema audit-1), with the time at which it was examined.
    """
    return ops.answer(server.fleet.unit_audit(name))


@ROUTER.delete("/hosts/{name}", tags=["hosts"], status_code=204)
def forget_host(server: ops.Served, by: ops.Admin, name: ops.Name, why: ops.Why = "") -> None:
    """Forget a host.

    Everything that it sent is deleted, and its credential is revoked.
    """
    server.fleet.forget(name, by=by.title, why=why)


@ROUTER.delete("/hosts/{name}/credential", tags=["hosts"], status_code=204)
def revoke_host(server: ops.Served, by: ops.Admin, name: ops.Name, why: ops.Why = "") -> None:
    """Revoke a host's credential.

    Its agent is refused from now on; its data stays. A new token enrols it again.
    """
    server.fleet.agents.revoke(name, by=by.title, why=why)


@ROUTER.get("/cpu", tags=["hosts"], response_model=ops.Listed[Rollup])
def show_cpu(
    server: ops.Served, _: ops.Viewer, host: ops.Host,
    begin_us: Annotated[int, Query(ge=0, le=1 << 53, description="µs since 1970.")],
    end_us: Annotated[int, Query(ge=0, le=1 << 53, description="µs since 1970.")],
) -> Response:  # fmt: skip
    """Show the CPU time of a host: intervals in percent per core, with the worst second."""
    if not CPU_ANSWERS.acquire(blocking=False):
        raise problems.HttpError(503, "too many answers about CPU time at once")
    try:
        return ops.page(server.fleet.rollups(host, Window(begin_us, end_us)))
    finally:
        CPU_ANSWERS.release()


# --- events and windows


@ROUTER.get("/events", tags=["events"], response_model=ops.Listed[Event])
def list_events(
    server: ops.Served, _: ops.Viewer,
    kind: Annotated[list[str], Query(max_length=64, description="Kind; one that ends with a dot is a prefix (repeatable).", examples=[["net.driver_reset"]])] = [],  # noqa: B006
    host: Annotated[list[str], Query(max_length=1000, description="Name of a host (repeatable).")] = [],  # noqa: B006
    severity: Annotated[Literal["", "info", "warning", "critical"], Query(description="Minimum severity.")] = "",
    begin_us: ops.Time = 0, end_us: ops.Time = 0, cursor: ops.Cursor = "", limit: ops.Limit = 100,
) -> Response:  # fmt: skip
    """List events, the newest first."""
    chosen = EventFilter(tuple(kind), tuple(host), severity, begin_us, end_us)
    return ops.page(server.fleet.events(chosen, cursor, limit))


@ROUTER.get("/events/{event_id}", tags=["events"], response_model=Event)
def show_event(server: ops.Served, _: ops.Viewer, event_id: ops.EventId, host: ops.Host = "") -> Response:  # fmt: skip
    """Show an event.

    Name its host where several hosts have the id.
    """
    return ops.answer(server.fleet.event(event_id, host))


@ROUTER.get("/events/{event_id}/diagnosis", tags=["events"], **ops.returns(*MEDIA.values()))
def diagnose_event(
    server: ops.Served, _: ops.Viewer, event_id: ops.EventId, host: ops.Host = "",
    form: Annotated[Literal["json", "html", "text"], Query(alias="format", description="Form of the report.")] = "json",
) -> Response:  # fmt: skip
    """Diagnose an event.

    The answer is the verdict (schema diagnosis-1), or the report. It is kept, so that it is quick the next time.
    """
    return respond_diagnosis(server, event_id, form, host)


def respond_diagnosis(server: serving.Server, event_id: str, form: str, host: str) -> Response:
    headers = {"content-security-policy": server.report_policy()} if form == "html" else None
    file = server.diagnosis(event_id, form, host)
    return fastapi.responses.FileResponse(file, media_type=MEDIA[form], headers=headers)


@ROUTER.get("/windows/{sha256}", tags=["events"], **ops.returns("application/octet-stream"))
def download_window(server: ops.Served, _: ops.Viewer, sha256: ops.Sha256) -> Response:  # fmt: skip
    """Download a window."""
    file = server.fleet.open_window(sha256)
    return fastapi.responses.FileResponse(file, media_type="application/octet-stream")


@ROUTER.get("/hosts/{name}/windows", tags=["events"], response_model=ops.Listed[WindowRow])
def list_windows(
    server: ops.Served, _: ops.Viewer, name: ops.Name,
    event: Annotated[str, Query(max_length=128, description="Id of an event.")] = "",
    begin_us: ops.Time = 0, end_us: ops.Time = 0,
) -> Response:  # fmt: skip
    """List windows of a host; `received_us` is null while only the host has one."""
    server.fleet.host(name)
    span = {"event": event} if event else {"begin_us": begin_us, "end_us": end_us or 1 << 53}
    return ops.page(server.fleet.windows(name, **span))


@ROUTER.post(
    "/hosts/{name}/windows",
    tags=["events"],
    response_model=HeldWindow,
    responses={202: {"model": AskedTask, "description": "The host was asked to upload it."}},
)
def request_window(server: ops.Served, by: ops.Viewer, name: ops.Name, window: WantedWindow, why: ops.Why = "") -> Response:  # fmt: skip
    """Get a window from a host.

    The answer is the digest, if the server holds the window, or a task: poll it, and its result has the digest. A
    viewer can only get windows that the server holds. 409 `host-offline` lists the windows that it holds instead.
    """
    found = fleet_windows.request_window(
        server.fleet, by, name,
        event_id=window.event, begin_us=window.begin_us, end_us=window.end_us, why=why,
    )  # fmt: skip
    if isinstance(found, WindowRow):
        return ops.answer({"sha256": found.sha256})
    return ops.answer({"task": found.id}, 202)


# --- tasks


@ROUTER.get("/tasks", tags=["tasks"], response_model=ops.Listed[TaskRow])
def list_tasks(server: ops.Served, _: ops.Viewer, host: ops.Host = "", limit: ops.Limit = 100) -> Response:  # fmt: skip
    """List tasks, the newest first."""
    return ops.page(server.fleet.tasks.list(host, limit))


@ROUTER.post("/tasks", tags=["tasks"], response_model=TaskRow, status_code=201)
def create_task(server: ops.Served, by: ops.Operator, task: NewTask, why: ops.Why = "") -> Response:  # fmt: skip
    """Give a host a task.

    The host gets it with its next report. Its agent.toml decides whether the task may run.
    """
    why = task.why or why
    row = server.fleet.tasks.create(task.host, task.kind, task.arguments, by=by.title, why=why)  # fmt: skip
    return ops.answer(row, 201)


@ROUTER.get("/tasks/{task_id}", tags=["tasks"], response_model=TaskRow)
def show_task(server: ops.Served, _: ops.Viewer, task_id: str) -> Response:
    """Show a task."""
    return ops.answer(server.fleet.tasks.get(task_id))


@ROUTER.delete("/tasks/{task_id}", tags=["tasks"], response_model=TaskRow)
def cancel_task(server: ops.Served, by: ops.Operator, task_id: str, why: ops.Why = "") -> Response:
    """Cancel a task."""
    return ops.answer(server.fleet.tasks.cancel(task_id, by=by.title, why=why))
