"""A small HTTP/1.1 client: keep-alive, TLS, bounded answers and time. Standard library only.

Written on sockets because the agent's uplink has 20 MB: http.client needs 1 MB of them for the package `email`.
No error or log line holds the bearer.
"""

from __future__ import annotations

import ipaddress
import json
import os
import pathlib
import select
import socket
import time
import urllib.parse
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from overnight import errors

if TYPE_CHECKING:
    import ssl

MAX_HEAD, MAX_LINE, MAX_BODY = 64 << 10, 16 << 10, 16 << 20
MAX_RETRY_AFTER = 3600.0
CONNECT_SECONDS = 10.0
PIECE = 64 << 10
# What a method may be sent again for when its answer is lost.
IDEMPOTENT = ("GET", "HEAD", "PUT", "DELETE")

Body = bytes | Iterable[bytes]


class ServerAwayError(errors.CannotError):
    """No valid answer came: the server is down, unreachable, too slow, or not the one it should be."""


class RefusedError(errors.CannotError):
    """The server answered with an error; `problem` is the type that its document names."""

    def __init__(self, status: int, what: str, *, why: str, todo: str, problem: str = "") -> None:
        super().__init__(what, why=why, todo=todo)
        self.status = status
        self.problem = problem
        self.retry_after: float | None = None
        self.document: dict[str, Any] = {}
        if status in (400, 422):
            self.exit_code = errors.ExitCode.USAGE

    @property
    def kind(self) -> str:
        return self.problem or "refused"


class Response(NamedTuple):
    status: int
    headers: Mapping[str, str]  # names in lower case
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
    """The connection ended, or what came is not HTTP. `answered`: after bytes of an answer."""

    def __init__(self, why: str, *, answered: bool = True) -> None:
        super().__init__(why)
        self.answered = answered


def compress(pieces: Iterable[bytes]) -> bytes:
    """Return a gzip body; only the compressed bytes are held in memory."""
    packer = zlib.compressobj(6, wbits=16 + 13, memLevel=6)  # 64 KB of memory
    return b"".join([*map(packer.compress, pieces), packer.flush()])


def parse_url(url: str, *, insecure: bool = False) -> urllib.parse.SplitResult:
    """Check a server's URL; raise UsageError, also for plain HTTP to another host unless `insecure`."""
    example = "use for example --server https://overnight.example.com:8443"
    try:
        parts = urllib.parse.urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        parts, host = urllib.parse.urlsplit(""), None
    if parts.scheme not in ("http", "https") or not host or not url.isascii() or " " in url:
        raise errors.UsageError(
            f"{_without_user(url)!r} is not the URL of a server",
            why="it has the form http[s]://HOST[:PORT][/PATH]",
            todo=example,
        )
    if parts.username is not None or parts.query or parts.fragment:
        raise errors.UsageError(
            f"the URL of {host} has more than a host and a path",
            why="URLs end up in logs, so they must not hold secrets",
            todo=f"{example}, and a token in a file",
        )
    if parts.scheme == "http" and not insecure and not _is_loopback(host):
        raise errors.UsageError(
            f"refusing plain HTTP to {host}",
            why="everyone on the network could read the credential and change answers",
            todo=f"use https://{parts.netloc}, or --insecure in a network that you trust",
        )
    return parts


def _without_user(url: str) -> str:
    """Return a URL without what may be a password."""
    return url.rpartition("@")[2]


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _away(what: str, why: str, todo: str = "") -> ServerAwayError:
    return ServerAwayError(what, why=why, todo=todo or "check the URL, and that overnight serve runs there")  # fmt: skip


class Client:
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
        parts = parse_url(url, insecure=insecure)
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

    def __enter__(self) -> Client:
        return self

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
        body: Body = b"",
        headers: Mapping[str, str] | None = None,
        *,
        repeatable: bool | None = None,
        max_bytes: int = MAX_BODY,
    ) -> Response:
        """Send one request and read its answer.

        Raise RefusedError for a status of 300 or more, and ServerAwayError without a valid answer. `repeatable`:
        send it once more if a kept connection ends before an answer; by default only methods that may be.
        """
        pieces: list[bytes] = []
        response = self._exchange(method, path, body, headers, repeatable, pieces.append, max_bytes)
        response = response._replace(body=b"".join(pieces))
        _raise_refusal(response)
        return response

    def ask(self, method: str, path: str, document: object = None) -> dict[str, Any]:
        """Send a JSON document, and return the one in the answer."""
        body = b"" if document is None else json.dumps(document).encode()
        headers = {"Content-Type": "application/json"} if body else {}
        return self.request(method, path, body, headers).document()

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
        start: list[Response] = []
        size, refused = 0, b""
        try:
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as out:

                def store(data: bytes) -> None:
                    nonlocal size, refused
                    if start[0].status >= 300:
                        refused = (refused + data)[:MAX_BODY]
                        return
                    out.write(data)
                    size += len(data)
                    self._deadline = time.monotonic() + self._seconds  # it makes progress
                    on_progress(size, int(start[0].headers.get("content-length", 0)))

                self._exchange("GET", path, b"", None, None, store, max_bytes, start.append)
            _raise_refusal(start[0]._replace(body=refused))
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)
        return size

    def _exchange(
        self,
        method: str,
        path: str,
        body: Body,
        headers: Mapping[str, str] | None,
        repeatable: bool | None,
        store: Callable[[bytes], object],
        max_bytes: int,
        on_start: Callable[[Response], object] = lambda _: None,
    ) -> Response:
        data = body if isinstance(body, bytes) else b"".join(body)
        head = self._head(method, path, len(data), headers or {})
        again = method in IDEMPOTENT if repeatable is None else repeatable
        self._deadline = time.monotonic() + self._seconds
        while True:
            kept = self._is_usable()
            try:
                self._connect()
                # One packet where that is possible, no copy of a large body.
                self._send(head + data if len(data) < PIECE else head)
                self._send(data if len(data) >= PIECE else b"")
                response = self._read_head()
                on_start(response)
                self._read_body(method, response, store, max_bytes)
                break
            except (_BrokenError, OSError) as error:
                self.close()
                answered = not isinstance(error, _BrokenError) or error.answered
                if kept and again and (isinstance(error, ConnectionError) or not answered):
                    continue  # the server closed a connection that was idle
                raise self._explain(error) from None
            except BaseException:
                self.close()
                raise
        if "close" in response.headers.get("connection", "").lower():
            self.close()
        return response

    def _explain(self, error: Exception) -> errors.CannotError:
        where = f"{self._host}:{self._port}"
        if isinstance(error, TimeoutError):
            return _away(f"{where} does not answer", "the time limit is over")
        if self._tls and type(error).__name__ == "SSLCertVerificationError":
            why = getattr(error, "verify_message", "") or str(error)
            return _away(f"the certificate of {where} is not trusted", why, "name its authority: --ca FILE")  # fmt: skip
        if isinstance(error, _BrokenError):
            return _away(f"no answer of {where}", str(error))
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

    def _receive(self) -> bytes:
        assert self._socket is not None
        self._socket.settimeout(self._left())
        return self._socket.recv(PIECE)

    # --- answer

    def _read_line(self) -> bytes:
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > MAX_LINE:
                raise _BrokenError("the answer has a line that is too long")
            data = self._receive()
            if not data:
                raise _BrokenError("the connection ended", answered=bool(self._buffer))
            self._buffer += data
        line, self._buffer = self._buffer[:end], self._buffer[end + 1 :]
        return line.rstrip(b"\r")

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

    def _read_body(
        self, method: str, response: Response, store: Callable[[bytes], object], max_bytes: int
    ) -> None:
        if method == "HEAD" or response.status in (204, 304):
            return
        left = max_bytes

        def take(size: int) -> None:
            nonlocal left
            if size > left:
                raise _BrokenError(f"the answer is larger than {max_bytes} bytes")
            left -= size
            self._read_exactly(size, store)

        if "chunked" in response.headers.get("transfer-encoding", "").lower():
            while size := _parse_size(self._read_line().partition(b";")[0], 16):
                take(size)
                self._read_line()
            while self._read_line():
                pass
        elif "content-length" in response.headers:
            take(_parse_size(response.headers["content-length"].encode(), 10))
        else:
            response.headers["connection"] = "close"  # type: ignore[index]  # a dict of _read_head
            while data := self._buffer or self._receive():
                self._buffer = b""
                left -= len(data)
                if left < 0:
                    raise _BrokenError(f"the answer is larger than {max_bytes} bytes")
                store(data)

    def _read_exactly(self, size: int, store: Callable[[bytes], object]) -> None:
        while size:
            data = self._buffer or self._receive()
            if not data:
                raise _BrokenError("the connection ended within the answer")
            part, self._buffer = data[:size], data[size:]
            store(part)
            size -= len(part)


def _parse_size(text: bytes, base: int) -> int:
    try:
        size = int(text, base)
    except ValueError:
        size = -1
    if size < 0:
        raise _BrokenError("the answer has an invalid length")
    return size


def _raise_refusal(response: Response) -> None:
    if response.status < 300:
        return
    if response.status < 400:
        target = _without_user(response.headers.get("location", "elsewhere"))[:200]
        raise RefusedError(
            response.status,
            f"the server redirects to {target}",
            why="overnight follows no redirects: they could lead the credential elsewhere",
            todo="use the URL of the server directly",
        )
    document: dict[str, Any] = {}
    if "json" in response.headers.get("content-type", ""):
        try:
            document = response.document()
        except ServerAwayError:
            document = {}
    error = RefusedError(
        response.status,
        _text(document, "title", f"the server answered with status {response.status}"),
        why=_text(document, "detail", "it gave no reason"),
        todo=_text(document, "todo", "look into the log of the server"),
        problem=_text(document, "kind", ""),
    )
    error.document = document
    try:
        given = float(response.headers.get("retry-after", ""))
        error.retry_after = min(max(given, 0.0), MAX_RETRY_AFTER)
    except ValueError:
        pass
    raise error


def _text(document: Mapping[str, Any], name: str, default: str) -> str:
    value = document.get(name)
    return value[:2000] if isinstance(value, str) and value else default


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
