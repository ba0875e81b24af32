"""Connections: their number, and the time that a request's headers may take."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from overnight.interfaces.http import protocol
from overnight.model import addresses

REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


async def hello(scope: Any, receive: Any, send: Any) -> None:
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
    )
    await send({"type": "http.response.body", "body": b"hi"})


PROXY = "127.0.0.9"


class Connection(protocol.Protocol):
    most_connections = 3
    proxies = addresses.parse_networks([PROXY], "--trusted-proxy")
    head_seconds = 0.3


@pytest.fixture
def port() -> Iterator[int]:
    config = uvicorn.Config(
        hello, http=Connection, lifespan="off", log_config=None, log_level="critical",
        h11_max_incomplete_event_size=1024, timeout_keep_alive=2, timeout_graceful_shutdown=1,
    )  # fmt: skip
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


@contextlib.contextmanager
def connected(port: int, source: str = "127.0.0.1") -> Iterator[socket.socket]:
    address = ("127.0.0.1", port)
    with socket.create_connection(address, timeout=30, source_address=(source, 0)) as client:
        yield client


def read_until_closed(client: socket.socket) -> bytes:
    received = b""
    while data := client.recv(65536):
        received += data
    return received


def test_a_connection_is_kept_between_requests(port: int) -> None:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    used = set()
    for _ in range(3):
        client.request("GET", "/")
        assert client.getresponse().read() == b"hi"
        used.add(client.sock.getsockname())
        time.sleep(0.5)  # idle for longer than headers may take
    client.close()
    assert len(used) == 1


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost:", REQUEST + b"GET / HT"])
def test_headers_that_do_not_end_close_the_connection(port: int, sent: bytes) -> None:
    with connected(port) as client:
        client.sendall(sent)
        answered = read_until_closed(client)  # or the test would time out
    assert answered.count(b"HTTP/1.1") == sent.count(b"\r\n\r\n")


def test_headers_that_come_byte_by_byte_get_no_more_time(port: int) -> None:
    with connected(port) as client:
        client.settimeout(0.1)
        closed = False
        for _ in range(100):
            try:
                client.sendall(b"G")
                closed = client.recv(1) == b""
            except TimeoutError:
                continue
            except OSError:
                closed = True
            if closed:
                break
    assert closed


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",  # TLS to a plain port
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 5000,
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n",
    ],
)
def test_what_is_not_http_is_refused_with_a_problem_document(port: int, sent: bytes) -> None:
    with connected(port) as client:
        client.sendall(sent)
        with contextlib.suppress(ConnectionResetError):
            answer = read_until_closed(client)
            head, _, body = answer.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 400")
            assert b"application/problem+json" in head
            assert json.loads(body)["kind"] == "bad-request"


def is_answered(client: socket.socket) -> bool:
    client.sendall(REQUEST)
    return client.recv(65536).startswith(b"HTTP/1.1 200")


def is_free(port: int, source: str) -> bool:
    """Whether an address gets a connection, after a while."""
    for _ in range(100):
        with connected(port, source) as client:
            if is_answered(client):
                return True
        time.sleep(0.05)
    return False


def test_connections_are_limited_and_free_again_when_one_ends(port: int) -> None:
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(connected(port, f"127.0.0.{n}")) for n in (1, 1, 2)]
        assert all(map(is_answered, held))
        with connected(port, "127.0.0.3") as client:
            assert read_until_closed(client).startswith(b"HTTP/1.1 503")
        held[0].close()
        assert is_free(port, "127.0.0.3")


def test_one_address_has_half_of_the_connections(port: int) -> None:
    """A proxy that is trusted has all of them."""
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(connected(port)) for _ in range(2)]
        assert all(map(is_answered, held))
        with connected(port) as client:
            assert read_until_closed(client).startswith(b"HTTP/1.1 503")
        assert is_free(port, "127.0.0.2")
        held[0].close()
        assert is_free(port, "127.0.0.1")
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(connected(port, PROXY)) for _ in range(3)]
        assert all(map(is_answered, held))
    assert is_free(port, "127.0.0.1")
    assert not [count for count in Connection.counts.values() if count < 0]
