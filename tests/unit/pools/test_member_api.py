"""The requests a member's agent may send, and the answers."""

from __future__ import annotations

import http.client
import json
from typing import Any

import pytest

from overnight import errors
from overnight.database import database_errors
from overnight.pools import member_api, pool_errors


class FakeMembers:
    def __init__(self) -> None:
        self.refusal: errors.OvernightError | None = None
        self.requests: list[tuple[Any, ...]] = []

    def _record(self, *request: Any) -> None:
        self.requests.append(request)
        if self.refusal:
            raise self.refusal

    def enrol(self, token: str, credential: str) -> str:
        self._record("enrol", token, credential)
        return "m-1"

    def phase(
        self, credential: str, phase: str, reason: str = "", detail: str = ""
    ) -> dict[str, Any]:
        self._record("phase", credential, phase, reason, detail)
        return {"state": "ready"}

    def beat(self, credential: str) -> dict[str, Any]:
        self._record("beat", credential)
        return {"gone": False}


def answer(members: FakeMembers, path: str, credential: str, body: object) -> Any:
    return member_api.answer(members, path, credential, json.dumps(body).encode())


def test_each_request_reaches_its_method() -> None:
    members = FakeMembers()
    enrolled = answer(members, "/v1/enrol", "", {"token": "t", "credential": "c"})
    assert (enrolled.status, json.loads(enrolled.body)) == (200, {"member_id": "m-1"})
    body = {"phase": "failed", "reason": "module_pull_failed", "detail": "HTTP 404"}
    assert answer(members, "/v1/phase", "c", body).status == 200
    assert answer(members, "/v1/beat", "c", {}).status == 200
    assert members.requests == [
        ("enrol", "t", "c"),
        ("phase", "c", "failed", "module_pull_failed", "HTTP 404"),
        ("beat", "c"),
    ]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/enrol", {"token": "t"}, 400),
        ("/v1/enrol", {"token": "t", "credential": "c", "admin": "yes"}, 400),
        ("/v1/enrol", {"token": 5, "credential": "c"}, 400),
        ("/v1/phase", {}, 400),
        ("/v1/beat", {"x": "y"}, 400),
        ("/v1/beat", [], 400),
        ("/v1/beat", None, 400),
        ("/v1/pools", {}, 404),
    ],
)
def test_undeclared_paths_and_fields_are_refused(path: str, body: object, status: int) -> None:
    members = FakeMembers()
    assert answer(members, path, "c", body).status == status
    assert members.requests == []


@pytest.mark.parametrize(
    ("refusal", "status"),
    [
        (pool_errors.EnrolmentRefusedError("bootstrap_token_expired", "late"), 403),
        (pool_errors.TooEarlyError("x", why="y", todo="z"), 425),
        (database_errors.DatabaseUnavailableError("x", why="y", todo="z"), 503),
        (pool_errors.BadKnobError("phase", "!", "a word"), 400),
        (pool_errors.PoolNotFoundError("x"), 500),
    ],
)
def test_a_refusal_has_its_status_and_its_reason(
    refusal: errors.OvernightError, status: int
) -> None:
    members = FakeMembers()
    members.refusal = refusal
    refused = answer(members, "/v1/beat", "c", {})
    assert refused.status == status
    assert json.loads(refused.body)["error"]["why"] == refusal.why


@pytest.fixture
def server() -> Any:
    members = FakeMembers()
    server = member_api.serve(members)
    server.members = members  # type: ignore[attr-defined]
    yield server
    server.close()


def ask(
    server: Any, method: str, path: str, body: bytes = b"", **headers: str
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, text


def test_over_the_wire(server: Any) -> None:
    status, text = ask(server, "POST", "/v1/beat", b"{}", Authorization="Bearer abc")
    assert (status, text) == (200, b'{"gone": false}')
    assert server.members.requests == [("beat", "abc")]
    assert ask(server, "GET", "/v1/beat")[0] == 404
    assert ask(server, "POST", "/v1/beat", b"not json")[0] == 400
    assert ask(server, "POST", "/v1/beat", b"x" * 70_000)[0] == 413
    odd = {"Content-Length": "\u00b2"}  # a digit, but not a number
    assert ask(server, "POST", "/v1/beat", b"", **odd)[0] == 400


@pytest.mark.parametrize(
    ("length", "body"),
    [
        ("9" * 5000, b""),
        ("-1", b""),
        ("50000", b'{"a":' * 10_000),
        ("50000", b"[" * 50_000),
        ("6000", b'{"a":' + b"9" * 5_995),
    ],
)
def test_hostile_lengths_and_bodies_are_a_400_without_a_traceback(
    length: str, body: bytes, server: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    headers = {"Content-Length": length}
    assert ask(server, "POST", "/v1/beat", body, **headers)[0] == 400
    assert server.members.requests == []
    assert capfd.readouterr() == ("", "")


def test_a_bug_of_the_server_is_a_500(server: Any) -> None:
    server.members.beat = None
    assert ask(server, "POST", "/v1/beat", b"{}")[0] == 500


def test_a_port_in_use_is_an_error_with_a_hint(server: Any) -> None:
    with pytest.raises(errors.CannotError, match=str(server.port)) as caught:
        member_api.serve(FakeMembers(), port=server.port)
    assert "--listen" in caught.value.todo
