"""Hosts, events, windows and tasks, for people and tools."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Generic, Literal, TypeVar

import fastapi
import pydantic
from fastapi import Depends, Query
from fastapi.types import DecoratedCallable
from starlette.requests import Request

from overnight import errors
from overnight.app import fleet_windows
from overnight.interfaces.http import access
from overnight.model import selection
from overnight.model.control_plane import (
    EventFilter,
    HostFilter,
    HostRow,
    Page,
    Principal,
    Role,
    TaskRow,
    WindowRow,
)
from overnight.model.event import Event
from overnight.model.uplink import TaskKind

ROUTER = fastapi.APIRouter(prefix="/api/v1", dependencies=[Depends(access.refuse_unknown)])
Item = TypeVar("Item")
Viewer = Annotated[Principal, Depends(access.require(Role.VIEWER))]
Operator = Annotated[Principal, Depends(access.require(Role.OPERATOR))]
Admin = Annotated[Principal, Depends(access.require(Role.ADMIN))]
Cursor = Annotated[str, Query(max_length=2000, description="`next` of the page before.")]
Limit = Annotated[int, Query(ge=1, le=1000, description="Items on a page.")]
Time = Annotated[int, Query(ge=0, le=1 << 53, description="µs since 1970; 0: no limit.")]
Name = Annotated[str, fastapi.Path(max_length=255, description="Name of the host.")]
ONLINE_US = fleet_windows.OFFLINE_US


class Listed(pydantic.BaseModel, Generic[Item]):
    """A page of a list; `next` is the cursor of the next page, null on the last one."""

    items: list[Item]
    next: str | None = None


class Window(pydantic.BaseModel, extra="forbid"):
    """The window of an event, or of a time."""

    event: str = pydantic.Field("", max_length=128, examples=["net.driver_reset-ddcefd90"])
    begin_us: int = pydantic.Field(0, ge=0, le=1 << 53)
    end_us: int = pydantic.Field(0, ge=0, le=1 << 53)


class NewTask(pydantic.BaseModel, extra="forbid"):
    host: str = pydantic.Field(max_length=255, examples=["db-7"])
    kind: TaskKind
    arguments: dict[str, Any] = pydantic.Field({}, examples=[{"event": "net.driver_reset-ddcefd90"}])  # fmt: skip
    why: str = pydantic.Field("", max_length=500, description="Reason, for the audit log.")


class AskedTask(pydantic.BaseModel):
    task: str = pydantic.Field(description="Id of the task that uploads the window.")


class HeldWindow(pydantic.BaseModel):
    sha256: str = pydantic.Field(description="Digest, for /api/v1/windows/{sha256}.")


def answer(document: object, status: int = 200) -> fastapi.Response:
    return fastapi.Response(json.dumps(document), status, media_type="application/json")


def page(items: Iterable[dict[str, object]], following: str) -> fastapi.Response:
    return answer({"items": list(items), "next": following or None})


def documented(model: object, about: str) -> dict[int | str, dict[str, Any]]:
    """Describe an answer; it is not validated on the way out."""
    return {200: {"model": model, "description": about}}


def get(
    path: str, tag: str, summary: str, model: object, about: str
) -> Callable[[DecoratedCallable], DecoratedCallable]:
    return ROUTER.get(path, tags=[tag], summary=summary, responses=documented(model, about))


def parse_labels(texts: Iterable[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    for name, sign, _ in pairs:
        if not sign or not name:
            raise errors.UsageError(
                f"invalid label {name[:60]!r}", why="a label is NAME=VALUE", todo="send label=zone=b"
            )  # fmt: skip
    return {name: value for name, _, value in pairs}


@get("/hosts", "hosts", "List hosts", Listed[HostRow], "Hosts by name.")
def list_hosts(
    request: Request,
    _: Viewer,
    label: Annotated[list[str], Query(max_length=16, description="NAME=VALUE that the host has (repeatable).", examples=[["zone=b"]])] = [],  # noqa: B006  FastAPI copies it
    prefix: Annotated[str, Query(max_length=255, description="Begin of the name.")] = "",
    state: Annotated[Literal["", "online", "offline"], Query(description="online: reported in the last five minutes.")] = "",
    cursor: Cursor = "",
    limit: Limit = 100,
) -> fastapi.Response:  # fmt: skip
    fleet = access.service(request).fleet
    since = fleet.context.clock() - ONLINE_US
    chosen = HostFilter(
        parse_labels(label),
        prefix,
        seen_since_us=since if state == "online" else 0,
        seen_before_us=since if state == "offline" else 0,
    )
    found: Page[HostRow] = fleet.hosts(chosen, cursor, limit)
    return page((host.as_json() for host in found.items), found.next)


@get("/hosts/{name}", "hosts", "Show a host", HostRow, "The host.")
def show_host(request: Request, _: Viewer, name: Name) -> fastapi.Response:  # fmt: skip
    return answer(access.service(request).fleet.host(name).as_json())


@ROUTER.delete("/hosts/{name}", tags=["hosts"], summary="Forget a host", status_code=204)
def forget_host(request: Request, by: Admin, name: Name, why: access.Why = "") -> None:
    """Delete a host with everything it sent, and revoke its credential."""
    access.service(request).fleet.agents.forget(name, by=access.who(by), why=why)


@ROUTER.delete(
    "/hosts/{name}/credential",
    tags=["hosts"],
    summary="Revoke a host's credential",
    status_code=204,
)
def revoke_host(request: Request, by: Admin, name: Name, why: access.Why = "") -> None:  # fmt: skip
    """Refuse the host's agent from now on; its data stays. A new token enrols it again."""
    access.service(request).fleet.agents.revoke(name, by=access.who(by), why=why)


@get("/events", "events", "List events", Listed[Event], "Events, the newest first.")
def list_events(
    request: Request,
    _: Viewer,
    kind: Annotated[list[str], Query(max_length=64, description="Kind; one that ends with a dot is a prefix (repeatable).", examples=[["net.driver_reset"]])] = [],  # noqa: B006
    host: Annotated[list[str], Query(max_length=1000, description="Name of a host (repeatable).")] = [],  # noqa: B006
    severity: Annotated[Literal["", "info", "warning", "critical"], Query(description="Least severity.")] = "",
    begin_us: Time = 0,
    end_us: Time = 0,
    cursor: Cursor = "",
    limit: Limit = 100,
) -> fastapi.Response:  # fmt: skip
    chosen = EventFilter(tuple(kind), tuple(host), severity, begin_us, end_us)
    found: Page[Event] = access.service(request).fleet.events(chosen, cursor, limit)
    return page((event.as_json() for event in found.items), found.next)


EventId = Annotated[str, fastapi.Path(max_length=128, description="Id of the event, or a prefix.")]
OfHost = Annotated[str, Query(max_length=255, description="Host, where several have the id.")]


@get("/events/{event_id}", "events", "Show an event", Event, "The event.")
def show_event(request: Request, _: Viewer, event_id: EventId, host: OfHost = "") -> fastapi.Response:  # fmt: skip
    return answer(access.service(request).fleet.event(event_id, host).as_json())


MEDIA = {"json": "application/json", "html": "text/html", "text": "text/plain; charset=utf-8"}


@ROUTER.get(
    "/events/{event_id}/diagnosis",
    tags=["events"],
    summary="Diagnose an event",
    responses={
        200: {
            "description": "The verdict (schema diagnosis-1), or the report as text or page.",
            "content": {
                "application/json": {"schema": {"type": "object"}},
                "text/html": {"schema": {"type": "string"}},
                "text/plain": {"schema": {"type": "string"}},
            },
        }
    },
)
def diagnose_event(
    request: Request,
    _: Viewer,
    event_id: EventId,
    host: OfHost = "",
    form: Annotated[Literal["json", "html", "text"], Query(alias="format", description="Form of the report.")] = "json",
) -> fastapi.Response:  # fmt: skip
    """Run the detectors on the window of the event. The result is kept, so that it is quick the next time."""
    server = access.service(request)
    file = server.diagnosis(event_id, form, host)
    headers = {"content-security-policy": server.report_policy()} if form == "html" else None
    return fastapi.responses.FileResponse(file, media_type=MEDIA[form], headers=headers)


@ROUTER.get(
    "/windows/{sha256}",
    tags=["events"],
    summary="Download a window",
    responses={
        200: {
            "description": "The bundle.",
            "content": {
                "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
            },
        }
    },
    response_class=fastapi.Response,
)
def download_window(
    request: Request,
    _: Viewer,
    sha256: Annotated[str, fastapi.Path(pattern="^[0-9a-f]{64}$", description="Digest of the bundle.")],
) -> fastapi.Response:  # fmt: skip
    file = access.service(request).fleet.open_window(sha256)
    return fastapi.responses.FileResponse(file, media_type="application/octet-stream")


@get(
    "/hosts/{name}/windows",
    "events",
    "List windows of a host",
    Listed[WindowRow],
    "Windows; `received_us` is null while only the host has one.",
)
def list_windows(
    request: Request,
    _: Viewer,
    name: Name,
    event: Annotated[str, Query(max_length=128, description="Id of an event.")] = "",
    begin_us: Time = 0,
    end_us: Time = 0,
) -> fastapi.Response:  # fmt: skip
    fleet = access.service(request).fleet
    fleet.host(name)
    if event:
        found = fleet.windows(name, event=event)
    else:
        found = fleet.windows(name, begin_us=begin_us, end_us=end_us or 1 << 53)
    return page((dict(vars(window)) for window in found), "")


@ROUTER.post(
    "/hosts/{name}/windows",
    tags=["events"],
    summary="Get a window from a host",
    responses={
        200: {"model": HeldWindow, "description": "The server holds the window."},
        202: {"model": AskedTask, "description": "The host was asked to upload it."},
    },
)
def request_window(
    request: Request, by: Viewer, name: Name, window: Window, why: access.Why = ""
) -> fastapi.Response:
    """Return the digest of a window, or the task that has its host upload it.

    Poll the task; its result has the digest. A viewer can only get windows that the server holds. 409 means that
    the host is offline; `windows` lists what the server holds instead.
    """
    server = access.service(request)
    found = fleet_windows.request_window(
        server.fleet, by, name,
        event_id=window.event, begin_us=window.begin_us, end_us=window.end_us, why=why,
        now_us=server.fleet.context.clock(),
    )  # fmt: skip
    if isinstance(found, WindowRow):
        return answer({"sha256": found.sha256})
    return answer({"task": found.id}, 202)


@ROUTER.get(
    "/cpu",
    tags=["hosts"],
    summary="CPU time of a host",
    responses={
        200: {
            "description": "Intervals: mean, maximum and worst second per core.",
            "content": {"application/json": {"schema": {"type": "object"}}},
        }
    },
)
def show_cpu(
    request: Request,
    _: Viewer,
    host: Annotated[str, Query(max_length=255, description="Name of the host.")],
    begin_us: Annotated[int, Query(ge=0, le=1 << 53, description="µs since 1970.")],
    end_us: Annotated[int, Query(ge=0, le=1 << 53, description="µs since 1970.")],
) -> fastapi.Response:  # fmt: skip
    if begin_us >= end_us:
        raise errors.UsageError(
            "begin_us must be less than end_us", why="the window is empty", todo="swap the two"
        )
    found = access.service(request).fleet.rollups(host, selection.Window(begin_us, end_us))
    return page((vars(rollup) for rollup in found), "")


@get("/tasks", "tasks", "List tasks", Listed[TaskRow], "Tasks, the newest first.")
def list_tasks(
    request: Request,
    _: Viewer,
    host: Annotated[str, Query(max_length=255, description="Name of a host.")] = "",
    limit: Limit = 100,
) -> fastapi.Response:  # fmt: skip
    found = access.service(request).fleet.tasks.list(host, limit)
    return page((task.as_json() for task in found), "")


@ROUTER.post(
    "/tasks",
    tags=["tasks"],
    summary="Give a host a task",
    status_code=201,
    responses={
        201: {"model": TaskRow, "description": "The task; the host gets it with its next report."}
    },
)
def create_task(request: Request, by: Operator, task: NewTask, why: access.Why = "") -> fastapi.Response:  # fmt: skip
    """Give a host a task. Its agent.toml decides whether the task may run."""
    fleet = access.service(request).fleet
    row = fleet.tasks.create(
        task.host, task.kind, task.arguments, by=access.who(by), why=task.why or why
    )
    return answer(row.as_json(), 201)


@get("/tasks/{task_id}", "tasks", "Show a task", TaskRow, "The task.")
def show_task(request: Request, _: Viewer, task_id: str) -> fastapi.Response:  # fmt: skip
    return answer(access.service(request).fleet.tasks.get(task_id).as_json())


@ROUTER.delete(
    "/tasks/{task_id}",
    tags=["tasks"],
    summary="Cancel a task",
    responses=documented(TaskRow, "The task."),
)
def cancel_task(request: Request, by: Operator, task_id: str, why: access.Why = "") -> fastapi.Response:  # fmt: skip
    return answer(
        access.service(request).fleet.tasks.cancel(task_id, by=access.who(by), why=why).as_json()
    )
