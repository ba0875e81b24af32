"""An HTTP server that slow or hostile clients cannot exhaust. Standard library only.

Connections, threads, bytes and the time of a request are bounded: a thousand clients that send one byte
every two seconds cost a few threads and descriptors, not those of the collector in the same process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import email.message
import http.client
import http.server
import io
import json
import resource
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from typing import Any

from overnight import errors
from overnight.model.openmetrics import CONTENT_TYPE

HEAD_BYTES = 16384
PAUSE_SECONDS = 0.1


@dataclasses.dataclass(frozen=True)
class Limits:
    """What clients may use of this process."""

    connections: int = 16  # at once; each has a thread
    seconds: float = 5.0  # from the accept to the last byte of the answer
    body_bytes: int = 0
    per_second: float = 50.0  # accepted connections


@dataclasses.dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: email.message.Message
    body: bytes


@dataclasses.dataclass(frozen=True)
class Answer:
    status: int
    body: bytes
    content_type: str = "application/json"


Respond = Callable[[Request], Answer]


def answer_json(status: int, document: object) -> Answer:
    return Answer(status, json.dumps(document).encode())


def refuse(status: int, what: str) -> Answer:
    return answer_json(status, {"error": {"kind": "usage", "what": what}})


def respond_metrics(render: Callable[[], str]) -> Respond:
    """Serve `GET /metrics` and nothing else."""

    def respond(request: Request) -> Answer:
        if request.method != "GET" or request.path.partition("?")[0] != "/metrics":
            return refuse(404, "only GET /metrics is served")
        try:
            return Answer(200, render().encode(), CONTENT_TYPE)
        except errors.OvernightError as error:
            return answer_json(503, error.as_json())

    return respond


class Listener(socketserver.ThreadingTCPServer):
    """Answers requests in threads of its own until it is closed; `option` sets its address."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128  # members of a new pool enrol together; with 5 they would retry

    def __init__(
        self,
        address: str,
        port: int,
        respond: Respond,
        *,
        serves: str,
        option: str,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.respond, self.limits = respond, limits or Limits()
        self._clock = clock
        self._next_accept = 0.0
        self._slots = threading.Semaphore(_reserve_descriptors(self.limits.connections))
        self._lock = threading.Lock()
        self._deadlines: dict[socket.socket, float] = {}  # of open connections
        try:
            super().__init__((address, port), _Handler)
        except OSError as error:
            raise errors.CannotError(
                f"cannot serve {serves} on {address}:{port}",
                why=str(error),
                todo=f"choose another port: {option} 127.0.0.1:PORT",
            ) from error
        self.port = int(self.server_address[1])
        self.url = f"http://{address}:{self.port}"
        self._thread = threading.Thread(
            target=self.serve_forever, name=f"{serves}-listener", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join(5)

    def get_request(self) -> tuple[socket.socket, Any]:
        _pause(self._next_accept - time.monotonic())
        try:
            accepted = super().get_request()
        except OSError:
            # Without a free descriptor the connection stays in the queue, and select returns at once.
            _pause(PAUSE_SECONDS)
            raise
        self._next_accept = time.monotonic() + 1 / self.limits.per_second
        return accepted

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002  the base class's
        """Take a slot for the connection, or refuse it if none becomes free."""
        if not self._slots.acquire(timeout=PAUSE_SECONDS):
            with contextlib.suppress(OSError):
                request.setblocking(False)
                request.send(b"HTTP/1.0 503 Too many connections\r\nContent-Length: 0\r\n\r\n")
            return False
        with self._lock:
            self._deadlines[request] = self._clock() + self.limits.seconds
        return True

    def service_actions(self) -> None:
        """End connections that are past their deadline; called at least twice a second."""
        self._end_connections(self._clock())

    def _end_connections(self, now: float) -> None:
        with self._lock:  # so that no descriptor is closed and reused meanwhile
            for connection in [c for c, deadline in self._deadlines.items() if now >= deadline]:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)  # its thread reads the end, and closes it

    def close_request(self, request: Any) -> None:
        with self._lock:
            has_slot = self._deadlines.pop(request, None) is not None
        super().close_request(request)
        if has_slot:
            self._slots.release()

    def server_close(self) -> None:
        super().server_close()
        self._end_connections(float("inf"))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do nothing: the client has disconnected, or no thread could be started for it."""


def _reserve_descriptors(connections: int) -> int:
    """Raise the descriptor limit by `connections`; return how many of them the process can spare."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return connections
    raised = soft + connections
    if hard != resource.RLIM_INFINITY:
        raised = min(raised, hard)
    if raised > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    return max(1, min(connections, raised // 8))


def _pause(seconds: float) -> None:
    if seconds > 0:
        time.sleep(seconds)


class _BoundedReader(io.BufferedReader):
    """A connection whose request line and headers end with an error instead of filling the memory."""

    left = HEAD_BYTES

    def readline(self, _size: int | None = -1, /) -> bytes:
        line = super().readline(self.left + 1)
        self.left -= len(line)
        if self.left < 0:
            raise http.client.LineTooLong("request")
        return line


class _Handler(http.server.BaseHTTPRequestHandler):
    """One request: HTTP/1.0, so that the connection ends with the answer."""

    server: Listener
    server_version = "overnight"
    sys_version = ""
    wbufsize = -1
    command = requestline = ""
    # Not 0.9: a refusal of a bad first line needs a status, too.
    request_version = default_request_version = "HTTP/1.0"

    def setup(self) -> None:
        super().setup()
        self.rfile = _BoundedReader(self.rfile.detach())

    def handle(self) -> None:
        try:
            super().handle()
        except http.client.LineTooLong:
            self._send(refuse(431, "the request line is too long"))

    def do_GET(self) -> None:
        self._respond(b"")

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        # Eleven digits are enough, and int() refuses more than 4300.
        if not (length.isascii() and length.isdigit()) or len(length) > 11:
            self._send(refuse(400, "Content-Length must be a number of bytes"))
        elif int(length) > self.server.limits.body_bytes:
            self._send(refuse(413, f"the body exceeds {self.server.limits.body_bytes} bytes"))
        elif len(body := self.rfile.read(int(length))) < int(length):
            self._send(refuse(400, "the body is shorter than its Content-Length"))
        else:
            self._respond(body)

    def _respond(self, body: bytes) -> None:
        try:
            answer = self.server.respond(Request(self.command, self.path, self.headers, body))
        except Exception as error:  # a bug here must not look like an error of the client
            answer = answer_json(500, {"error": {"kind": "bug", "what": repr(error)}})
        self._send(answer)

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def send_error(self, code: int, message: str | None = None, *_: object, **__: object) -> None:
        """Refuse what the base class does not accept."""
        self._send(refuse(code, message or str(code)))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class names it so
        """Log nothing."""
