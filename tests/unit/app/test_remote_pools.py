"""What the client of a server's pools sends, and how often."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from overnight import errors, http_client
from overnight.app import pools, remote, server_requests, server_settings
from overnight.interfaces import cli
from overnight.model.pool import Request


class Peer:
    """A server that notes requests; it breaks the connection unless it has an answer."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, Any, str]] = []
        self.answer: tuple[int, dict[str, Any]] | None = None


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Peer, remote.Server]]:
    noted = Peer()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def respond(self) -> None:
            size = int(self.headers.get("content-length") or 0)
            body = json.loads(self.rfile.read(size)) if size else None
            why = self.headers.get("x-overnight-why", "")
            noted.seen.append((self.command, self.path, body, why))
            self.close_connection = True
            if noted.answer is not None:
                data = json.dumps(noted.answer[1]).encode()
                self.send_response(noted.answer[0])
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(data)

        do_GET = do_POST = do_PATCH = do_DELETE = respond  # noqa: N815

        def log_message(self, *_: Any) -> None: ...

    monkeypatch.setattr(server_requests, "AWAY_SECONDS", 0.0)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        threading.Thread(target=listener.serve_forever, daemon=True).start()
        settings = server_settings.Settings(f"http://127.0.0.1:{listener.server_port}", "token")
        server = remote.Server(settings)
        yield noted, server
        server.close()
        listener.shutdown()


@pytest.mark.parametrize(
    ("key", "times"), [(None, 1), ("job-17", server_requests.ATTEMPTS)], ids=["once", "with a key"]
)
def test_a_claim_is_sent_again_only_with_a_key(
    peer: tuple[Peer, remote.Server], key: str | None, times: int
) -> None:
    noted, server = peer
    with pytest.raises(http_client.ServerAwayError) as away:
        server.pools.acquire("ci", Request(idempotency_key=key))
    assert len(noted.seen) == times
    assert ("may have been made" in away.value.todo) is (key is None)


def test_names_values_and_the_reason_are_sent(peer: tuple[Peer, remote.Server]) -> None:
    noted, server = peer
    noted.answer = 200, {"drained": 2, "claimed_remaining": 1}
    server.pools.why = "the rack is replaced"
    assert server.pools.drain("a/b", confirmed=True) == noted.answer[1]
    sent = ("POST", "/api/v1/pools/a%2Fb/drain", {"confirmed": True}, "the rack is replaced")
    assert noted.seen == [sent]
    noted.answer = 200, {"items": [], "next": None}
    assert server.pools.list(archived=True) == ()
    assert noted.seen[-1][:2] == ("GET", "/api/v1/pools?archived=true")


def test_refusals_keep_their_exit_codes(peer: tuple[Peer, remote.Server]) -> None:
    noted, server = peer
    for status, kind, error, code in (
        (400, "claims-affected", errors.UnconfirmedError, errors.ExitCode.USAGE),
        (400, "bad-knob", http_client.RefusedError, errors.ExitCode.USAGE),
        (404, "pool-not-found", http_client.RefusedError, errors.ExitCode.CANNOT),
        (403, "forbidden", errors.MissingPermissionError, errors.ExitCode.CANNOT),
    ):
        noted.answer = status, {"kind": kind, "title": "what", "detail": "why", "todo": "do"}
        with pytest.raises(error) as raised:
            server.pools.drain("ci", confirmed=False)
        assert raised.value.exit_code == code  # type: ignore[attr-defined]


def test_an_answer_of_another_form_is_not_understood(peer: tuple[Peer, remote.Server]) -> None:
    noted, server = peer
    noted.answer = 200, {"details": {"pool": 7}, "problems": []}
    with pytest.raises(errors.CannotError, match="not understood"):
        server.pools.update("ci", pools.PoolChange(target_size=1))


def test_a_reason_needs_a_server(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    assert cli.main(["--home", str(tmp_path), "pool", "drain", "ci", "--why", "x"]) == 2
    assert "--why needs --server" in capsys.readouterr().err
