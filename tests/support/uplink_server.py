"""A server for agents: the wire protocol, strict about it, with faults on demand. It keeps everything in memory."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import hashlib
import http.server
import json
import socket
import ssl
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from overnight.model import uplink

if TYPE_CHECKING:
    from overnight.model.event import Event

TOKEN = "ovn_1_single-use"
# Faults of the next request: a status; CUT: no answer, and nothing is stored; LOST: stored, but no answer.
CUT, LOST = "cut", "lost"


@dataclasses.dataclass
class Stored:
    """What the server was sent, as it would be in its database."""

    credentials: set[str] = dataclasses.field(default_factory=set)
    pending: set[str] = dataclasses.field(default_factory=set)  # rotated, not used yet
    tokens: dict[str, str] = dataclasses.field(default_factory=dict)  # the credential of a used one
    hosts: list[str] = dataclasses.field(default_factory=list)
    reports: list[uplink.Report] = dataclasses.field(default_factory=list)
    events: dict[str, Event] = dataclasses.field(default_factory=dict)
    rollups: dict[int, uplink.Rollup] = dataclasses.field(default_factory=dict)
    labels: dict[str, str] | None = None
    snapshots: list[Any] = dataclasses.field(default_factory=list)
    offers: dict[str, uplink.Offer] = dataclasses.field(default_factory=dict)
    blobs: dict[str, bytearray] = dataclasses.field(default_factory=dict)
    complete: set[str] = dataclasses.field(default_factory=set)
    task_reports: list[tuple[str, uplink.TaskReport]] = dataclasses.field(default_factory=list)
    lost: list[uplink.Lost] = dataclasses.field(default_factory=list)
    body_bytes: list[int] = dataclasses.field(default_factory=list)
    headers: list[str] = dataclasses.field(default_factory=list)


class UplinkServer:
    """`fault(path)` returns what goes wrong with a request; '' for nothing."""

    def __init__(self, context: ssl.SSLContext | None = None, port: int = 0) -> None:
        self.stored = Stored()
        self.tasks: list[uplink.Task] = []
        self.send: list[str] = []
        self.interval = 1
        self.retry_after = ""
        self.fault: Callable[[str], str | int] = lambda _path: ""
        self.refuses: Callable[[uplink.Report], bool] = lambda _report: False
        self.changed = threading.Condition()
        self.requests: list[str] = []
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 30

            def do_POST(self) -> None:
                owner._handle(self)

            do_PUT = do_GET = do_POST  # noqa: N815 - of http.server

            def log_message(self, *_: object) -> None: ...

        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._http.daemon_threads = True
        self._open: set[socket.socket] = set()
        scheme = "http"
        if context:
            self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
            scheme = "https"
        self.port = self._http.server_address[1]
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def wait_for(self, done: Callable[[Stored], object], seconds: float = 60.0) -> None:
        """Wait until something was stored; fail after a time that only a hang takes."""
        with self.changed:
            happened = self.changed.wait_for(lambda: done(self.stored), seconds)
            counts = {name: len(value or ()) for name, value in vars(self.stored).items()}
            assert happened, f"{counts} after {self.requests[-5:]}"

    # --- one request

    def _handle(self, request: http.server.BaseHTTPRequestHandler) -> None:
        self._open.add(request.connection)
        path = urllib.parse.urlsplit(request.path)
        size = int(request.headers["Content-Length"])
        body = request.rfile.read(size)
        if request.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        assert size <= 1 << 20, size
        assert len(body) <= (16 << 20), len(body)
        with self.changed:
            self.requests.append(f"{request.command} {path.path}")
            self.stored.body_bytes.append(size)
            self.stored.headers.append(str(request.headers))
        fault = self.fault(path.path)
        if fault == CUT:
            self._cut(request)
            return
        if isinstance(fault, int):
            status, document = fault, {"title": f"fault {fault}", "kind": "fault"}
        else:
            with self.changed:
                status, document = self._answer(request, path, body)
                self.changed.notify_all()
        if fault == LOST:
            self._cut(request)
            return
        data = json.dumps(document).encode()
        with contextlib.suppress(OSError):  # the agent was killed
            request.send_response(status)
            kind = "application/json" if status < 400 else "application/problem+json"
            request.send_header("Content-Type", kind)
            if self.retry_after and status in (429, 503):
                request.send_header("Retry-After", self.retry_after)
            request.send_header("Content-Length", str(len(data)))
            request.end_headers()
            request.wfile.write(data)

    def _cut(self, request: http.server.BaseHTTPRequestHandler) -> None:
        request.close_connection = True
        with contextlib.suppress(OSError):
            request.connection.shutdown(socket.SHUT_RDWR)

    def _answer(
        self, request: http.server.BaseHTTPRequestHandler, path: urllib.parse.SplitResult, body: bytes
    ) -> tuple[int, dict[str, Any]]:  # fmt: skip
        stored = self.stored
        if (request.command, path.path) == ("POST", "/api/v1/agents/enrol"):
            return self._enrol(json.loads(body))
        bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if bearer in stored.pending:
            stored.pending.clear()
            stored.credentials = {bearer}
        if bearer not in stored.credentials:
            return 401, {"title": "unknown credential", "detail": "revoked", "todo": "enrol again"}
        match request.command, path.path.removeprefix("/api/v1/agents/").split("/"):
            case "POST", ["rotate"]:
                fresh = json.loads(body)["credential"]
                assert uplink.CREDENTIAL.fullmatch(fresh)
                stored.pending = {fresh}
                return 200, {}
            case "POST", ["report"]:
                return self._report(json.loads(body))
            case "PUT", ["blobs", digest]:
                given = dict(urllib.parse.parse_qsl(path.query))
                return self._blob(digest, int(given["offset"]), int(given["size"]), body)
            case "POST", ["tasks", task]:
                if task not in {known.id for known in self.tasks}:
                    return 404, {"title": "no such task"}
                stored.task_reports.append((task, uplink.TaskReport.from_json(json.loads(body))))
                return 200, {}
        return 404, {"title": f"no path {path.path}"}

    def _enrol(self, given: dict[str, str]) -> tuple[int, dict[str, Any]]:
        assert uplink.CREDENTIAL.fullmatch(given["credential"])
        assert uplink.HOST.fullmatch(given["host"])
        used_by = self.stored.tokens.setdefault(given["token"], given["credential"])
        if given["token"] != TOKEN or used_by != given["credential"]:
            return 403, {"title": "the token is not valid", "detail": "it was used", "todo": "make another"}  # fmt: skip
        self.stored.credentials.add(given["credential"])
        self.stored.hosts.append(given["host"])
        return 200, {"host": given["host"], "host_id": "1"}

    def _report(self, document: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        stored, report = self.stored, uplink.Report.from_json(document)
        if self.refuses(report):
            return 422, {"title": "invalid", "detail": "it is refused"}
        for spell in report.spells:
            assert spell.begin_us < spell.end_us
        stored.reports.append(report)
        for event in report.events:
            known = stored.events.get(event.id)
            if known is None or uplink.is_newer(event, known):
                stored.events[event.id] = event
        for rollup in report.rollups:
            stored.rollups.setdefault(rollup.begin_us, rollup)
        if report.labels is not None:
            stored.labels = dict(report.labels)
            self.send = [name for name in self.send if name != "labels"]
        if report.snapshot is not None:
            stored.snapshots.append(report.snapshot)
            self.send = [name for name in self.send if name != "snapshot"]
        stored.offers |= {offer.sha256: offer for offer in report.windows}
        if report.lost != uplink.Lost():
            stored.lost.append(report.lost)
        want = [each.sha256 for each in report.windows if each.sha256 not in stored.complete]
        final = {task for task, state in stored.task_reports if state.state.is_final}
        tasks = tuple(task for task in self.tasks if task.id not in final)
        reply = uplink.Reply(self.interval, report.sent_us, tasks, tuple(want), tuple(self.send))
        return 200, reply.as_json()

    def _blob(self, digest: str, offset: int, size: int, data: bytes) -> tuple[int, dict[str, Any]]:
        blob = self.stored.blobs.setdefault(digest, bytearray())
        if digest in self.stored.complete:
            return 200, {"offset": size, "complete": True}
        if offset != len(blob):
            return 409, {"offset": len(blob), "title": "another offset"}
        assert len(data) <= 1 << 20
        blob += data
        if complete := len(blob) == size:
            assert hashlib.sha256(blob).hexdigest() == digest
            self.stored.complete.add(digest)
        return 200, {"offset": len(blob), "complete": complete}


@contextlib.contextmanager
def running(context: ssl.SSLContext | None = None, port: int = 0) -> Iterator[UplinkServer]:
    server = UplinkServer(context, port)
    try:
        yield server
    finally:
        server.close()
