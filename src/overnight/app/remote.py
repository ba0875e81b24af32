"""The client of a control plane: `--server`.

The server answers questions about the fleet, with the documents that `-O json` prints. Evidence of a window comes as
a bundle, which the server holds or its host uploads; the same use cases read it here as a data home.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import pathlib
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from overnight import errors, http_client
from overnight.agent.uplink import windows as uploads
from overnight.app import events, fleet_questions, server_requests, windows
from overnight.model import times
from overnight.model.audit import Report as Audit
from overnight.model.control_plane import EventFilter, TaskRow, WindowRow
from overnight.model.emptiness import Empty, Reason
from overnight.model.event import Event
from overnight.model.selection import Window
from overnight.model.severity import Severity
from overnight.model.text import plural
from overnight.model.uplink import TaskState

if TYPE_CHECKING:
    from overnight.app import questions, remote_operations, server_settings

POLL_SECONDS, FOLLOW_SECONDS = 1.0, 1.0
# A host offers the first window of an event within this time, if at all, and uploads it within the other.
FIRST_US, OFFERED_US = 15 * times.SECOND_US, 60 * times.SECOND_US
STALLED_SECONDS = 600.0  # an agent reports every 30 s, and uploads slowly
MAX_NAMED = 5
# Where to look for the last serious event: most asked for are of this hour or day.
SPANS_US = (times.HOUR_US, times.DAY_US, 7 * times.DAY_US, 1 << 62)
EVERYTHING = Window(0, 1 << 62)

Progress = Callable[[str, float], None]  # step, and share of it that is done
Asked = TypeVar("Asked")
Found = TypeVar("Found")


class Server:
    """One control plane; not for several threads at once."""

    def __init__(self, settings: server_settings.Settings) -> None:
        self.url = settings.url
        self.why = ""  # reason of changes, for the audit log
        self._api = server_requests.Requests(settings)

    def close(self) -> None:
        self._api.close()

    @functools.cached_property
    def pools(self) -> remote_operations.RemotePools:
        from overnight.app import remote_operations

        return remote_operations.RemotePools(self._api, self.why)

    @functools.cached_property
    def clusters(self) -> remote_operations.RemoteClusters:
        from overnight.app import remote_operations

        return remote_operations.RemoteClusters(self._api, self.why)

    @functools.cached_property
    def confirmations(self) -> remote_operations.RemoteConfirmations:
        from overnight.app import remote_operations

        return remote_operations.RemoteConfirmations(self._api, self.why)

    @functools.cached_property
    def reservations(self) -> remote_operations.RemoteReservations:
        from overnight.app import remote_operations

        return remote_operations.RemoteReservations(self._api, self.why)

    @functools.cached_property
    def investigations(self) -> remote_operations.RemoteInvestigations:
        from overnight.app import remote_operations

        return remote_operations.RemoteInvestigations(self._api, self.why)

    # --- questions

    def ask(self, question: questions.Question[Asked, Found], request: Asked) -> Found:
        """Answer a question about the server's hosts."""
        parameters = question.parameters(request)
        document = self._api.get("questions", question.name, parameters=parameters)
        with self._api.understood():
            return question.decode(document)

    def ask_fleet(self, kind: str) -> fleet_questions.Findings:
        """Return what the detectors answer about a kind of event, for a diagnosis."""
        return self.ask(fleet_questions.FINDINGS, fleet_questions.KindRequest(kind))

    def list_hosts(self) -> fleet_questions.Hosts:
        pages = self._api.pages(fleet_questions.HostSummary, "hosts", limit=server_requests.PAGE)
        return fleet_questions.Hosts(tuple(pages))

    def read_audit(self, host: str) -> Audit:
        """Return the last audit that a host reported."""
        return self._api.decode(Audit, self._api.get("hosts", only_host([host]), "audit"))

    def _find_host(self, name: str) -> fleet_questions.HostSummary:
        return self._api.decode(fleet_questions.HostSummary, self._api.get("hosts", name))

    # --- events

    def list_events(self, request: events.Request) -> events.Listing:
        """Return the events that the server has; raise CannotError where one that was named is missing."""
        now = times.now_us()
        if request.event_id:
            event = self.find_event(request.event_id, request.hosts)
            return events.Listing(0, now, (event.host,), (event,), (), ())
        window = parse_window(request.begin, request.end, Window(0, now + times.SECOND_US))
        found = self._read_events(request, window)
        hosts = request.hosts or tuple(sorted({event.host for event in found}))
        empty = None if found else Empty(Reason.NONE, "events that match")
        return events.Listing(window.begin_us, window.end_us, hosts, tuple(found), (), (), empty)

    def follow(
        self,
        request: events.Request,
        stop: threading.Event,
        on_away: Callable[[errors.CannotError], None] = lambda _: None,
    ) -> Iterator[tuple[Event, Event | None]]:
        """Yield each event until `stop` is set, and again when it changes, with what it was before.

        A server that answered once may be away for a while; `on_away` is called with each failure.
        """
        known: list[Event] | None = None

        def read(window: Window) -> list[Event]:
            nonlocal known
            try:
                known = self._read_events(request, window)
            except (http_client.ServerAwayError, http_client.RefusedError) as error:
                if known is None or getattr(error, "status", 503) < 500:
                    raise
                on_away(error)  # it restarts: what happened meanwhile is read afterwards
            return known

        return events.poll(read, stop, FOLLOW_SECONDS)

    def _read_events(self, request: events.Request, window: Window) -> list[Event]:
        accepts = events.make_filter(request)
        chosen = EventFilter(
            request.kinds, request.hosts, request.severity, window.begin_us, window.end_us
        )
        found = self.newest_events(chosen)
        return sorted(filter(accepts, found), key=lambda event: event.time_us)

    def newest_events(self, chosen: EventFilter) -> Iterator[Event]:
        """Yield events, the newest first."""
        return self._api.pages(
            Event,
            "events",
            kind=chosen.kinds,
            host=chosen.hosts,
            severity=chosen.severity,
            begin_us=str(chosen.begin_us),
            end_us=str(min(chosen.end_us, 1 << 53)),
            limit=server_requests.PAGE,
        )

    def find_event(self, event_id: str, hosts: Sequence[str] = ()) -> Event:
        """Return the event of that id, short id, or a prefix of either that only one event has."""
        parameters = [("host", name) for name in hosts[:1]]
        return self._api.decode(Event, self._api.get("events", event_id, parameters=parameters))

    def _find_last(self, hosts: Sequence[str]) -> Event:
        from overnight.app import diagnose

        now = times.now_us()
        for span in SPANS_US:
            request = events.Request(pathlib.Path(), hosts=tuple(hosts), severity="warning")
            window = Window(max(0, now - span), now + times.SECOND_US)
            if chosen := diagnose.choose_worst(self._read_events(request, window)):
                return chosen
        raise errors.CannotError(
            f"{self.url} has no event that is at least a warning",
            why=f"{', '.join(hosts) if hosts else 'no host'} has reported none",
            todo="diagnose a time instead: --at TIME --host NAME",
        )

    # --- evidence

    @contextlib.contextmanager
    def evidence(
        self,
        *,
        event_id: str = "",
        hosts: Sequence[str] = (),
        begin: str = "",
        end: str = "",
        at: str = "",
        progress: Progress = lambda _what, _share: None,
    ) -> Iterator[windows.Evidence]:
        """Fetch the bundle of an event, or of a window of one host, and yield it as a data home."""
        from overnight.app import bundles  # here: most requests need neither numpy nor DuckDB

        body: dict[str, str | int]
        if event_id:
            is_last = event_id == events.LAST
            event = self._find_last(hosts) if is_last else self.find_event(event_id, hosts)
            host, body = event.host, {"event": event.id}
            found = windows.Evidence(pathlib.Path(), event_id=event.id)
            self._await_first(event, progress)
        else:
            host = only_host(hosts)
            window = self._choose_window(host, begin, end, at)
            body = dataclasses.asdict(window)
            moment = window.begin_us + uploads.BEFORE_US
            first, last, middle = map(windows.exact_text, (window.begin_us, window.end_us, moment))
            found = windows.Evidence(pathlib.Path(), begin=first, end=last, at=middle if at else "")
        with tempfile.TemporaryDirectory(prefix="overnight-window-") as folder:
            file = self._fetch(host, body, pathlib.Path(folder), progress)
            with bundles.open_temporarily(file) as opened:
                if opened.header.host != host:
                    raise self._api.changed(
                        f"the window of {host} holds evidence of {opened.header.host}"
                    )
                assert opened.home is not None
                yield dataclasses.replace(found, home=opened.home, until_us=opened.header.end_us)

    def _await_first(self, event: Event, progress: Progress) -> None:
        """Wait for the first window of a new event, which its host uploads unasked; longer once it is offered."""
        if event.severity == Severity.INFO:
            return
        while 0 <= (age_us := times.now_us() - event.time_us) < OFFERED_US:
            rows = [*self._api.pages(WindowRow, "hosts", event.host, "windows", event=event.id)]
            if any(row.is_held for row in rows) or (not rows and age_us > FIRST_US):
                return
            progress(f"waiting for {event.host} to upload the first window of the event", 0.0)
            time.sleep(POLL_SECONDS)

    def _choose_window(self, host: str, begin: str, end: str, at: str) -> Window:
        if at:
            moment = parse_window(at, "", EVERYTHING).begin_us
            return Window(moment - uploads.BEFORE_US, moment + uploads.AFTER_US)
        if not begin:
            raise errors.UsageError(
                "--server needs a window",
                why="a server does not hold the whole recording of a host",
                todo="give -b TIME -e TIME, at most an hour, or an event where the command takes one",
            )
        window = parse_window(begin, end, EVERYTHING)
        return window if end else Window(window.begin_us, self._find_host(host).seen_us)

    def _fetch(
        self, host: str, body: Mapping[str, str | int], folder: pathlib.Path, progress: Progress
    ) -> pathlib.Path:
        try:
            answer = self._api.send("POST", ("hosts", host, "windows"), body)
        except http_client.RefusedError as error:
            if error.problem == "host-offline":
                raise self._offline(host, error) from None
            raise
        sha256 = answer.get("sha256") or self._wait(host, str(answer.get("task", "")), progress)
        if not isinstance(sha256, str) or len(sha256) != 64 or not sha256.isalnum():
            raise self._api.changed("it does not name a window")
        file = folder / "window.overnight"

        def show(done: int, of: int) -> None:
            progress("downloading the window", done / of if of else 0.0)

        self._api.download("windows", sha256, file=file, show=show)
        with file.open("rb") as data:
            digest = hashlib.file_digest(data, "sha256").hexdigest()
        if digest != sha256:
            raise self._api.changed(f"the window {sha256[:12]} has the digest {digest[:12]}")
        return file

    def _wait(self, host: str, task_id: str, progress: Progress) -> object:
        """Wait until the host has uploaded a window, and return its digest."""
        last, changed = None, time.monotonic()
        seen = times.format_instant(self._find_host(host).seen_us)
        while True:
            task = self._api.decode(TaskRow, self._api.get("tasks", task_id))
            waiting = task.state in (TaskState.PENDING, TaskState.LEASED)
            step = (
                f"waiting for {host}, last seen {seen}" if waiting else f"{host} uploads the window"
            )
            progress(step, task.progress)
            if task.state is TaskState.DONE:
                return task.result.get("sha256")
            if task.state.is_final:
                raise errors.CannotError(
                    f"{host} has not uploaded the window: task {task_id} is {task.state}",
                    why=task.detail or "the agent gave no reason",
                    todo="check that agent.toml on the host allows upload-window, and ask again",
                )
            if (task.state, task.detail, task.progress) != last:
                last, changed = (task.state, task.detail, task.progress), time.monotonic()
            if time.monotonic() - changed >= STALLED_SECONDS:
                raise errors.CannotError(
                    f"{host} does not upload the window: task {task_id} is {task.state}",
                    why=f"nothing changed for {times.format_duration(STALLED_SECONDS)}",
                    todo=f"ask again later, the task continues; `overnight hosts` shows when {host} was last seen",
                )
            time.sleep(POLL_SECONDS)

    def _offline(self, host: str, error: http_client.RefusedError) -> errors.CannotError:
        seen = times.format_instant(self._find_host(host).seen_us)
        rows = self._api.pages(WindowRow, "hosts", host, "windows")
        held = sorted((row for row in rows if row.is_held), key=lambda window: -window.end_us)
        names = [
            window.event or " to ".join(map(times.format_instant, (window.begin_us, window.end_us)))
            for window in held[:MAX_NAMED]
        ]
        more = " …" if len(held) > MAX_NAMED else ""
        listed = f"{plural(len(held), 'window')} of it: {', '.join(names)}{more}"
        return errors.CannotError(
            error.what,
            why=f"it was last seen {seen}; the server holds {listed if held else 'no window of it'}",
            todo=f"diagnose one of these: `overnight diagnose {held[0].event}`" if held and held[0].event
            else "ask again when the host is back",
        )  # fmt: skip


def only_host(hosts: Sequence[str]) -> str:
    named = [*filter(None, hosts)]
    if len(named) == 1:
        return named[0]
    raise errors.UsageError(
        f"--server needs one host (got {len(named)})",
        why="a server has the evidence of many hosts",
        todo="name it: --host NAME; `overnight hosts` lists them",
    )


def parse_window(begin: str, end: str, default: Window) -> Window:
    """Parse two instants; raise UsageError for a duration since the begin of a recording."""
    for text in (begin, "" if end.startswith("+") else end):
        if text and len({times.parse_instant(text, now_us=0, origin_us=us) for us in (0, 1)}) > 1:
            raise errors.UsageError(
                f"{text!r} counts from the begin of a recording",
                why="the hosts of a control plane have many recordings",
                todo="write a time: '3h ago', 22:41 or 2026-11-15T03:14:07",
            )
    return windows.parse_window(begin, end, default, Window(0, times.now_us()))
