"""An HTTP proxy that doubles, delays, reorders and cuts the requests of agents; seeded."""

from __future__ import annotations

import contextlib
import random
import re
import socket
import threading
from collections import Counter
from typing import Self

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
SECONDS = 30.0

Address = tuple[str, int]

# What happens to a request. HELD: its sender gets no answer, and it arrives after later ones.
PASS, TWICE, HELD, CUT, CUT_HALF, LOST, HALF_ANSWER = "pass", "twice", "held", "cut", "cut half", "lost", "half answer"  # fmt: skip
FAULTS = (TWICE, HELD, CUT, CUT_HALF, LOST, HALF_ANSWER)


class _EndedError(Exception):
    """The other side closed the connection."""


class Proxy:
    """Listens in the network namespace of the thread that makes it. `share` of the requests get a fault."""

    def __init__(self, upstream: Address, seed: int, host: str = "", share: float = 0.4) -> None:
        self.counts: Counter[str] = Counter()
        self.share = share
        self._upstream = upstream
        self._chance = random.Random(f"proxy {seed}")
        self._faults: list[str] = []  # to come: each of them as often as the others
        self._held: list[bytes] = []
        self._copies: list[bytes] = []  # of requests that arrived, and arrive again at the end
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server((host, 0), backlog=64)
        self.port = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def deliver_all(self) -> None:
        """Deliver everything that is late, and old requests once more; to be called in the namespace of the server."""
        with self._lock:
            late, self._held, self._copies = self._held + self._copies, [], []
        self._chance.shuffle(late)
        for request in late:
            assert self._forward(request).startswith(b"HTTP/1.1 200 ")

    def _deliver_held(self) -> None:
        with self._lock:
            late = self._held.pop(self._chance.randrange(len(self._held))) if self._held else b""
        if late:
            with contextlib.suppress(OSError, _EndedError):
                self._forward(late)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        client.settimeout(120)
        with self._lock:
            self._open.add(client)
        try:
            with client, contextlib.suppress(OSError, _EndedError):
                rest = b""
                while True:
                    request, rest = _read_message(client, rest)
                    if not self._pass_on(request, client):
                        return
        finally:
            with self._lock:
                self._open.discard(client)

    def _pass_on(self, request: bytes, client: socket.socket) -> bool:
        """Handle one request; return whether its connection stays open."""
        with self._lock:
            fault = self._choose()
            self.counts[fault] += 1
            if fault == HELD:
                self._held.append(request)
            elif fault in (TWICE, LOST):
                self._copies.append(request)
        if fault in (HELD, CUT):
            return False
        if fault == CUT_HALF:
            with self._connect() as server:
                server.sendall(request[: len(request) // 2])
            return False
        answer = self._forward(request, 2 if fault == TWICE else 1)
        if fault == LOST:
            return False
        client.sendall(answer[: len(answer) // 2] if fault == HALF_ANSWER else answer)
        if self._chance.random() < 0.5:
            self._deliver_held()
        return fault != HALF_ANSWER

    def _choose(self) -> str:
        if self._chance.random() >= self.share:
            return PASS
        if not self._faults:
            self._faults = self._chance.sample(FAULTS, len(FAULTS))
        return self._faults.pop()

    def _connect(self) -> socket.socket:
        server = socket.create_connection(self._upstream, timeout=SECONDS)
        server.settimeout(SECONDS)
        return server

    def _forward(self, request: bytes, times: int = 1) -> bytes:
        """Send a request, as often as that at once; return the first answer."""
        with contextlib.ExitStack() as stack:
            servers = [stack.enter_context(self._connect()) for _ in range(times)]
            for server in servers:
                server.sendall(request)
            answers = [_read_message(server, b"")[0] for server in servers]
            return answers[0]


def _read_message(connection: socket.socket, data: bytes) -> tuple[bytes, bytes]:
    """Return one request or answer, and what was read behind it."""
    while (end := data.find(b"\r\n\r\n")) < 0:
        data += _receive(connection)
    length = LENGTH.search(data[: end + 2])
    size = end + 4 + (int(length[1]) if length else 0)
    while len(data) < size:
        data += _receive(connection)
    return data[:size], data[size:]


def _receive(connection: socket.socket) -> bytes:
    data = connection.recv(65536)
    if not data:
        raise _EndedError
    return data
