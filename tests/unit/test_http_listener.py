"""The HTTP server against clients that are slow, many or hostile."""

from __future__ import annotations

import contextlib
import http.client
import queue
import resource
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import descriptors
import noise
import pytest

from overnight import errors, http_listener

PAGE = http_listener.Answer(200, b"# EOF\n", "text/plain")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def listen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., http_listener.Listener]]:
    monkeypatch.setattr(http_listener, "PAUSE_SECONDS", 0.01)
    with contextlib.ExitStack() as opened:

        def start(
            respond: http_listener.Respond = lambda _: PAGE,
            clock: Callable[[], float] = time.monotonic,
            **limits: Any,
        ) -> http_listener.Listener:
            listener = http_listener.Listener(
                "127.0.0.1", 0, respond, serves="a test", option="--listen", clock=clock,
                limits=http_listener.Limits(**{"per_second": 1e6, "seconds": 3600.0} | limits),
            )  # fmt: skip
            opened.callback(listener.close)
            return listener

        yield start


@pytest.fixture
def connect() -> Iterator[Callable[..., socket.socket]]:
    with contextlib.ExitStack() as opened:

        def start(listener: http_listener.Listener, text: bytes = b"") -> socket.socket:
            client = socket.create_connection(("127.0.0.1", listener.port), noise.HANG_SECONDS)
            opened.enter_context(client)
            client.sendall(text)
            return client

        yield start


def read(client: socket.socket) -> bytes:
    """Read until the server closes the connection."""
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := client.recv(65536):
            parts.append(part)
    return b"".join(parts)


def ask(listener: http_listener.Listener) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", listener.port, timeout=noise.HANG_SECONDS)
    with contextlib.closing(connection):
        connection.request("GET", "/metrics")
        return connection.getresponse().status


def ask_until_answered(listener: http_listener.Listener) -> None:
    deadline = time.monotonic() + noise.HANG_SECONDS
    while ask(listener) != 200:
        assert time.monotonic() < deadline


def test_connections_beyond_the_cap_are_refused_until_a_slot_is_free(listen, connect) -> None:
    listener = listen(connections=8)
    before = threading.active_count()
    slow = [connect(listener, b"GET /met") for _ in range(8)]
    for _ in range(30):
        assert read(connect(listener)).startswith(b"HTTP/1.0 503 ")
    assert threading.active_count() <= before + 8
    slow[0].close()
    ask_until_answered(listener)


def test_a_request_has_one_deadline_however_slowly_it_comes(listen, connect) -> None:
    clock = Clock()
    listener = listen(clock=clock, connections=2, seconds=5.0)
    slow = connect(listener, b"GET /met")
    assert ask(listener) == 200  # so the slow one was accepted, too
    clock.now = 4.9
    assert ask(listener) == 200
    slow.setblocking(False)
    with pytest.raises(BlockingIOError):
        slow.recv(1)
    clock.now = 5.0
    guard = time.monotonic() + noise.HANG_SECONDS
    while not select.select([slow], [], [], 0.05)[0]:
        assert time.monotonic() < guard
        with contextlib.suppress(ConnectionError):  # it may end just now
            slow.send(b"r")
    assert read(slow) == b""


def test_a_client_that_does_not_read_its_answer_is_ended(listen) -> None:
    clock, requested = Clock(), threading.Event()

    def respond(_: http_listener.Request) -> http_listener.Answer:
        if requested.is_set():
            return PAGE
        requested.set()
        return http_listener.Answer(200, b"x" * (1 << 25))  # more than the socket buffers hold

    listener = listen(respond, clock=clock, connections=1, seconds=5.0)
    with socket.socket() as silent:
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        silent.connect(("127.0.0.1", listener.port))
        silent.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert requested.wait(noise.HANG_SECONDS)
        assert ask(listener) == 503
        clock.now = 5.0
        ask_until_answered(listener)


def test_closing_ends_open_connections(listen, connect) -> None:
    listener = listen(connections=2)
    slow = connect(listener, b"GET /met")
    assert ask(listener) == 200
    listener.close()
    assert read(slow) == b""


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> queue.SimpleQueue[float]:
    """The pauses of a listener, which takes none."""
    taken: queue.SimpleQueue[float] = queue.SimpleQueue()
    monkeypatch.setattr(http_listener, "_pause", taken.put)
    return taken


def test_connections_are_accepted_at_a_limited_rate(listen, pauses) -> None:
    listener = listen(per_second=0.001)
    assert ask(listener) == 200
    assert pauses.get() < 0
    assert ask(listener) == 200
    assert 900 < pauses.get() <= 1000


def test_the_listener_pauses_without_a_free_descriptor_and_then_goes_on(listen, pauses) -> None:
    listener = listen()
    with socket.socket() as client:
        client.settimeout(noise.HANG_SECONDS)
        with descriptors.leave_descriptors(0):
            client.connect(("127.0.0.1", listener.port))
            client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            while pauses.get(timeout=noise.HANG_SECONDS) != http_listener.PAUSE_SECONDS:
                pass
        assert read(client).startswith(b"HTTP/1.0 200 ")


@pytest.mark.parametrize(
    ("soft", "hard", "raised", "connections"),
    [
        (1024, 524288, 1088, 64),
        (1024, 1024, None, 64),  # a container: nothing to raise, but enough
        (256, 256, None, 32),  # an eighth is left to clients
        (4, 4, None, 1),
        (1024, resource.RLIM_INFINITY, 1088, 64),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None, 64),
    ],
)
def test_descriptors_are_reserved_for_connections(
    soft: int, hard: int, raised: int | None, connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: list[Any] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: changes.append(limits))
    assert http_listener._reserve_descriptors(64) == connections
    assert changes == ([(raised, hard)] if raised else [])


POST = b"POST /v1/beat HTTP/1.0\r\nContent-Length: %s\r\n\r\n"


HOSTILE = [
    (b"POST /v1/beat HTTP/1.0\r\n\r\n", 400),
    (POST % b"-1", 400),
    (POST % b"+1", 400),
    (POST % b"1_0", 400),
    (POST % b"\xb2", 400),
    (POST % b"2, 2" + b"{}", 400),
    (POST % (b"9" * 5000), 400),
    (POST % b"9" + b"{}", 400),
    (POST % b"99999999999", 413),
    (POST % b"65", 413),
    (b"GET /" + b"x" * 20_000 + b" HTTP/1.0\r\n\r\n", 431),
    (b"GET / HTTP/1.0\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", 431),
    (b"GET / HTTP/1.0\r\n" + b"X: y\r\n" * 200 + b"\r\n", 431),
    (b"GET / HTTP/9.9.9\r\n\r\n", 400),
    (b"\x00\xff\r\n\r\n", 400),
    (b"DELETE / HTTP/1.0\r\n\r\n", 501),
]


def test_a_hostile_request_is_refused_without_a_traceback(
    listen, connect, capfd: pytest.CaptureFixture[str]
) -> None:
    listener = listen(body_bytes=64)
    assert read(connect(listener, POST % b"2" + b"{}")).startswith(b"HTTP/1.0 200 ")
    for text, status in HOSTILE:
        client = connect(listener)
        with contextlib.suppress(OSError):  # it may be refused before all is sent
            client.sendall(text)
            client.shutdown(socket.SHUT_WR)
        assert read(client).startswith(b"HTTP/1.0 %d " % status), text[:60]
    assert capfd.readouterr() == ("", "")


def test_a_bug_is_a_500_without_a_traceback(
    listen, connect, capfd: pytest.CaptureFixture[str]
) -> None:
    def respond(request: http_listener.Request) -> http_listener.Answer:
        raise LookupError(request.path)

    answer = read(connect(listen(respond), b"GET /x HTTP/1.0\r\n\r\n"))
    assert answer.startswith(b"HTTP/1.0 500 ")
    assert b"LookupError" in answer
    assert capfd.readouterr() == ("", "")


def test_an_address_in_use_is_an_error_that_names_the_option(listen) -> None:
    listener = listen()
    with pytest.raises(errors.CannotError, match=f"on 127.0.0.1:{listener.port}") as caught:
        http_listener.Listener(
            "127.0.0.1", listener.port, lambda _: PAGE, serves="a test", option="--listen"
        )
    assert caught.value.todo == "choose another port: --listen 127.0.0.1:PORT"
