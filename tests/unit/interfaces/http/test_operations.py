"""Operations of people and agents, on a real server without a socket."""

from __future__ import annotations

import gzip
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import images
import jsonschema
import pytest
import serverworld

from overnight.app import audit
from overnight.database import database_errors
from overnight.model.control_plane import WindowRow


@pytest.fixture
def world(tmp_path: pathlib.Path) -> Iterator[serverworld.World]:
    made = serverworld.World(tmp_path)
    yield made
    made.close()


def problem(response: Any, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    return serverworld.problem(response)


# --- agents


def test_a_host_enrols_reports_and_is_seen(world: serverworld.World) -> None:
    credential = world.enrol("db-7")
    now = world.now_us()
    reply = world.report(credential, labels={"zone": "b"}, events=[serverworld.event(1, now)])
    assert reply.status_code == 200, reply.text
    assert reply.json()["interval"] == 30
    assert reply.json()["tasks"] == []
    [host] = world.get("/api/v1/hosts")["items"]
    assert (host["name"], host["labels"]) == ("db-7", {"zone": "b"})
    [event] = world.get("/api/v1/events")["items"]
    assert (event["id"], event["host"]) == ("net.driver_reset-00000001", "db-7")
    assert world.get("/api/v1/events/net.driver_reset-00000001")["host"] == "db-7"


def test_a_report_may_be_compressed(world: serverworld.World) -> None:
    credential = world.enrol("db-7")
    now = world.now_us()
    document = serverworld.report(now, events=[serverworld.event(n, now) for n in range(50)])
    body = gzip.compress(json.dumps(document).encode())
    sent = {"content": body, "headers": {"Content-Encoding": "gzip"}}
    assert world.ask("POST", "/api/v1/agents/report", bearer=credential, **sent).status_code == 200
    assert len(world.get("/api/v1/events?limit=100")["items"]) == 50


def test_a_small_body_cannot_expand_into_the_memory(world: serverworld.World) -> None:
    credential = world.enrol("db-7")
    bomb = gzip.compress(b"[" + b" " * (64 << 20) + b"]")
    assert len(bomb) < 100_000
    sent = {"content": bomb, "headers": {"Content-Encoding": "gzip"}}
    refused = problem(world.ask("POST", "/api/v1/agents/report", bearer=credential, **sent), 413)
    assert refused["kind"] == "too-large"
    # Without a credential nothing is decompressed.
    problem(world.ask("POST", "/api/v1/agents/report", bearer="x" * 43, **sent), 401)


@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        (b"", ""),
        (b"{", ""),
        (b"[" * 100_000, ""),
        (b"\xff\xfe", ""),
        (b"NaN", ""),
        (b"{}", "gzip"),
        (gzip.compress(b"{}", mtime=0)[:-4], "gzip"),
        (gzip.compress(b"{}", mtime=0) + b"x", "gzip"),
        (b"{}", "br"),
        (b'{"version": 1, "sent_us": -1, "boot": "a", "uptime_us": 0}', ""),
        (b'{"version": 1, "sent_us": 1e400, "boot": "a", "uptime_us": 0}', ""),
    ],
)
def test_a_hostile_report_is_refused(
    world: serverworld.World, content: bytes, encoding: str
) -> None:
    headers = {"Content-Encoding": encoding} if encoding else {}
    answer = world.ask(
        "POST",
        "/api/v1/agents/report",
        bearer=world.enrol("db-7"),
        content=content,
        headers=headers,
    )
    assert problem(answer, 400)["kind"] == "usage"


def nested(depth: int) -> Any:
    value: Any = 1
    for number in range(depth):
        value = [value] if number % 2 else {"x": value}
    return {"x": value}


@pytest.mark.parametrize("depth", [31, 32, 982, 9_000])
def test_nested_results_and_bodies_are_refused(world: serverworld.World, depth: int) -> None:
    """A result that was 982 deep was stored, and every answer with it was a bug."""
    credential = world.enrol("db-7")
    task = {"host": "db-7", "kind": "snapshot"}
    made = world.ask("POST", "/api/v1/tasks", role="operator", json=task).json()
    world.report(credential)
    text = json.dumps if depth < 900 else write_nested
    path = f"/api/v1/agents/tasks/{made['id']}"
    body = f'{{"state": "done", "result": {text(nested(depth))}}}'
    answer = world.ask("POST", path, bearer=credential, content=body)
    assert answer.status_code == (200 if depth == 31 else 400), answer.text
    assert world.get(f"/api/v1/tasks/{made['id']}")["state"] == (
        "done" if depth == 31 else "leased"
    )
    for sent in ({**task, "arguments": 0}, {"role": "viewer", "name": 0}):
        place = "/api/v1/tasks" if "host" in sent else "/api/v1/tokens"
        body = json.dumps(sent).replace(": 0", f": {text(nested(depth))}")
        headers = {"Content-Type": "application/json"}
        refused = world.ask("POST", place, role="admin", content=body, headers=headers)
        assert refused.status_code in (201, 400), refused.text


def write_nested(value: Any) -> str:
    """Write what is too deep for the encoder."""
    begin, end = "", ""
    while isinstance(value, list | dict):
        is_list = isinstance(value, list)
        begin, end = begin + ("[" if is_list else '{"x":'), ("]" if is_list else "}") + end
        value = value[0] if is_list else value["x"]
    return f"{begin}{value}{end}"


def test_texts_that_a_database_cannot_store_do_no_harm(world: serverworld.World) -> None:
    credential = world.enrol("db-7")
    now = world.now_us()
    nasty = serverworld.event(1, now, text="\x00 \ud800 \x1b[31m", fields={"a\x00": "\udfff"})
    body = json.dumps(serverworld.report(now, events=[nasty]))
    answer = world.ask("POST", "/api/v1/agents/report", bearer=credential, content=body)
    assert answer.status_code in (200, 400)
    world.get("/api/v1/events")


def test_an_audit_is_shown_as_it_was_reported(
    world: serverworld.World, tmp_path: pathlib.Path
) -> None:
    credential, path = world.enrol("db-7"), "/api/v1/hosts/db-7/audit"
    assert world.report(credential).json()["send"] == ["labels", "snapshot"], "an older agent"
    assert "has not reported" in problem(world.ask("GET", path, role="viewer"), 404)["title"]
    images.deep_learning(tmp_path / "root")
    document = audit.examine(tmp_path / "root").as_json()
    later = {"uptime_us": 86_400_000_001}
    assert world.report(credential, audit=document, **later).status_code == 200
    found = world.get(path)
    schema = pathlib.Path(__file__).parents[4] / "docs/schemas/audit-1.json"
    jsonschema.validate(found, json.loads(schema.read_text()))
    plain = json.loads(json.dumps(document))
    assert found == plain | {"host": "db-7", "examined_us": found["examined_us"]}
    for hostile in (
        plain | {"units": "many"},
        plain | {"findings": [{"unit": "x"}]},
        plain | {"gaps": [{"what": "x" * (1 << 20), "why": ""}]},
    ):
        refused = problem(world.report(credential, audit=hostile), 400)
        assert refused["kind"] == "usage"
    assert world.get(path) == found


def test_an_agent_may_not_ask_what_people_ask(world: serverworld.World) -> None:
    credential = world.enrol("db-7")
    problem(world.ask("GET", "/api/v1/hosts", bearer=credential), 401)
    problem(world.ask("POST", "/api/v1/agents/report", role="admin", json={}), 401)


def test_a_token_enrols_once_and_the_same_request_again_is_answered(
    world: serverworld.World,
) -> None:
    token = world.token("agent")
    sent = {"token": token, "credential": "a" * 43, "host": "db-7"}
    first = world.ask("POST", "/api/v1/agents/enrol", json=sent)
    assert first.status_code == 200
    assert world.ask("POST", "/api/v1/agents/enrol", json=sent).json() == first.json()
    other = sent | {"credential": "b" * 43}
    assert world.ask("POST", "/api/v1/agents/enrol", json=other).status_code in (401, 409)


def test_a_known_host_needs_a_token_for_its_name(world: serverworld.World) -> None:
    world.enrol("db-7")
    sent = {"token": world.token("agent"), "credential": "a" * 43, "host": "db-7"}
    problem(world.ask("POST", "/api/v1/agents/enrol", json=sent), 409)


def test_a_credential_is_rotated_and_revoked(world: serverworld.World) -> None:
    old = world.enrol("db-7")
    new = "n" * 43
    assert world.ask("POST", "/api/v1/agents/rotate", bearer=old, json={"credential": new}).status_code == 200  # fmt: skip
    assert world.report(old).status_code == 200
    assert world.report(new).status_code == 200
    path = "/api/v1/hosts/db-7/credential"
    problem(world.ask("DELETE", path, role="operator"), 403)
    revoked = world.ask("DELETE", path, role="admin", headers={"X-Overnight-Why": "stolen"})
    assert revoked.status_code == 204
    problem(world.report(new), 401)
    entry = world.get("/api/v1/audit", "admin")["items"][0]
    assert (entry["action"], entry["target"], entry["why"]) == ("host.revoke", "db-7", "stolen")
    assert entry["who"].startswith("admin-name")


def test_an_upload_that_was_not_offered_is_refused(world: serverworld.World) -> None:
    path = f"/api/v1/agents/blobs/{'a' * 64}?offset=0&size=5"
    problem(world.ask("PUT", path, bearer=world.enrol("db-7"), content=b"hello"), 403)
    problem(world.ask("PUT", path.replace("offset=0", "offset=x"), bearer="x", content=b""), 400)


def test_an_upload_continues_at_the_offset_that_a_conflict_names(world: serverworld.World) -> None:
    credential = world.enrol("db-7")
    now = world.now_us()
    window = {"event": "net.driver_reset-00000001", "sha256": "a" * 64, "bytes": 10}
    offer = window | {"begin_us": now - 1000, "end_us": now}
    assert world.report(credential, windows=[offer]).json()["want"] == ["a" * 64]
    path = f"/api/v1/agents/blobs/{'a' * 64}?size=10&offset="
    put = world.ask("PUT", f"{path}0", bearer=credential, content=b"hello")
    assert put.json() == {"offset": 5, "complete": False}
    refused = world.ask("PUT", f"{path}0", bearer=credential, content=b"hello")
    assert problem(refused, 409)["offset"] == 5


# --- people


def test_every_operation_of_people_needs_a_token(world: serverworld.World) -> None:
    paths = world.ask("GET", "/api/v1/openapi.json").json()["paths"]
    for path, operations in paths.items():
        if path in ("/healthz", "/readyz"):
            continue
        for method in operations:
            filled = path.replace("{sha256}", "a" * 64) + (
                "?offset=0&size=1" if "blobs" in path else ""
            )
            response = world.ask(method.upper(), filled, bearer="ovn_0_0", json={})
            if path == "/api/v1/agents/enrol":
                assert response.status_code == 400
                continue
            assert response.status_code == 401, (method, path, response.text)
            scheme = (
                "Basic"
                if path.startswith(("/reports", "/investigations", "/metrics"))
                else "Bearer"
            )
            assert response.headers["www-authenticate"].startswith(scheme)


ADMIN = ("/api/v1/tokens", "/api/v1/audit")


@pytest.mark.parametrize(
    ("method", "path", "needed"),
    [
        ("GET", "/api/v1/hosts", "viewer"),
        ("GET", "/api/v1/hosts/db-7/audit", "viewer"),
        ("POST", "/api/v1/tasks", "operator"),
        ("DELETE", "/api/v1/tasks/t-1", "operator"),
        ("GET", "/api/v1/tokens", "admin"),
        ("POST", "/api/v1/tokens", "admin"),
        ("DELETE", "/api/v1/tokens/1", "admin"),
        ("GET", "/api/v1/audit", "admin"),
        ("DELETE", "/api/v1/hosts/db-7", "admin"),
    ],
)
def test_an_operation_needs_its_role(
    world: serverworld.World, method: str, path: str, needed: str
) -> None:
    roles = ("viewer", "operator", "admin")
    for role in roles:
        status = world.ask(
            method, path, role=role, json={} if method == "POST" else None
        ).status_code
        assert (status != 403) is (roles.index(role) >= roles.index(needed)), (role, status)


def test_an_unknown_parameter_is_refused(world: serverworld.World) -> None:
    refused = problem(world.ask("GET", "/api/v1/hosts?lable=zone=b", role="viewer"), 400)
    assert refused["kind"] == "unknown-parameter"
    assert "label" in refused["detail"]


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/hosts?limit=0",
        "/api/v1/hosts?limit=x",
        "/api/v1/hosts?label=zone",
        "/api/v1/hosts?cursor=nonsense",
        "/api/v1/events?severity=bad",
        "/api/v1/events?begin_us=-1",
        "/api/v1/cpu",
        "/api/v1/windows/../../etc/passwd",
        "/api/v1/windows/abc",
    ],
)
def test_a_request_that_is_not_valid_is_a_problem_document(
    world: serverworld.World, path: str
) -> None:
    response = world.ask("GET", path, role="viewer")
    problem(response, 404 if "passwd" in path else 400)


@pytest.mark.parametrize(
    "path", ["/api/v1/hosts/none", "/api/v1/events/none-1234", "/api/v1/tasks/none", f"/api/v1/windows/{'a' * 64}", "/reports/none", "/nowhere"]
)  # fmt: skip
def test_what_does_not_exist_is_a_problem_document(world: serverworld.World, path: str) -> None:
    problem(world.ask("GET", path, role="viewer"), 404)


def test_lists_have_cursors_that_show_every_item_once(world: serverworld.World) -> None:
    for number in range(5):
        world.enrol(f"host-{number}")
    names, cursor = [], ""
    while True:
        page = world.get(f"/api/v1/hosts?limit=2&cursor={cursor}")
        assert len(page["items"]) <= 2
        names += [host["name"] for host in page["items"]]
        if page["next"] is None:
            break
        cursor = page["next"]
    assert names == [f"host-{number}" for number in range(5)]


def test_hosts_are_chosen_by_label_and_state(world: serverworld.World) -> None:
    for name, zone in (("a-1", "a"), ("b-1", "b")):
        world.report(world.enrol(name), labels={"zone": zone})
    world.enrol("silent")

    def names(query: str) -> list[str]:
        return [host["name"] for host in world.get(f"/api/v1/hosts?{query}")["items"]]

    assert names("label=zone=b") == ["b-1"]
    assert names("state=online") == ["a-1", "b-1"]
    assert names("state=offline") == ["silent"]
    assert names("prefix=a-") == ["a-1"]


def test_events_are_chosen_by_kind_host_severity_and_time(world: serverworld.World) -> None:
    credential = world.enrol("db-7")
    now = world.now_us()
    mild = serverworld.event(2, now - 10, kind="cpu.core_pinned", severity="info")
    world.report(credential, events=[serverworld.event(1, now), mild])

    def found(query: str) -> int:
        return len(world.get(f"/api/v1/events?{query}")["items"])

    assert found("") == 2
    assert found("kind=net.") == 1
    assert found("severity=warning") == 1
    assert found("host=db-7") == 2
    assert found("host=other") == 0
    assert found(f"begin_us={now}") == 1
    assert found(f"end_us={now}") == 1


def test_a_task_reaches_its_host_and_its_result_comes_back(world: serverworld.World) -> None:
    credential = world.enrol("db-7")
    asked = {"host": "db-7", "kind": "snapshot", "why": "drift"}
    created = world.ask("POST", "/api/v1/tasks", role="operator", json=asked)
    assert created.status_code == 201, created.text
    [task] = world.report(credential).json()["tasks"]
    assert task["kind"] == "snapshot"
    path = f"/api/v1/agents/tasks/{task['id']}"
    done = {"state": "done", "progress": 1, "result": {"ok": True}}
    assert world.ask("POST", path, bearer=credential, json=done).json() == {"state": "done"}
    shown = world.get(f"/api/v1/tasks/{task['id']}")
    assert (shown["state"], shown["result"], shown["why"]) == ("done", {"ok": True}, "drift")
    assert shown["created_by"].startswith("operator-name")
    assert len(world.get("/api/v1/tasks?host=db-7")["items"]) == 1
    other = world.enrol("db-8")
    problem(world.ask("POST", path, bearer=other, json=done), 404)


@pytest.mark.parametrize("body", [{}, {"host": "db-7"}, {"host": "db-7", "kind": "shell"}, {"host": "db-7", "kind": "stop", "extra": 1}])  # fmt: skip
def test_a_task_that_is_not_valid_is_refused(world: serverworld.World, body: Any) -> None:
    problem(world.ask("POST", "/api/v1/tasks", role="operator", json=body), 400)


def test_a_window_that_the_server_does_not_hold_is_asked_of_its_host(
    world: serverworld.World,
) -> None:
    credential = world.enrol("db-7")
    event = serverworld.event(1, world.now_us())
    world.report(credential, events=[event])
    path, asked = "/api/v1/hosts/db-7/windows", {"event": event["id"]}
    refused = problem(world.ask("POST", path, role="viewer", json=asked), 403)
    assert "operator" in refused["todo"]
    first = world.ask("POST", path, role="operator", json=asked)
    assert first.status_code == 202, first.text
    again = world.ask("POST", path, role="operator", json=asked)
    assert again.json() == first.json()
    [task] = world.report(credential).json()["tasks"]
    assert (task["id"], task["kind"]) == (first.json()["task"], "upload-window")
    assert task["arguments"] == asked
    problem(world.ask("POST", path, role="operator", json={}), 400)
    problem(world.ask("POST", path, role="operator", json={"begin_us": 5, "end_us": 4}), 400)


def test_a_window_of_a_silent_host_names_what_the_server_holds(world: serverworld.World) -> None:
    world.enrol("db-7")
    asked = {"begin_us": 1000, "end_us": 2000}
    refused = world.ask("POST", "/api/v1/hosts/db-7/windows", role="operator", json=asked)
    document = problem(refused, 409)
    assert (document["kind"], document["windows"]) == ("host-offline", [])


def test_a_token_is_shown_once_and_revoked(world: serverworld.World) -> None:
    sent = {"role": "viewer", "name": "grafana", "expires_seconds": 60, "why": "dashboards"}
    created = world.ask("POST", "/api/v1/tokens", role="admin", json=sent)
    assert created.status_code == 201, created.text
    token = created.json()
    assert world.ask("GET", "/api/v1/hosts", bearer=token["text"]).status_code == 200
    listed = world.get("/api/v1/tokens", "admin")
    assert token["text"] not in json.dumps(listed)
    assert world.ask("DELETE", f"/api/v1/tokens/{token['id']}", role="admin").status_code == 204
    problem(world.ask("GET", "/api/v1/hosts", bearer=token["text"]), 401)
    actions = [entry["action"] for entry in world.get("/api/v1/audit", "admin")["items"]]
    assert "token.revoke" in actions
    assert "token.create" in actions


def test_a_page_accepts_the_token_as_a_password_but_a_change_does_not(
    world: serverworld.World,
) -> None:
    import base64

    password = base64.b64encode(f"anna:{world.token('admin')}".encode()).decode()
    basic = {"Authorization": f"Basic {password}"}
    assert world.ask("GET", "/metrics", headers=basic).status_code == 200
    problem(world.ask("DELETE", "/api/v1/hosts/db-7", headers=basic), 401)
    problem(world.ask("GET", "/api/v1/hosts", headers=basic), 401)
    problem(world.ask("GET", "/metrics", headers={"Authorization": "Basic !"}), 401)


def test_metrics_have_requests_reports_and_pools(world: serverworld.World) -> None:
    world.report(world.enrol("db-7"), lost={"events": 3, "rollups": 0})
    text = world.ask("GET", "/metrics", role="viewer").text
    assert 'overnight_server_requests_total{area="report",status="200"} 1' in text
    assert "overnight_server_reports_total 1" in text
    assert 'overnight_server_spool_lost_total{item="events"} 3' in text
    assert text.endswith("# EOF\n")


# --- server


def test_a_method_that_is_not_served_names_those_that_are(world: serverworld.World) -> None:
    response = world.ask("PATCH", "/api/v1/hosts", role="viewer")
    problem(response, 405)
    assert response.headers["allow"] == "GET"


def test_members_of_pools_are_answered_at_their_paths(world: serverworld.World) -> None:
    sent = {"token": "x", "credential": "y"}
    refused = world.ask("POST", "/v1/enrol", json=sent)
    assert refused.status_code == 403
    assert refused.json()["error"]["kind"] == "enrolment-refused"
    assert world.ask("POST", "/v1/beat", content=b"[").status_code == 400
    assert world.ask("POST", "/v1/beat", bearer="x").status_code == 403


def test_a_database_that_is_away_is_a_temporary_problem(
    world: serverworld.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    credential = world.enrol("db-7")
    away = database_errors.DatabaseUnavailableError("a", why="10.0.0.5 refused", todo="c")

    def fail(*_: object, **__: object) -> None:
        raise away

    database = world.server.pools.plane.context.database
    monkeypatch.setattr(database, "read", fail)
    monkeypatch.setattr(database, "write", fail)
    for answer in (
        world.report(credential),
        world.ask("GET", "/api/v1/hosts", bearer="ovn_0123456789ab_" + "0" * 64),
        world.ask("GET", "/readyz"),
    ):
        assert problem(answer, 503)["kind"] == "database-unavailable"
        assert "10.0.0.5" not in answer.text  # anyone can ask
        assert int(answer.headers["retry-after"]) >= 1
    assert world.ask("GET", "/healthz").status_code == 200
    monkeypatch.undo()
    assert world.report(credential).status_code == 200
    assert world.ask("GET", "/readyz").status_code == 200


def test_a_bug_in_an_operation_is_a_problem_document(
    world: serverworld.World,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr(world.fleet, "hosts", fail)
    answer = world.ask("GET", "/api/v1/hosts", role="viewer")
    assert problem(answer, 500)["kind"] == "bug"
    assert capsys.readouterr().err.count("logged once: RuntimeError") == 1


def test_the_openapi_document_describes_every_operation(world: serverworld.World) -> None:
    document = world.ask("GET", "/api/v1/openapi.json").json()
    names = set()
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert operation["summary"], path
            assert operation["tags"], path
            assert "422" not in operation["responses"]
            assert "application/problem+json" in operation["responses"]["default"]["content"]
            names.add(operation["operationId"])
    assert len(names) == sum(map(len, document["paths"].values()))
    assert "ValidationError" not in json.dumps(document)


def test_a_held_window_is_used_only_if_it_covers_the_time(
    world: serverworld.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    credential = world.enrol("db-7")
    world.report(credential)
    held = WindowRow("db-7", "a" * 64, "", 1000, 2000, 5, offered_us=1, received_us=2)
    monkeypatch.setattr(world.fleet, "windows", lambda *_, **__: [held])
    path = "/api/v1/hosts/db-7/windows"
    inside = world.ask("POST", path, role="viewer", json={"begin_us": 1000, "end_us": 2000})
    assert (inside.status_code, inside.json()) == (200, {"sha256": "a" * 64})
    longer = world.ask("POST", path, role="operator", json={"begin_us": 1000, "end_us": 2001})
    assert longer.status_code == 202


@pytest.mark.parametrize(
    ("age_s", "end_s", "role", "is_asked"),
    [
        (5, 4, "viewer", False),  # the rest is still to come
        (415, 4, "operator", False),
        (425, 4, "operator", True),  # it never came
        (425, 4, "viewer", False),
        (425, 59, "operator", True),
        (425, 60, "operator", False),
    ],
)
def test_a_first_window_answers_and_its_rest_is_asked_for_once(
    world: serverworld.World,
    monkeypatch: pytest.MonkeyPatch,
    age_s: int,
    end_s: int,
    role: str,
    is_asked: bool,
) -> None:
    credential = world.enrol("db-7")
    event = serverworld.event(1, world.now_us() - age_s * 1_000_000)
    world.report(credential, events=[event])
    end_us = event["time_us"] + end_s * 1_000_000
    held = WindowRow("db-7", "a" * 64, event["id"], 1000, end_us, 5, offered_us=1, received_us=2)
    monkeypatch.setattr(world.fleet, "windows", lambda *_, **__: [held])
    asked = {"event": event["id"]}
    for _ in range(2):  # a recording that ends there would be asked for again and again
        answer = world.ask("POST", "/api/v1/hosts/db-7/windows", role=role, json=asked)
        assert (answer.status_code, answer.json()) == (200, {"sha256": "a" * 64})
        for task in world.fleet.tasks.list("db-7"):
            world.fleet.tasks.cancel(task.id, by="test")
    assert len(world.fleet.tasks.list("db-7")) == is_asked
