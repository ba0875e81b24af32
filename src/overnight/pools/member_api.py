"""The HTTP API for members: enrol, phase, beat; and metrics.

`MemberApi` is all that it needs of the control plane, so that another server can mount the same.

    POST /v1/enrol  {"token", "credential"}     -> {"member_id"}
    POST /v1/phase  {"phase", "reason", "detail"} with `Authorization: Bearer CREDENTIAL`
    POST /v1/beat   {}                           the same; the answer has the member's state
    GET  /metrics
"""

from __future__ import annotations

import http.server
import json
import sys
import threading
from collections.abc import Callable
from typing import Any, Protocol

from overnight import errors
from overnight.model.openmetrics import CONTENT_TYPE
from overnight.pools import pool_errors

MAX_BYTES = 65536


class MemberApi(Protocol):
    """The requests of a member's agent; `enrolment.Enrolment` answers them."""

    def enrol(self, token: str, credential: str) -> str: ...
    def phase(
        self, credential: str, phase: str, reason: str = "", detail: str = ""
    ) -> dict[str, Any]: ...
    def beat(self, credential: str) -> dict[str, Any]: ...


Answer = tuple[int, dict[str, Any]]
STATUS: tuple[tuple[type[errors.OvernightError], int], ...] = (
    (pool_errors.TooEarlyError, 425),
    (pool_errors.EnrolmentRefusedError, 403),
    (pool_errors.DatabaseUnavailableError, 503),
    (errors.UsageError, 400),
)


# path: required parameters, allowed parameters
PARAMETERS: dict[str, tuple[set[str], set[str]]] = {
    "/v1/enrol": ({"token", "credential"}, {"token", "credential"}),
    "/v1/phase": ({"phase"}, {"phase", "reason", "detail"}),
    "/v1/beat": (set(), set()),
}


def answer(api: MemberApi, path: str, credential: str, body: object) -> Answer:
    """Answer one request: HTTP status and document."""
    if not isinstance(body, dict) or not all(isinstance(v, str) for v in body.values()):
        return _refuse(400, "the body must be a JSON object of strings")
    if path not in PARAMETERS:
        return _refuse(404, f"unknown path {path}")
    needed, allowed = PARAMETERS[path]
    if not needed <= set(body) <= allowed:
        return _refuse(400, f"{path} takes {', '.join(sorted(allowed)) or 'nothing'}")
    try:
        if path == "/v1/enrol":
            return 200, {"member_id": api.enrol(**body)}
        if path == "/v1/phase":
            return 200, api.phase(credential, **body)
        return 200, api.beat(credential)
    except errors.OvernightError as error:
        status = next((code for kind, code in STATUS if isinstance(error, kind)), 500)
        return status, error.as_json()


def _refuse(status: int, what: str) -> Answer:
    return status, {"error": {"kind": "usage", "what": what}}


class _Listener(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # members of a new pool enrol together; with 5 they would retry

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log errors, except for clients that disconnected."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Server:
    def __init__(
        self,
        api: MemberApi,
        metrics: Callable[[], str],
        *,
        address: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        try:
            self._server = _Listener((address, port), _handler(api, metrics))
        except OSError as error:
            raise errors.CannotError(
                f"cannot listen on {address}:{port}",
                why=str(error),
                todo="stop the other `overnight pool serve`, or choose another port: --listen 127.0.0.1:PORT",
            ) from error
        self.port = int(self._server.server_address[1])
        self.endpoint = f"http://{address}:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


def _handler(
    api: MemberApi, metrics: Callable[[], str]
) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        server_version = "overnight"
        sys_version = ""
        timeout = 10  # a silent client must not hold a thread for ever

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "")
            if not (length.isascii() and length.isdigit()) or int(length) > MAX_BYTES:
                self._answer(_refuse(413, "too long"))
                return
            try:
                body = json.loads(self.rfile.read(int(length)) or b"{}")
            except ValueError:
                body = None
            credential = self.headers.get("Authorization", "").removeprefix("Bearer ")
            try:
                reply = answer(api, self.path, credential, body)
            except Exception as error:  # a bug here must not look like the agent's error
                reply = 500, {"error": {"kind": "bug", "what": repr(error)}}
            self._answer(reply)

        def do_GET(self) -> None:
            if self.path != "/metrics":
                self._answer(_refuse(404, "only GET /metrics is served"))
                return
            try:
                self._send(200, metrics().encode(), CONTENT_TYPE)
            except errors.OvernightError as error:
                self._answer((503, error.as_json()))

        def _answer(self, reply: Answer) -> None:
            self._send(reply[0], json.dumps(reply[1]).encode(), "application/json")

        def _send(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  its name there
            """Log nothing: what matters is an event."""

    return Handler
