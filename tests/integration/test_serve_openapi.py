"""The server does what its OpenAPI document says, for requests that fit it and others (schemathesis)."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Iterator
from typing import Any

import hypothesis
import pooldatabases
import pytest
import serverprocesses
import serverworld
from schemathesis import checks, openapi

CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.response_headers_conformance,
]
SHORT, LONG = 5, 150


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[serverprocesses.Server]:
    with serverprocesses.running(tmp_path_factory.mktemp("openapi") / "home") as running:
        yield running


@pytest.fixture(scope="module")
def postgresql_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[serverprocesses.Server]:
    home = tmp_path_factory.mktemp("openapi") / "home"
    with (
        pooldatabases.server() as database,
        serverprocesses.running(home, database=database.get_uri()) as running,
    ):
        yield running


@functools.cache
def admin_token(server: serverprocesses.Server) -> str:
    return server.create_token("admin")


@functools.cache
def document_of(server: serverprocesses.Server) -> Any:
    return openapi.from_url(f"{server.url}/api/v1/openapi.json")


def credential_for(path: str, server: serverprocesses.Server) -> str:
    """Return a new token or credential: each has a rate of its own."""
    admin = serverprocesses.Client(server.url, admin_token(server))
    is_agent = "agents" in path
    asked = {"role": "agent" if is_agent else "admin", "name": "test"}
    status, created = admin.ask("POST", "/api/v1/tokens", asked)
    assert status == 201, created
    if not is_agent:
        return str(created["text"])
    client = serverprocesses.Client(server.url)
    host = f"host-{created['id']}"
    sent = {"token": created["text"], "credential": secrets.token_urlsafe(32), "host": host}
    assert client.ask("POST", "/api/v1/agents/enrol", sent)[0] == 200
    client.credential = sent["credential"]
    body = serverworld.report(1, labels={"zone": "b"}, events=[serverworld.event(1, 1)])
    assert client.ask("POST", "/api/v1/agents/report", body)[0] == 200
    return sent["credential"]


def names() -> list[tuple[str, str]]:
    """List the operations; not from the document, which takes a second in each process of a run."""
    from overnight.interfaces.http import application

    routes: list[Any] = [route for module in application.MODULES for route in module.ROUTER.routes]
    return [(m, r.path) for r in routes if r.include_in_schema for m in sorted(r.methods)]


def try_operation(server: serverprocesses.Server, method: str, path: str, number: int) -> None:
    token = credential_for(path, server)
    serverprocesses.Client.close_all()
    operation = document_of(server)[path][method]
    # An answer to a question is made by a process of its own.
    examples = max(2, number // 5) if "questions" in path else number

    @hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate],
    )
    @hypothesis.given(case=operation.as_strategy())
    def send(case: Any) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        answer = case.call_and_validate(headers=headers, checks=CHECKS)
        assert answer.status_code not in (401, 429) or "enrol" in path

    send()


def test_every_operation_of_the_document_is_tried(server: serverprocesses.Server) -> None:
    paths = document_of(server).raw_schema["paths"]
    assert sorted(names()) == sorted((m.upper(), path) for path in paths for m in paths[path])


@pytest.mark.parametrize(("method", "path"), names())
def test_an_operation_conforms(server: serverprocesses.Server, method: str, path: str) -> None:
    try_operation(server, method, path, SHORT)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("method", "path"), names())
def test_an_operation_conforms_for_many_requests(
    postgresql_server: serverprocesses.Server, method: str, path: str
) -> None:
    try_operation(postgresql_server, method, path, LONG)
