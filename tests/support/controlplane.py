"""A control plane of the standard library for tests of its client: a data home behind the HTTP API.

Documents come from the real use cases. `faults` are used up one a request: an HTTP status, or `LOST`, which ends the
connection without an answer.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import http.server
import json
import pathlib
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from overnight import errors
from overnight.app import bundles, events, fleet_questions
from overnight.model.control_plane import TaskRow, WindowRow
from overnight.model.uplink import TaskKind, TaskState
from overnight.queries import fleet
from overnight.store.ring import reader as rings

if TYPE_CHECKING:
    from overnight.model.event import Event

TOKEN = "ovn_1_secret"
LOST = "lost"
PAGE = 7  # less than there are, so that clients follow the cursor


@dataclasses.dataclass
class ControlPlane:
    """`homes` has the evidence of each host; `home` that of the whole fleet."""

    home: pathlib.Path
    homes: dict[str, pathlib.Path] = dataclasses.field(default_factory=dict)
    offline: set[str] = dataclasses.field(default_factory=set)
    polls: int = 2  # of a task, until it is done
    waits: int = 0  # polls until its agent has taken it
    ends: str = "done"  # state in which tasks end
    damaged: bool = False  # downloads have another digest
    cut: int = 0  # downloads that end early
    other_version: bool = False
    faults: list[int | str] = dataclasses.field(default_factory=list)
    requests: list[str] = dataclasses.field(default_factory=list)
    held: dict[str, tuple[Event | None, bytes]] = dataclasses.field(default_factory=dict)
    tasks: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    audits: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    url: str = ""

    def __post_init__(self) -> None:
        hosts = fleet_questions.list_hosts(self.home)
        now = time.time_ns() // 1000
        self.rows = {
            host.name: dataclasses.asdict(dataclasses.replace(host, seen_us=now))
            | {"id": host.name}
            for host in hosts.hosts
        }
        self.events = rings.Reader(self.home).events(0, 1 << 62)

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> Any:
        """Return a document, or bytes; raise an error with the attribute `status` for problems."""
        match [method, *map(urllib.parse.unquote, path.removeprefix("/api/v1/").split("/"))]:
            case ["GET", "hosts"]:
                return self.page([self.row(name) for name in sorted(self.rows)], query)
            case ["GET", "hosts", name]:
                return self.row(name)
            case ["GET", "hosts", name, "audit"] if name in self.audits:
                return self.audits[name]
            case ["GET", "hosts", name, "windows"]:
                return self.page([self.window(sha) for sha in self.held], {})
            case ["POST", "hosts", name, "windows"]:
                return self.request_window(name, body)
            case ["GET", "tasks", name]:
                return self.poll(name)
            case ["GET", "windows", sha256]:
                return self.held[sha256][1] + b"x" * self.damaged
            case ["GET", "events"]:
                return self.page([event.as_json() for event in self.find(query)], query)
            case ["GET", "events", text]:
                return self.only(text)
            case ["GET", "questions", name]:
                document = fleet_questions.answer(
                    name, query, lambda wanted: fleet.read_fleet(self.home, wanted.kinds, snapshots=wanted.snapshots)
                )  # fmt: skip
                if self.other_version:
                    document.popitem()
                return document
        raise refuse(404, "not-found", f"no {path}")

    def row(self, name: str) -> dict[str, Any]:
        if name not in self.rows:
            raise refuse(404, "not-found", f"host {name!r} not found")
        return self.rows[name] | (
            {"seen_us": 1_700_000_000_000_000} if name in self.offline else {}
        )

    def only(self, text: str) -> dict[str, Any]:
        try:
            return events.find_event(self.home, text).as_json()
        except errors.CannotError as error:
            raise refuse(404, "not-found", error.what) from None

    def find(self, query: dict[str, list[str]]) -> list[Event]:
        kinds, hosts = query.get("kind", []), query.get("host", [])
        begin, end = int(query["begin_us"][0]), int(query["end_us"][0])
        found = [
            event
            for event in self.events
            if (not kinds or any(map(event.is_of, kinds)))
            and (not hosts or event.host in hosts)
            and begin <= event.time_us < end
        ]
        return found[::-1]  # the newest first

    def page(self, items: list[Any], query: dict[str, list[str]]) -> dict[str, Any]:
        first = int(query.get("cursor", ["0"])[0])
        if self.other_version:
            items = [{"name": 5, "time_us": "x"} for _ in items]
        more = str(first + PAGE) if first + PAGE < len(items) else None
        return {"items": items[first : first + PAGE], "next": more}

    def window(self, sha256: str) -> dict[str, Any]:
        event, data = self.held[sha256]
        row = WindowRow(
            "db-7", sha256, event.id if event else "", 1, 2, len(data), 3, received_us=3
        )
        return dataclasses.asdict(row)

    def request_window(self, host: str, body: dict[str, Any]) -> dict[str, Any]:
        self.row(host)
        for sha256, (event, _) in self.held.items():
            if event and event.id == body.get("event"):
                return {"sha256": sha256}
        if host in self.offline:
            raise refuse(409, "host-offline", f"host {host} is offline, and the server does not hold that window")  # fmt: skip
        task = f"t{len(self.tasks)}"
        self.tasks[task] = {"id": task, "host": host, "arguments": body, "polls": 0}
        return {"task": task}

    def poll(self, name: str) -> dict[str, Any]:
        task = self.tasks[name]
        task["polls"] += 1
        done = task["polls"] > self.polls
        row = TaskRow(
            name, task["host"], TaskKind.UPLOAD_WINDOW, task["arguments"],
            TaskState.RUNNING if task["polls"] > self.waits else TaskState.PENDING,
            1, "anna", "", 2, updated_us=task["polls"], progress=0.5,
        )  # fmt: skip
        answer = row.as_json()
        if done and self.ends == "done":
            sha256 = self.upload(task["host"], task["arguments"])
            return answer | {"state": "done", "progress": 1.0, "result": {"sha256": sha256}}
        return answer | ({"state": self.ends, "detail": "not allowed"} if done else {})

    def upload(self, host: str, body: dict[str, Any]) -> str:
        """Make the bundle of an event, or of the event nearest to a window, and hold it."""
        home = self.homes.get(host, self.home)
        own = rings.Reader(home).events(0, 1 << 62, (host,))
        middle = (body.get("begin_us", 0) + body.get("end_us", 0)) // 2
        event = next((e for e in own if e.id == body.get("event")), None) or min(
            own, key=lambda event: abs(event.time_us - middle)
        )
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "w.overnight")
            bundles.create(home, event, file)
            data = file.read_bytes()
        sha256 = hashlib.sha256(data).hexdigest()
        self.held[sha256] = (event if "event" in body else None, data)
        return sha256


class RefusedError(Exception):
    def __init__(self, status: int, kind: str, title: str) -> None:
        super().__init__(title)
        self.status, self.kind, self.title = status, kind, title


def refuse(status: int, kind: str, title: str) -> RefusedError:
    return RefusedError(status, kind, title)


@contextlib.contextmanager
def serve(plane: ControlPlane) -> Iterator[ControlPlane]:
    """Serve it on a port of its own; `url` is set."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self.respond("GET", None)

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            self.respond("POST", json.loads(self.rfile.read(length)))

        def respond(self, method: str, body: Any) -> None:
            target = urllib.parse.urlsplit(self.path)
            plane.requests.append(f"{method} {target.path}")
            fault = plane.faults.pop(0) if plane.faults else 0
            if fault == LOST:
                self.close_connection = True
                return
            try:
                if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                    raise refuse(401, "unauthenticated", "the token is not valid")
                if isinstance(fault, int) and fault:
                    raise refuse(fault, "fault", f"a fault of {fault}")
                query = urllib.parse.parse_qs(target.query)
                answer = plane.answer(method, target.path, query, body)
            except RefusedError as error:
                problem = {
                    "title": error.title,
                    "detail": "because",
                    "todo": "do",
                    "kind": error.kind,
                }
                self.send(error.status, json.dumps(problem | {"status": error.status}).encode())
            except errors.OvernightError as error:
                status = 400 if isinstance(error, errors.UsageError) else 409
                problem = {"title": error.what, "detail": error.why, "todo": error.todo, "kind": error.kind}  # fmt: skip
                self.send(status, json.dumps(problem).encode())
            else:
                self.send(200, answer if isinstance(answer, bytes) else json.dumps(answer).encode())

        def send(self, status: int, data: bytes) -> None:
            self.send_response(status)
            kind = "application/json" if status < 400 else "application/problem+json"
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            if status in (429, 503):
                self.send_header("Retry-After", "1")
            self.end_headers()
            if plane.cut and "/windows/" in self.path:
                plane.cut -= 1
                data, self.close_connection = data[: len(data) // 2], True
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    plane.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield plane
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
