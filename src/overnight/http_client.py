"""A small HTTP/1.1 client: keep-alive, TLS, bounded answers and time. Standard library only.

Written on sockets because the agent's uplink has 20 MB: http.client needs 1 MB of them for the package `email`.
No error or log line holds the bearer.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import select
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from overnight import errors
from overnight.model import addresses, secrets

if TYPE_CHECKING:
    import ssl

MAX_HEAD, MAX_LINE, MAX_BODY = 64 << 10, 16 << 10, 16 << 20
MAX_RETRY_AFTER = 3600.0
CONNECT_SECONDS = 10.0
PIECE = 64 << 10
Store = Callable[[bytes, int], object]  # gets a piece, and the size of the whole; 0: unknown
IDEMPOTENT = ("GET", "PUT", "DELETE")  # may be sent again when the answer is lost


class ServerAwayError(errors.CannotError):
    """No valid answer came: the server is down, unreachable, too slow, or not the one it should be."""


class RefusedError(errors.CannotError):
    """The server answered with an error; `document` is its problem document, and `problem` the kind of that."""

    def __init__(self, response: Response) -> None:
        self.status = response.status
        self.document: dict[str, Any] = {}
        if self.status >= 400 and "json" in response.headers.get("content-type", ""):
            with contextlib.suppress(ServerAwayError):
                self.document = response.document()
        self.problem = self._text("kind", "")
        self.retry_after: float | None = None
        with contextlib.suppress(ValueError):
            seconds = float(response.headers.get("retry-after", ""))
            self.retry_after = min(max(seconds, 0.0), MAX_RETRY_AFTER)
        if self.status in (400, 422):
            self.exit_code = errors.ExitCode.USAGE
        if self.status >= 400:
            super().__init__(
                self._text("title", f"the server answered with status {self.status}"),
                why=self._text("detail", "it gave no reason"),
                todo=self._text("todo", "read the log of the server"),
            )
        else:
            target = secrets.mask_url(response.headers.get("location", "elsewhere"))[:200]
            super().__init__(
                f"the server redirects to {target}",
                why="overnight does not follow redirects: they could send the credential elsewhere",
                todo="use the URL of the server directly",
            )

    @property
    def kind(self) -> str:
        return self.problem or "refused"

    def _text(self, name: str, default: str) -> str:
        value = self.document.get(name)
        return value[:2000] if isinstance(value, str) and value else default


class Response(NamedTuple):
    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes

    def document(self) -> dict[str, Any]:
        """Return the JSON object of the body; raise ServerAwayError if it is not one."""
        try:
            document = json.loads(self.body)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise _away("the answer is not a JSON object", "it is not a server of overnight")
        return document


class _BrokenError(Exception):
    """The connection ended, or what came is not HTTP."""


class _NoAnswerError(_BrokenError):
    """The connection ended before an answer."""


def _away(what: str, why: str, todo: str = "") -> ServerAwayError:
    return ServerAwayError(what, why=why, todo=todo or "check the URL, and that `overnight serve` runs there")  # fmt: skip


class Client(contextlib.AbstractContextManager["Client"]):
    """One connection to one server, opened when needed. Not for several threads at once."""

    def __init__(
        self,
        url: str,
        *,
        bearer: str = "",
        ca: pathlib.Path | None = None,
        insecure: bool = False,
        seconds: float = 30.0,
    ) -> None:
        """`ca` has the certificates to trust instead of the system's; `seconds` limits one request."""
        parts = addresses.parse_server_url(url, insecure=insecure)
        self.bearer = bearer
        self._host = parts.hostname or ""
        self._tls = parts.scheme == "https"
        self._port = parts.port or (443 if self._tls else 80)
        self._authority, self._prefix = parts.netloc, parts.path.rstrip("/")
        self._ca = ca
        self._seconds = seconds
        self._context: ssl.SSLContext | None = None
        self._socket: socket.socket | None = None
        self._buffer = b""
        self._deadline = 0.0

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._buffer = None, b""

    def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        repeatable: bool | None = None,
        max_bytes: int = MAX_BODY,
        seconds: float = 0.0,
        store: Store | None = None,
    ) -> Response:
        """Send one request and read its answer; `seconds` is its own limit, if given.

        Raise RefusedError for a status of 300 or more, and ServerAwayError without a valid answer. `repeatable`:
        send it once more if a kept connection ends before an answer; by default only methods that may be.
        `store` gets the body of another answer in pieces; it is not in the response then.
        """
        head = self._head(method, path, len(body), headers or {})
        again = method in IDEMPOTENT if repeatable is None else repeatable
        self._deadline = time.monotonic() + (seconds or self._seconds)
        while True:
            kept = self._is_usable()
            try:
                self._connect()
                # One packet where that is possible, no copy of a large body.
                for data in (head + body,) if len(body) < PIECE else (head, body):
                    self._send(data)
                response = self._read_answer(max_bytes, store)
                break
            except (_BrokenError, OSError) as error:
                self.close()
                if kept and again and isinstance(error, ConnectionError | _NoAnswerError):
                    continue  # the server closed a connection that was idle
                raise self._explain(error) from None
            except BaseException:
                self.close()
                raise
        if "close" in response.headers.get("connection", "").lower():
            self.close()
        if response.status >= 300:
            raise RefusedError(response)
        return response

    def ask(
        self, method: str, path: str, document: object, *, repeatable: bool | None = None
    ) -> dict[str, Any]:
        """Send a JSON document, and return the one in the answer."""
        body, headers = json.dumps(document).encode(), {"Content-Type": "application/json"}
        return self.request(method, path, body, headers, repeatable=repeatable).document()

    def download(
        self,
        path: str,
        file: pathlib.Path,
        on_progress: Callable[[int, int], None] = lambda _done, _of: None,
        *,
        max_bytes: int = 1 << 40,
    ) -> int:
        """Write the body of a GET to a file, which appears when it is complete; return its bytes.

        `on_progress` gets the bytes so far and in all; 0: unknown.
        """
        part = file.with_name(f".{file.name}.part")
        size = 0
        try:
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb", buffering=0) as out:

                def store(data: bytes, whole: int) -> None:
                    nonlocal size
                    size += len(data)
                    try:
                        while data:
                            data = data[out.write(data) :]
                    except OSError as error:
                        todo = "free disk space, or choose another folder"
                        raise errors.unwritable(file, error, todo) from error
                    self._deadline = time.monotonic() + self._seconds  # it makes progress
                    on_progress(size, whole)

                self.request("GET", path, max_bytes=max_bytes, store=store)
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)
        return size

    def _explain(self, error: Exception) -> errors.CannotError:
        where = f"{self._host}:{self._port}"
        if isinstance(error, TimeoutError):
            return _away(f"{where} does not answer", "the time limit is over")
        if self._tls and type(error).__name__ == "SSLCertVerificationError":
            why = getattr(error, "verify_message", "") or str(error)
            return _away(f"the certificate of {where} is not trusted", why, "name its authority: --ca FILE")  # fmt: skip
        if isinstance(error, _BrokenError):
            return _away(f"no answer from {where}", str(error))
        return _away(f"{where} cannot be reached", errors.reason(error))

    def _head(self, method: str, path: str, size: int, headers: Mapping[str, str]) -> bytes:
        lines = [f"{method} {self._prefix}{path} HTTP/1.1", f"Host: {self._authority}"]
        if self.bearer:
            lines.append(f"Authorization: Bearer {self.bearer}")
        if size or method in ("POST", "PUT"):
            lines.append(f"Content-Length: {size}")
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if any("\r" in line or "\n" in line for line in lines) or " " in path:
            raise ValueError("a header or path has a blank or a line end")
        return "\r\n".join([*lines, "", ""]).encode("ascii")

    # --- connection

    def _is_usable(self) -> bool:
        """Return whether a kept connection is still open; close it if the server has ended it."""
        if self._socket is not None and (
            self._buffer or select.select([self._socket], [], [], 0)[0]
        ):
            self.close()  # it ended, or answers what was not asked
        return self._socket is not None

    def _connect(self) -> None:
        if self._socket is not None:
            return
        limit = min(CONNECT_SECONDS, self._left())
        plain = socket.create_connection((self._host, self._port), timeout=limit)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls:
                self._context = self._context or make_context(self._ca)
                plain = self._context.wrap_socket(plain, server_hostname=self._host)
        except BaseException:
            plain.close()
            raise
        self._socket = plain

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def _send(self, data: bytes) -> None:
        assert self._socket is not None
        rest = memoryview(data)
        while rest:
            self._socket.settimeout(self._left())
            rest = rest[self._socket.send(rest[:PIECE]) :]

    def _receive(self, most: int = PIECE) -> bytes:
        """Return the next bytes; b"": the server ended the connection."""
        assert self._socket is not None
        if not self._buffer:
            self._socket.settimeout(self._left())
            self._buffer = self._socket.recv(PIECE)
        data, self._buffer = self._buffer[:most], self._buffer[most:]
        return data

    # --- answer

    def _read_line(self) -> bytes:
        line = b""
        while b"\n" not in line:
            if len(line) > MAX_LINE:
                raise _BrokenError("the answer has a line that is too long")
            data = self._receive()
            if not data:
                raise (_BrokenError if line else _NoAnswerError)("the connection ended")
            line += data
        line, _, self._buffer = line.partition(b"\n")
        return line.rstrip(b"\r")

    def _read_answer(self, max_bytes: int, store: Store | None) -> Response:
        response = self._read_head()
        if response.status >= 300:
            store, max_bytes = None, min(max_bytes, MAX_BODY)
        pieces: list[bytes] = []
        size = 0
        for data, whole in self._read_body(response):
            size += len(data)
            if max(size, whole) > max_bytes:
                raise _BrokenError(f"the answer is larger than {max_bytes} bytes")
            if store:
                store(data, whole)
            else:
                pieces.append(data)
        return response._replace(body=b"".join(pieces))

    def _read_head(self) -> Response:
        while True:
            words = self._read_line().split(b" ", 2)
            if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
                raise _BrokenError("the answer is not HTTP")
            headers: dict[str, str] = {}
            size = 0
            while line := self._read_line():
                size += len(line)
                if size > MAX_HEAD:
                    raise _BrokenError("the headers are too long")
                name, _, value = line.decode("latin-1").partition(":")
                headers[name.strip().lower()] = value.strip()
            if words[0] == b"HTTP/1.0":
                headers.setdefault("connection", "close")
            if int(words[1]) >= 200:  # not an interim answer
                return Response(int(words[1]), headers, b"")

    def _read_body(self, response: Response) -> Iterator[tuple[bytes, int]]:
        """Yield pieces, each with the size of the whole; 0: unknown."""
        headers = response.headers
        if response.status in (204, 304):
            return
        if "chunked" in headers.get("transfer-encoding", "").lower():
            while size := _parse_size(self._read_line().partition(b";")[0], 16):
                yield from self._read_exactly(size, 0)
                self._read_line()
            while self._read_line():
                pass
        elif "content-length" in headers:
            size = _parse_size(headers["content-length"].encode(), 10)
            yield from self._read_exactly(size, size)
        else:
            headers["connection"] = "close"
            while data := self._receive():
                yield data, 0

    def _read_exactly(self, size: int, whole: int) -> Iterator[tuple[bytes, int]]:
        while size:
            data = self._receive(size)
            if not data:
                raise _BrokenError("the connection ended within the answer")
            yield data, whole
            size -= len(data)


def _parse_size(text: bytes, base: int) -> int:
    try:
        size = int(text, base)
    except ValueError:
        size = -1
    if size < 0:
        raise _BrokenError("the answer has an invalid length")
    return size


def make_context(ca: pathlib.Path | None) -> ssl.SSLContext:
    """Return a context that verifies servers with the system's authorities, or those in `ca`."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if ca is not None:
            context.load_verify_locations(cafile=ca)
            return context
    except (OSError, ssl.SSLError) as error:
        raise errors.unreadable(ca, error, "name a file with PEM certificates: --ca FILE") from None
    folder = ssl.get_default_verify_paths().capath
    if folder and any(pathlib.Path(folder).glob("*.0")):
        # Hashed names: OpenSSL reads only what it needs. The bundle of all takes 1.5 MB of memory.
        context.load_verify_locations(capath=folder)
    else:
        context.load_default_certs()
    return context
