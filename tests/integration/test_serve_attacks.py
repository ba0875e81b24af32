"""Attacks on a real `overnight serve`: what they broke once, and who must not notice."""

from __future__ import annotations

import concurrent.futures
import contextlib
import gzip
import json
import os
import pathlib
import random
import signal
import socket
import sqlite3
import time
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pooldatabases
import pytest
import serverprocesses
import serverworld

from overnight.model import uplink


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


def read_peak_mb(pid: int) -> int:
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) >> 10


def test_one_agent_and_a_viewer_do_not_fill_the_memory(tmp_path: pathlib.Path) -> None:
    """One answer about as many cores as a report may have took 400 MB, twelve at the same time 3.7 GB."""
    chance, cores, second = random.Random(1), uplink.MAX_CORES, 1_000_000
    with serverprocesses.running(tmp_path) as server:
        agent, viewer = serverprocesses.enrolled(server, "evil"), server.create_token("viewer")
        begin_us = time.time_ns() // 1000 - 3600 * second
        for number in range(0, 80, 10):
            rollups = []
            for each in range(number, number + 10):
                shares = {name: chance.choices(range(100), k=cores) for name in uplink.SHARES}
                late = {
                    "worst_ms": chance.choices(range(30_000), k=cores),
                    "cores": [*range(cores)],
                }
                rollups.append({"begin_us": begin_us + each * 30 * second, "seconds": 30, **shares, **late})  # fmt: skip
            body = gzip.compress(
                json.dumps(serverworld.report(begin_us, rollups=rollups)).encode(), 1
            )
            headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
            assert agent.ask("POST", "/api/v1/agents/report", body, **headers)[0] == 200
        before_mb = read_peak_mb(server.process.pid)

        def ask(minutes: int) -> int:
            client = serverprocesses.Client(server.url, viewer)
            end_us = begin_us + minutes * 60 * second
            return client.ask("GET", f"/api/v1/cpu?host=evil&begin_us={begin_us}&end_us={end_us}")[
                0
            ]

        assert ask(40) == 400
        with concurrent.futures.ThreadPoolExecutor(12) as many:
            asked = [many.submit(ask, 30) for _ in range(24)]
            client = serverprocesses.Client(server.url)
            (status, _), took = seconds_of(lambda: client.ask("GET", "/healthz"))
            assert (status, took < 1.5) == (200, True), took
            assert {each.result() for each in asked} == {200, 503}
        assert ask(30) == 200
        assert read_peak_mb(server.process.pid) - before_mb < 400


# --- a database that does not answer


def processes_of(postgresql: Any) -> list[int]:
    """Return the process of a PostgreSQL server and its children."""
    first = (pathlib.Path(postgresql.pgdata) / "postmaster.pid").read_text().split()[0]
    children = pathlib.Path(f"/proc/{first}/task/{first}/children").read_text().split()
    return [int(first), *map(int, children)]


def seconds_of(ask: Any) -> tuple[Any, float]:
    began = time.monotonic()
    return ask(), time.monotonic() - began


def check_only_liveness(server: serverprocesses.Server, viewer: str, limit: float) -> None:
    """All who need the database get an answer in time, and liveness has not to wait for them."""

    def list_tokens(_: int) -> tuple[int, float]:
        client = serverprocesses.Client(server.url, viewer)
        (status, _document), took = seconds_of(lambda: client.ask("GET", "/api/v1/hosts"))
        return status, took

    with concurrent.futures.ThreadPoolExecutor(40) as many:
        asked = [many.submit(list_tokens, number) for number in range(40)]
        time.sleep(1)
        for _ in range(3):
            client = serverprocesses.Client(server.url)
            (status, _document), took = seconds_of(lambda c=client: c.ask("GET", "/healthz"))  # type: ignore[misc]
            assert (status, took < 1.5) == (200, True), took
            (status, document), took = seconds_of(lambda c=client: c.ask("GET", "/readyz"))  # type: ignore[misc]
            assert (status, took < 5) == (503, True), (document, took)
        answers = [each.result() for each in asked]
    assert {status for status, _ in answers} == {503}
    assert max(took for _, took in answers) < limit


@pytest.mark.alone
def test_a_stopped_postgresql_does_not_hold_up_liveness(tmp_path: pathlib.Path) -> None:
    with pooldatabases.server() as database:
        url = pooldatabases.emptied(database.get_uri())
        with serverprocesses.running(tmp_path, database=url) as server:
            viewer = server.create_token("viewer")
            client = serverprocesses.Client(server.url, viewer)
            client.get("/api/v1/hosts")
            assert client.ask("GET", "/readyz")[0] == 200
            stopped = processes_of(database)
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            try:
                time.sleep(6)  # until the token is asked of the database again
                check_only_liveness(server, viewer, limit=60)
            finally:
                for pid in stopped:
                    os.kill(pid, signal.SIGCONT)
            deadline = time.monotonic() + 60
            while client.ask("GET", "/readyz")[0] != 200:
                assert time.monotonic() < deadline
                time.sleep(0.2)
            client.get("/api/v1/hosts")


@pytest.mark.alone
def test_a_locked_sqlite_has_a_deadline(tmp_path: pathlib.Path) -> None:
    with serverprocesses.running(tmp_path) as server:
        admin = serverprocesses.Client(server.url, server.create_token("admin"))
        admin.get("/api/v1/hosts")
        locker = sqlite3.connect(tmp_path / "pools" / "pools.db", isolation_level=None)
        with contextlib.closing(locker):
            locker.execute("BEGIN IMMEDIATE")
            time.sleep(2)
            (status, document), took = seconds_of(
                lambda: admin.ask("POST", "/api/v1/tokens", {"role": "viewer"})
            )
            assert status == 503, document
            assert took < 30
            assert admin.ask("GET", "/healthz")[0] == 200
            locker.execute("ROLLBACK")
        deadline = time.monotonic() + 30
        while admin.ask("POST", "/api/v1/tokens", {"role": "viewer"})[0] != 201:
            assert time.monotonic() < deadline
            time.sleep(0.2)
