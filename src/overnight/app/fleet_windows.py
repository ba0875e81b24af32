"""Windows of events: find one that the server holds, or ask its host for it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from overnight import errors
from overnight.agent.uplink import windows as uploads
from overnight.model.control_plane import Role, WindowRow
from overnight.model.times import MINUTE_US
from overnight.model.uplink import TaskKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from overnight.fleet import control
    from overnight.model.control_plane import Principal, TaskRow

OFFLINE_US = 5 * MINUTE_US  # ten reports
REST_US = 6 * MINUTE_US
MAX_WINDOW_US = 60 * MINUTE_US


class HostOfflineError(errors.ConflictError):
    """A window is on a host that does not report; `details` lists the windows that the server holds."""

    def __init__(self, host: str, held: Sequence[WindowRow]) -> None:
        super().__init__(
            f"host {host} is offline, and the server does not hold that window",
            why="its agent has not reported for five minutes",
            todo="use a window that the server holds, or ask again when the host is back",
        )
        self.details: dict[str, Any] = {"windows": [vars(window) for window in held]}


class WindowMissingError(errors.NotFoundError):
    """The server does not hold the window of an event."""

    def __init__(self, host: str, event_id: str) -> None:
        super().__init__(
            f"the server does not hold the window of {event_id}",
            why=f"host {host} has not uploaded it, or retention removed it",
            todo=f"ask the host for it: `overnight bundle create --server URL --event {event_id}`",
        )


class WindowPendingError(errors.ConflictError):
    """The host uploads the window of an event."""

    def __init__(self, task: TaskRow) -> None:
        super().__init__(
            f"host {task.host} uploads the window",
            why=f"the server does not hold it; task {task.id} is {task.state}",
            todo="repeat the request in a minute; agents report every 30 s, and upload slowly",
        )


def find_held(
    plane: control.ControlPlane, host: str, event_id: str, *, least_end_us: int = 0
) -> WindowRow:
    """Return the newest window of an event that the server holds, and that does not end before a time."""
    rows = plane.windows(host, event=event_id)
    if newest := _newest(row for row in rows if row.end_us >= least_end_us):
        return newest
    raise WindowMissingError(host, event_id)


def _newest(windows: Iterable[WindowRow]) -> WindowRow | None:
    held = (window for window in windows if window.is_held)
    return max(held, key=lambda window: window.received_us or 0, default=None)


def request_window(
    plane: control.ControlPlane,
    asked_by: Principal,
    host: str,
    *,
    event_id: str = "",
    begin_us: int = 0,
    end_us: int = 0,
    why: str = "",
) -> WindowRow | TaskRow:
    """Return the newest window that the server holds, else the task that has its host upload it."""
    row = plane.host(host)
    arguments: dict[str, Any]
    now_us, needed_us = plane.context.clock(), 0
    if event_id:
        event = plane.event(event_id, host)
        arguments = {"event": event.id}
        needed_us = uploads.find_whole_end(event.time_us, event.until_us) - uploads.DELAY_US
    else:
        _check_span(begin_us, end_us)
        arguments = {"begin_us": begin_us, "end_us": end_us}
    known = plane.windows(host, **arguments)
    whole = (w for w in known if event_id or w.begin_us <= begin_us < end_us <= w.end_us)
    newest = _newest(whole)
    is_away, may_ask = row.seen_us < now_us - OFFLINE_US, asked_by.role.allows(Role.OPERATOR)
    if newest is None and is_away:
        raise HostOfflineError(host, [window for window in known if window.is_held])
    asked = [
        task
        for task in plane.tasks.list(host)
        if task.kind is TaskKind.UPLOAD_WINDOW and task.arguments == arguments
    ]
    upload = functools.partial(
        plane.tasks.create, host, TaskKind.UPLOAD_WINDOW, arguments, by=asked_by.title, why=why
    )
    if newest:
        # The rest of a first window is asked for once, if it did not come unasked: the recording may end there.
        is_late = newest.end_us < needed_us and now_us >= needed_us + REST_US
        if is_late and may_ask and not asked and not is_away:
            upload()
        return newest
    if waiting := next((task for task in asked if not task.state.is_final), None):
        return waiting
    if not may_ask:
        raise errors.NotAllowedError(
            f"only an operator can ask host {host} for a window",
            why=f"token {asked_by.name} has the role {asked_by.role}, and the server does not hold the window",
            todo="use a token with the role operator",
        )
    return upload()


def _check_span(begin_us: int, end_us: int) -> None:
    if not 0 < begin_us < end_us <= begin_us + MAX_WINDOW_US:
        raise errors.UsageError(
            "a window needs an event, or begin_us and end_us at most one hour apart",
            why="bundles are limited",
            todo='send {"event": ID} or {"begin_us": N, "end_us": N}',
        )


def require_window(
    plane: control.ControlPlane, asked_by: Principal, host: str, **chosen: Any
) -> WindowRow:
    """Return a window that the server holds; its host uploads one that it does not hold, for the next request."""
    found = request_window(plane, asked_by, host, **chosen)
    if isinstance(found, WindowRow):
        return found
    raise WindowPendingError(found)
