from __future__ import annotations

import contextlib
import pathlib
import resource
import socket
import ssl
import threading
from collections.abc import Iterator

import certificates
import pytest

from overnight import errors, http_client

SECRET = "ovn_7_very-secret"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Script:
    """A server that sends the next of some prepared answers to each request; b"" ends the connection."""

    def __init__(self, *answers: bytes, context: ssl.SSLContext | None = None) -> None:
        self.requests: list[bytes] = []
        self.connections = 0
        self._answers = list(answers)
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        scheme = "https" if context else "http"
        self.url = f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while self._answers:
            connection, _ = self._listener.accept()
            self.connections += 1
            with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
                stack.callback(connection.close)
                if self._context:
                    connection = self._context.wrap_socket(connection, server_side=True)
                    stack.callback(connection.close)
                while self._answers and (request := self._read(connection)):
                    self.requests.append(request)
                    answer = self._answers.pop(0)
                    if not answer:
                        break
                    connection.sendall(answer)

    def _read(self, connection: socket.socket) -> bytes:
        data = b""
        while b"\r\n\r\n" not in data:
            piece = connection.recv(65536)
            if not piece:
                return b""
            data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
        while len(body) < size:
            body += connection.recv(65536)
        return head + b"\r\n\r\n" + body

    def close(self) -> None:
        self._answers.clear()
        self._listener.close()


@contextlib.contextmanager
def script(*answers: bytes, context: ssl.SSLContext | None = None) -> Iterator[Script]:
    server = Script(*answers, context=context)
    try:
        yield server
    finally:
        server.close()


def test_requests_share_a_connection_and_carry_the_bearer() -> None:
    with script(OK, OK) as server, http_client.Client(server.url, bearer=SECRET) as client:
        client.ask("POST", "/a", {"x": 1})
        client.request("GET", "/b")
    assert server.connections == 1
    assert server.requests[0].startswith(b"POST /a HTTP/1.1\r\n")
    assert server.requests[0].endswith(b'\r\n\r\n{"x": 1}')
    assert f"Authorization: Bearer {SECRET}".encode() in server.requests[1]


def test_a_chunked_answer_and_an_interim_one_are_read() -> None:
    answer = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nT: 1\r\n\r\n"
    with script(answer, OK) as server, http_client.Client(server.url) as client:
        assert client.request("GET", "/").body == b"abcde"
        assert client.request("GET", "/").body == b"{}"  # nothing is left of the first
    assert server.connections == 1


def test_an_answer_without_a_length_ends_with_the_connection() -> None:
    with script(b"HTTP/1.0 200 OK\r\n\r\nabc", b"") as server:
        server._answers.pop()  # so that it closes after the answer
        with http_client.Client(server.url) as client:
            assert client.request("GET", "/").body == b"abc"


@pytest.mark.parametrize(
    ("method", "repeatable", "works"),
    [("GET", None, True), ("PUT", None, True), ("POST", True, True), ("POST", None, False)],
)
def test_a_request_is_repeated_only_where_that_is_harmless(
    method: str, repeatable: bool | None, works: bool
) -> None:
    with script(OK, b"", OK) as server, http_client.Client(server.url) as client:
        client.request("GET", "/")
        if works:
            assert client.request(method, "/x", repeatable=repeatable).status == 200
        else:
            with pytest.raises(http_client.ServerAwayError, match="no answer"):
                client.request(method, "/x", repeatable=repeatable)
    assert len(server.requests) == (3 if works else 2)


def test_a_new_connection_that_ends_is_an_error() -> None:
    with (
        script(b"", b"") as server,
        http_client.Client(server.url) as client,
        pytest.raises(http_client.ServerAwayError),
    ):
        client.request("GET", "/")
    assert len(server.requests) == 1


def test_a_problem_document_becomes_an_error() -> None:
    body = b'{"title": "host db-7 is enrolled", "detail": "by another agent", "todo": "make a token", "kind": "conflict", "offset": 7}'
    head = b"HTTP/1.1 409 Conflict\r\nContent-Type: application/problem+json\r\nRetry-After: 17\r\nContent-Length: %d\r\n\r\n"
    with (
        script(head % len(body) + body) as server,
        http_client.Client(server.url) as client,
        pytest.raises(http_client.RefusedError) as caught,
    ):
        client.request("POST", "/")
    error = caught.value
    assert (error.status, error.retry_after, error.document["offset"]) == (409, 17.0, 7)
    assert (error.what, error.why, error.todo) == (
        "host db-7 is enrolled",
        "by another agent",
        "make a token",
    )
    assert error.kind == "conflict"
    assert error.as_json()["error"]["exit_code"] == errors.ExitCode.CANNOT


@pytest.mark.parametrize("status", [400, 422, 500])
def test_another_error_is_readable_too(status: int) -> None:
    answer = b"HTTP/1.1 %d X\r\nContent-Length: 4\r\n\r\noops" % status
    with (
        script(answer) as server,
        http_client.Client(server.url) as client,
        pytest.raises(http_client.RefusedError, match=f"status {status}") as caught,
    ):
        client.request("GET", "/")
    assert (caught.value.exit_code == errors.ExitCode.USAGE) == (status < 500)


def test_redirects_are_refused() -> None:
    answer = (
        b"HTTP/1.1 302 Found\r\nLocation: http://user:pw@evil.example/\r\nContent-Length: 0\r\n\r\n"
    )
    with (
        script(answer) as server,
        http_client.Client(server.url, bearer=SECRET) as client,
        pytest.raises(
            http_client.RefusedError, match=r"redirects to http://\(masked\)@evil\.example/"
        ),
    ):
        client.request("GET", "/")
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * (http_client.MAX_LINE + 70000),
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20000,
    ],
    ids=["other protocol", "negative", "large", "not hex", "large chunk", "long line", "many headers"],
)  # fmt: skip
def test_hostile_answers_are_errors(answer: bytes) -> None:
    with (
        script(answer) as server,
        http_client.Client(server.url) as client,
        pytest.raises(http_client.ServerAwayError),
    ):
        client.request("GET", "/", max_bytes=1000)


def test_a_slow_server_is_an_error_also_when_it_drips() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    done = threading.Event()

    def drip() -> None:
        connection, _ = listener.accept()
        with contextlib.suppress(OSError), contextlib.closing(connection):
            while not done.wait(0.05):
                connection.sendall(b"H")

    thread = threading.Thread(target=drip)
    thread.start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        with (
            http_client.Client(url, seconds=0.3) as client,
            pytest.raises(http_client.ServerAwayError, match="does not answer"),
        ):
            client.request("GET", "/")
    finally:
        done.set()
        thread.join()
        listener.close()


def test_a_server_that_is_not_there_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(http_client.ServerAwayError) as caught:
        http_client.Client(f"http://127.0.0.1:{port}", bearer=SECRET).request("GET", "/")
    assert f"127.0.0.1:{port} cannot be reached" in caught.value.what
    assert SECRET not in str(caught.value.as_json())


@pytest.mark.parametrize(
    ("url", "insecure", "problem"),
    [
        ("https://centre.example:8443/base", False, ""),
        ("http://127.0.0.1:1", False, ""),
        ("http://[::1]:1", False, ""),
        ("http://localhost", False, ""),
        ("http://10.1.2.3:80", False, "refusing plain HTTP to 10.1.2.3"),
        ("http://10.1.2.3:80", True, ""),
        ("http://user:hunter2@localhost", True, "more than a host"),
        ("http://localhost/?token=hunter2", True, "more than a host"),
        ("ftp://user:hunter2@localhost", True, "not the URL"),
        ("centre.example", True, "not the URL"),
        ("http://localhost:99999", True, "not the URL"),
    ],
)
def test_urls(url: str, insecure: bool, problem: str) -> None:
    if not problem:
        http_client.Client(url, insecure=insecure)
        return
    with pytest.raises(errors.UsageError, match=problem) as caught:
        http_client.Client(url, insecure=insecure)
    assert "hunter2" not in str(caught.value.as_json())


def test_a_download_appears_when_it_is_complete(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "window.overnight"
    data = bytes(range(256)) * 1000
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(data)
    seen: list[tuple[int, int]] = []
    with script(head + data, head + data[:9]) as server, http_client.Client(server.url) as client:
        assert client.download("/w", file, lambda *now: seen.append(now)) == len(data)
        assert file.read_bytes() == data
        assert seen[-1] == (len(data), len(data))
        with pytest.raises(http_client.ServerAwayError, match="no answer"):
            client.download("/w", tmp_path / "other")
    assert [path.name for path in tmp_path.iterdir()] == ["window.overnight"]


def test_a_download_on_a_full_disk_names_the_file(tmp_path: pathlib.Path) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with script(head + bytes(5000)) as server, http_client.Client(server.url) as client:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        try:
            with pytest.raises(errors.CannotError, match=r"window\.overnight cannot be written"):
                client.download("/w", tmp_path / "window.overnight")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())


def test_a_refused_download_leaves_nothing(tmp_path: pathlib.Path) -> None:
    body = b'{"title": "no such window"}'
    answer = (
        b"HTTP/1.1 404 X\r\nContent-Type: application/problem+json\r\nContent-Length: %d\r\n\r\n%b"
    )
    with (
        script(answer % (len(body), body)) as server,
        http_client.Client(server.url) as client,
        pytest.raises(http_client.RefusedError, match="no such window"),
    ):
        client.download("/w", tmp_path / "file")
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return certificates.make(tmp_path_factory.mktemp("tls"))


def test_tls_needs_a_trusted_certificate(certificate: pathlib.Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with script(OK, OK, context=context) as server:
        with (
            http_client.Client(server.url) as client,
            pytest.raises(http_client.ServerAwayError, match="is not trusted") as caught,
        ):
            client.request("GET", "/")
        assert "--ca FILE" in caught.value.todo
        with http_client.Client(server.url, ca=certificate) as client:
            assert client.request("GET", "/").body == b"{}"
        elsewhere = server.url.replace("127.0.0.1", "localhost")
        with (
            http_client.Client(elsewhere, ca=certificate) as client,
            pytest.raises(http_client.ServerAwayError, match="is not trusted"),
        ):
            client.request("GET", "/")


def test_a_missing_authority_file_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.CannotError, match=r"ca\.pem cannot be read"):
        http_client.make_context(tmp_path / "ca.pem")
