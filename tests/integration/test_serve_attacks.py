"""Attacks on a real `overnight serve`: what they broke once, and who must not notice."""

from __future__ import annotations

import contextlib
import socket
import time
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest
import serverprocesses
import serverworld


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[serverprocesses.Server]:
    with serverprocesses.running(tmp_path_factory.mktemp("serve") / "home") as running:
        yield running


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    serverprocesses.Client.close_all()


def report(agent: serverprocesses.Client, **parts: Any) -> tuple[int, Any]:
    document = serverworld.report(time.time_ns() // 1000, **parts)
    return agent.ask("POST", "/api/v1/agents/report", document)


@contextlib.contextmanager
def connected(server: serverprocesses.Server) -> Iterator[socket.socket]:
    where = urllib.parse.urlsplit(server.url)
    with socket.create_connection((str(where.hostname), where.port), timeout=60) as client:
        yield client


def send_without_end(client: socket.socket, path: str, size: int, *headers: str) -> None:
    """Announce a body, and send all but its last byte; the server may close the connection meanwhile."""
    head = (f"POST {path} HTTP/1.1", "Host: a", f"Content-Length: {size}", *headers, "", "")
    with contextlib.suppress(ConnectionError, TimeoutError):
        client.settimeout(5)
        client.sendall("\r\n".join(head).encode())
        client.sendall(b"x" * (size - 1))


@pytest.mark.parametrize("headers", [(), ("Authorization: Bearer guessed",)])
def test_bodies_without_a_valid_credential_do_not_lock_out_agents(
    server: serverprocesses.Server, headers: tuple[str, ...]
) -> None:
    """Eight bodies of 4 MiB less a byte kept all reports of their address at 503 for half a minute."""
    agent = serverprocesses.enrolled(server, f"victim-{len(headers)}")
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            slow = stack.enter_context(connected(server))
            send_without_end(slow, "/api/v1/agents/report", 4 << 20, *headers)
            assert slow.recv(4096).startswith(b"HTTP/1.1 401")
        for _ in range(5):
            assert report(agent)[0] == 200


def test_a_request_with_two_lengths_ends_its_connection(server: serverprocesses.Server) -> None:
    with connected(server) as client:
        client.sendall(
            b"POST /api/v1/agents/enrol HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
        )
        answered = b""
        with contextlib.suppress(ConnectionResetError):
            while data := client.recv(65536):
                answered += data
    assert answered.startswith(b"HTTP/1.1 400")
    assert answered.count(b"HTTP/1.1 ") == 1
