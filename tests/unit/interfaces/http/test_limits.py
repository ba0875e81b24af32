"""Rates, bytes and time of requests, before any use case sees them."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from overnight.app import serving_metrics
from overnight.interfaces.http import clients, limits
from overnight.model import addresses, openmetrics

SMALL = limits.Limits(
    anonymous_bytes=20, body_bytes=100, report_bytes=1000, held_bytes=8000, body_seconds=0.05, answer_seconds=0.2,
    address_rate=10, address_burst=5, credential_rate=1, credential_burst=2,
)  # fmt: skip
REPORT = "/api/v1/agents/report"
KNOWN = {"Authorization": "Bearer known"}


async def echo(scope: Any, receive: Any, send: Any) -> None:
    body = (await receive())["body"]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


class Client:
    """Sends requests to a gate, as uvicorn does."""

    def __init__(self, allowed: limits.Limits = SMALL, app: Any = echo) -> None:
        async def is_known(path: str, credential: str) -> bool:
            return credential.startswith("known")

        self.counters = serving_metrics.Counters()
        proxies = addresses.parse_networks(["10.9.0.0/16"], "--trusted-proxy")
        self.gate = limits.Gate(app, allowed, self.counters, is_known, proxies)

    async def send(
        self,
        *chunks: bytes,
        path: str = "/api/v1/hosts",
        headers: Mapping[str, str] | Sequence[tuple[str, str]] = (),
        client: str = "10.0.0.1",
        stall: bool = False,
    ) -> tuple[int, dict[str, str], bytes]:
        pending = list(chunks) or [b""]
        answered: list[Any] = []

        async def receive() -> Any:
            if pending:
                chunk = pending.pop(0)
                more = bool(pending) or stall
                return {"type": "http.request", "body": chunk, "more_body": more}
            await asyncio.sleep(60)
            raise AssertionError

        async def send(message: Any) -> None:
            answered.append(message)

        pairs = headers.items() if isinstance(headers, Mapping) else headers
        raw = [(name.lower().encode(), text.encode()) for name, text in pairs]
        scope = {"type": "http", "path": path, "query_string": b"", "headers": raw}
        scope["client"] = (client, 1)
        await self.gate(scope, receive, send)
        if not answered:
            return 0, {}, b""
        named = {name.decode(): text.decode() for name, text in answered[0]["headers"]}
        return answered[0]["status"], named, b"".join(m.get("body", b"") for m in answered)


def run(call: Any) -> Any:
    return asyncio.run(call)


def test_a_complete_body_reaches_the_application_with_secure_headers_on_the_answer() -> None:
    status, headers, body = run(Client().send(b"one ", b"two"))
    assert (status, body) == (200, b"one two")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert "default-src 'none'" in headers["content-security-policy"]


def test_a_body_is_refused_by_its_announced_length_before_it_is_read() -> None:
    status, headers, body = run(Client().send(headers={"Content-Length": "101"}))
    assert status == 413
    assert headers["connection"] == "close"
    assert json.loads(body)["kind"] == "body-too-large"
    assert run(Client().send(headers={"Content-Length": "9" * 5000}))[0] == 413


def test_a_body_is_refused_by_its_bytes_whatever_it_announced() -> None:
    client = Client()
    headers = {"Content-Length": "10", **KNOWN}
    assert run(client.send(b"x" * 60, b"x" * 60, headers=headers))[0] == 413
    assert not client.gate._held


def test_long_headers_are_refused() -> None:
    status, _, body = run(Client().send(headers={"X": "x" * 20000}))
    assert (status, json.loads(body)["kind"]) == (431, "head-too-large")


def test_only_reports_may_be_large() -> None:
    client = Client()
    assert run(client.send(b"x" * 700, path=REPORT, headers=KNOWN))[0] == 200
    assert run(client.send(b"x" * 700, path="/api/v1/agents/enrol", headers=KNOWN))[0] == 413


def fill(*credentials: str, size: int = 700, addresses: int = 1) -> list[int]:
    """Return what a known agent of another address gets, and the answers to bodies that stall meanwhile."""

    async def send() -> list[int]:
        client = Client(dataclasses.replace(SMALL, address_burst=1000, credential_burst=1000))
        slow = [
            asyncio.create_task(
                client.send(
                    b"x" * size, path=REPORT, headers={"Authorization": f"Bearer {name}"},
                    client=f"10.1.0.{number % addresses}", stall=True,
                )
            )
            for number, name in enumerate(credentials)
        ]  # fmt: skip
        await asyncio.sleep(0)
        agent = await client.send(b"x" * 700, path=REPORT, headers=KNOWN)
        answers = [(await task)[0] for task in slow]
        assert not client.gate._held
        return [agent[0], *sorted(answers)]

    return run(send())


def test_bodies_without_a_credential_do_not_hold_up_agents() -> None:
    many = [f"guessed-{n}" for n in range(20)]
    assert fill(*many) == [200, *[401] * 20]
    assert fill(*many, size=20) == [200, *[408] * 20]


def test_bodies_in_memory_are_bounded_by_credential_address_and_together() -> None:
    assert fill("known-1", "known-1") == [200, 408, 503]
    many = [f"known-{n}" for n in range(12)]
    assert fill(*many) == [200, *[408] * 5, *[503] * 7]  # half of all, which others do not notice
    assert fill(*many, addresses=3) == [503, *[408] * 11, 503]


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer guessed"}])
def test_a_large_body_is_read_for_a_valid_credential_alone(headers: dict[str, str]) -> None:
    status, answered, body = run(Client().send(b"x" * 21, headers=headers))
    assert (status, answered["connection"]) == (401, "close")
    assert json.loads(body)["title"] == "the body was not read"
    assert run(Client().send(b"x" * 20, headers=headers))[0] == 200


def test_a_body_that_stalls_ends_the_request() -> None:
    status, headers, body = run(Client().send(b"x", stall=True))
    assert (status, headers["connection"]) == (408, "close")
    assert json.loads(body)["kind"] == "too-slow"


def test_an_answer_that_takes_too_long_ends_the_request() -> None:
    async def slow(*_: Any) -> None:
        await asyncio.sleep(60)

    assert run(Client(app=slow).send())[0] == 408


def test_an_address_that_exceeds_its_rate_is_told_when_to_come_back() -> None:
    async def hurry() -> Any:
        client = Client()
        answers = [await client.send() for _ in range(6)]
        other = await client.send(client="10.0.0.2")
        return answers, other

    answers, other = run(hurry())
    assert [status for status, _, _ in answers] == [200] * 5 + [429]
    assert int(answers[-1][1]["retry-after"]) >= 1
    assert json.loads(answers[-1][2])["kind"] == "too-many-requests"
    assert other[0] == 200


def test_a_credential_has_a_rate_of_its_own_from_any_address() -> None:
    async def hurry() -> list[int]:
        client = Client()
        bearer = {"Authorization": "Bearer x"}
        return [(await client.send(headers=bearer, client=f"10.0.1.{n}"))[0] for n in range(3)]

    assert run(hurry()) == [200, 200, 429]


BASIC = base64.b64encode(b"anna:x").decode(), base64.b64encode(b"bob:x").decode()


@pytest.mark.parametrize("other", ["bearer x", "BEARER  x ", "Token x", *(f"Basic {b}" for b in BASIC)])  # fmt: skip
def test_a_credential_has_one_rate_in_any_form(other: str) -> None:
    async def hurry() -> list[int]:
        client = Client()
        forms = ("Bearer x", other, "Bearer x", other)
        return [(await client.send(headers={"Authorization": form}))[0] for form in forms]

    assert run(hurry()) == [200, 200, 429, 429]


@pytest.mark.parametrize(
    "headers",
    [
        [("Authorization", "Bearer a"), ("Authorization", "Bearer b")],
        [("Content-Length", "5"), ("Transfer-Encoding", "chunked")],
    ],
)
def test_ambiguous_headers_are_refused(headers: list[tuple[str, str]]) -> None:
    status, answered, _ = run(Client().send(headers=headers))
    assert (status, answered["connection"]) == (400, "close")


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        ("2001:db8::1", "2001:db8::ffff:2", True),  # one network: one client has all of it
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
    ],
)
def test_addresses_of_one_ipv6_network_share_a_rate(one: str, other: str, shared: bool) -> None:
    found = {clients.find_client({"client": (each, 1)}, ()) for each in (one, other)}
    assert (len(found) == 1) is shared


@pytest.mark.parametrize(
    ("peer", "sent", "client"),
    [
        ("10.9.0.1", "10.1.0.1", "10.1.0.1"),
        ("::ffff:10.9.0.1", "10.1.0.1", "10.1.0.1"),
        ("10.9.0.1", "6.6.6.6, 10.1.0.1, 10.9.0.2", "10.1.0.1"),  # the client wrote the first one
        ("10.9.0.1", "10.9.0.3", "10.9.0.3"),
        ("10.9.0.1", "junk", "10.9.0.1"),
        ("10.8.0.1", "10.1.0.1", "10.8.0.1"),  # not a proxy that is trusted
    ],
)
def test_a_trusted_proxy_names_the_client(peer: str, sent: str, client: str) -> None:
    scope = {"client": (peer, 1), "headers": [(b"x-forwarded-for", sent.encode())]}
    proxies = addresses.parse_networks(["10.9.0.0/16"], "--trusted-proxy")
    assert clients.find_client(scope, proxies) == client


def test_buckets_fill_again_and_forget_the_oldest() -> None:
    now = 0.0
    buckets = limits.Buckets(2, 2, keys=2, clock=lambda: now)
    assert [buckets.take("a") for _ in range(3)] == [0, 0, 0.5]
    now = 0.5
    assert buckets.take("a") == 0
    assert buckets.take("a") > 0
    buckets.take("b")
    buckets.take("c")
    assert len(buckets._levels) == 2
    assert buckets.take("a") == 0  # forgotten, so it is full


def test_a_client_that_leaves_gets_no_answer() -> None:
    async def leave() -> list[object]:
        answered: list[object] = []

        async def receive() -> Any:
            return {"type": "http.disconnect"}

        async def send(message: object) -> None:
            answered.append(message)

        scope = {"type": "http", "path": "/", "query_string": b"", "headers": []}
        await Client().gate(scope, receive, send)
        return answered

    assert run(leave()) == []


def test_a_bug_is_a_problem_document_without_details(capsys: pytest.CaptureFixture[str]) -> None:
    secret = "ovn_1_" + "secret"

    async def broken(*_: Any) -> None:
        raise RuntimeError(secret)

    status, _, body = run(Client(app=broken).send())
    assert (status, json.loads(body)["kind"]) == (500, "bug")
    logged = capsys.readouterr().err
    assert "RuntimeError" in logged
    assert "broken" in logged
    assert secret.encode() not in body
    assert secret not in logged


def test_a_bug_is_logged_once_for_each_place(capsys: pytest.CaptureFixture[str]) -> None:
    async def broken(scope: Any, *_: Any) -> None:
        if scope["path"] == "/deep":
            await broken({"path": "/deep"})
        raise RuntimeError(scope["path"])

    client = Client(dataclasses.replace(SMALL, address_burst=1000), broken)
    for path in ("/a", "/a", "/b", "/deep", "/deep"):
        assert run(client.send(path=path))[0] == 500
    logged = capsys.readouterr().err
    assert logged.count("internal error") == 2
    for kind in ("RuntimeError", "RecursionError"):
        assert logged.count(f"logged once: {kind}") == 1
    assert len(logged) < 10_000


def test_requests_are_counted_by_area_and_status() -> None:
    client = Client()
    run(client.send(path="/api/v1/agents/report"))
    run(client.send(path="/whatever/ovn_1_secret"))
    page = openmetrics.Page()
    client.counters.add_to(page)
    text = page.text()
    assert 'overnight_server_requests_total{area="report",status="200"} 1' in text
    assert 'overnight_server_requests_total{area="other",status="200"} 1' in text
    assert 'overnight_server_request_seconds_count{area="report"} 1' in text
    assert "secret" not in text
