"""The server does what its OpenAPI document says, for requests that fit it and others (schemathesis)."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import schemathesis
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
def admin(server: serverprocesses.Server) -> str:
    agent = serverprocesses.enrolled(server, "db-7")
    body = serverworld.report(1, labels={"zone": "b"}, events=[serverworld.event(1, 1)])
    assert agent.ask("POST", "/api/v1/agents/report", body)[0] == 200
    serverprocesses.Client.close_all()
    return server.run("token", "create", "--role", "admin")


def names() -> list[tuple[str, str]]:
    """List the operations without a server."""
    from overnight.interfaces.http import application

    document = application.build().openapi()
    return [(m.upper(), path) for path, found in document["paths"].items() for m in found]


def try_operation(
    server: serverprocesses.Server, token: str, method: str, path: str, number: int
) -> None:
    document = openapi.from_url(f"{server.url}/api/v1/openapi.json")
    operation = document[path][method]
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
        case.call_and_validate(headers={"Authorization": f"Bearer {token}"}, checks=CHECKS)

    send()


@pytest.mark.parametrize(("method", "path"), names())
def test_an_operation_conforms(
    server: serverprocesses.Server, admin: str, method: str, path: str
) -> None:
    try_operation(server, admin, method, path, SHORT)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("method", "path"), names())
def test_an_operation_conforms_for_many_requests(
    server: serverprocesses.Server, admin: str, method: str, path: str
) -> None:
    try_operation(server, admin, method, path, LONG)
