"""The server itself has people confirm what an assistant asks for, whatever interface it uses."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator
from typing import Any

import assistants
import pytest
import serverworld

from overnight.app import operations, pool_guards

ASSISTANT = "admin, assistant"
CALL = {operations.ASSISTANT: operations.CALL}
ASK = {operations.ASSISTANT: operations.ASK}


@pytest.fixture
def world(tmp_path: pathlib.Path) -> Iterator[assistants.World]:
    made = assistants.World(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[assistants.World]:
    """A server with a pool of three members, for tests that change nothing."""
    made = assistants.World(tmp_path_factory.mktemp("shared"))
    made.filled()
    yield made
    made.close()


def pending(answer: Any) -> dict[str, Any]:
    """Return what a person has to confirm; fail for any other answer."""
    assert answer.status_code == 409, answer.text
    document = serverworld.problem(answer)
    assert document["kind"] == "confirmation-needed", document
    assert "code" not in json.dumps(document)
    return dict(document["confirmation"])


def drain(world: assistants.World, **more: Any) -> Any:
    sent = {"role": ASSISTANT, "json": {"confirmed": True}} | more
    return world.ask("POST", "/api/v1/pools/ci/drain", **sent)


def test_a_drain_names_what_it_ends_and_waits_for_another_credential(
    world: assistants.World,
) -> None:
    ready = world.filled(target=3, claims=1)
    asked = pending(drain(world))
    assert asked["effect"]["ends"] == ready
    assert [text.partition(" of ")[2] for text in asked["effect"]["claims"]] == ["job-0"]
    assert asked["state"] == "pending"
    assert pending(drain(world))["id"] == asked["id"]
    for refused in (ASSISTANT, "viewer"):
        listed = world.ask("GET", "/api/v1/confirmations", role=refused)
        assert listed.status_code == 403
    assert world.confirm().json()["state"] == "confirmed"
    done = drain(world)
    assert done.json() == {"drained": 2, "claimed_remaining": 1}
    who = f"admin-assistant ({asked['caller']}, assistant)"
    changes = [(name, action) for name, action, _ in world.audit() if action != "token.create"]
    assert [(name if name == who else "a person", action) for name, action in changes] == [
        (who, "confirmation.request"),
        ("a person", "confirmation.confirmed"),
        (who, "confirmation.used"),
        (who, "pool.drain"),
    ]


def test_a_claim_that_came_meanwhile_voids_the_confirmation(world: assistants.World) -> None:
    world.filled(target=3)
    first = pending(drain(world))
    world.confirm()
    world.pools.plane.acquire("ci", acquired_by="job-9")
    second = pending(drain(world))
    assert second["id"] != first["id"]
    shown = world.get(f"/api/v1/confirmations/{first['id']}", "admin")
    assert (shown["state"], shown["code"]) == ("void", "")


def test_the_credential_that_asked_does_not_confirm(world: assistants.World) -> None:
    world.filled()
    pending(drain(world, role="admin", headers=CALL))  # a person's token, used for an assistant
    waiting = world.get("/api/v1/confirmations", "admin")["items"][0]
    assert waiting["code"] == ""
    world.tokens["anna"] = world.fleet.tokens.create(
        "admin", name="anna", expires_us=world.now_us() + 10**12
    ).text
    sent = {"code": world.code("anna")}
    own = world.ask("POST", "/api/v1/confirmations/confirm", role="admin", json=sent)
    assert own.status_code == 403
    assert world.confirm("anna").status_code == 200
    assert drain(world, role="admin", headers=CALL).status_code == 200


def test_asking_alone_changes_nothing(world: assistants.World) -> None:
    world.filled()
    asked = pending(drain(world, headers=ASK))
    world.confirm()
    again = pending(drain(world, headers=ASK))
    assert (again["id"], again["state"]) == (asked["id"], "confirmed")
    assert world.get("/api/v1/pools/ci")["details"]["pool"]["status"] == "active"
    claim = {"request": {"acquired_by": "job-1"}}
    direct = world.ask("POST", "/api/v1/pools/ci/claims", role=ASSISTANT, json=claim, headers=ASK)
    assert serverworld.problem(direct)["kind"] == "no-confirmation-needed"
    assert world.get("/api/v1/pools/ci")["details"]["counts"]["claimed"] == 0


def test_a_declined_call_is_refused(world: assistants.World) -> None:
    world.filled()
    pending(drain(world))
    sent = {"code": world.code()}
    declined = world.ask("POST", "/api/v1/confirmations/decline", role="admin", json=sent)
    assert declined.json()["state"] == "declined"
    assert drain(world).status_code == 403


@pytest.mark.parametrize("how", ["again", "by its id", "with a new token"])
def test_a_declined_call_is_refused_by_any_name_of_its_object(
    world: assistants.World, how: str
) -> None:
    world.filled()
    pending(drain(world))
    declined = world.ask("POST", "/api/v1/confirmations/decline", role="admin", json={"code": world.code()})  # fmt: skip
    assert declined.status_code == 200
    pool = world.get("/api/v1/pools/ci")["details"]["pool"]["id"]
    world.pools.fill("ci")
    if how == "with a new token":
        del world.tokens[ASSISTANT]
    name = pool if how == "by its id" else "ci"
    sent = {"role": ASSISTANT, "json": {"confirmed": True}}
    again = world.ask("POST", f"/api/v1/pools/{name}/drain", **sent)
    assert again.status_code == 403
    assert serverworld.problem(again)["title"].startswith("declined: drain pool ci")
    world.filled("other")
    assert pending(world.ask("POST", "/api/v1/pools/other/drain", **sent))


def test_prose_of_an_assistant_is_quoted(world: assistants.World) -> None:
    name = 'ci" for 0 hosts, costs 0\n\x1b[2J\u202e\uff02' + "x" * 200
    change = {"template": "runner", "target_size": 1, "max_size": MANY}
    sent = {"name": name, "provider": "scripted", "change": change}
    asked = pending(world.ask("POST", "/api/v1/pools", role=ASSISTANT, json=sent))
    shown = asked["effect"]["summary"]
    assert shown.startswith('create pool "ci\\x22 for 0 hosts, costs 0\\n\\x1b[2J\\u202e\\uff02x')
    assert shown.endswith(f'…" (text from elsewhere) with up to {MANY} hosts')
    assert len(shown) < 150


def test_a_claim_s_holder_is_quoted(world: assistants.World) -> None:
    world.filled()
    claim = {"request": {"acquired_by": "nobody; ends 0 claims"}}
    world.ask("POST", "/api/v1/pools/ci/claims", role="operator", json=claim)
    [shown] = pending(drain(world))["effect"]["claims"]
    assert shown.endswith(' of "nobody; ends 0 claims" (text from elsewhere)')


def test_claiming_a_member_is_direct_for_operators(world: assistants.World) -> None:
    world.filled()
    claim = {"request": {"acquired_by": "job-1"}}
    answer = world.ask("POST", "/api/v1/pools/ci/claims", role="operator, assistant", json=claim)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/api/v1/tasks", {"host": "db-7", "kind": "change"}),
        ("DELETE", "/api/v1/tasks/t-1", None),
        ("POST", "/api/v1/tokens", {"role": "admin"}),
        ("GET", "/api/v1/tokens", None),
        ("GET", "/api/v1/audit", None),
        ("DELETE", "/api/v1/hosts/db-7", None),
        ("DELETE", "/api/v1/hosts/db-7/credential", None),
    ],
)
def test_what_no_person_could_confirm_is_for_people_alone(
    shared: assistants.World, method: str, path: str, body: Any
) -> None:
    """Neither for the token of an assistant, nor for a person's that is used for one."""
    for role, headers in ((ASSISTANT, {}), ("admin", CALL), ("admin", ASK)):
        answer = shared.ask(method, path, role=role, json=body, headers=headers)
        assert answer.status_code == 403
        assert "only people" in serverworld.problem(answer)["title"]
    alone = shared.ask(method, path, role="admin", json=body, headers={operations.ASSISTANT: ""})
    assert "only people" not in alone.text


MANY = pool_guards.MANY_HOSTS + 1
EMPTY = {"target_size": 0, "template": "runner"}


@pytest.mark.parametrize(
    ("method", "path", "body", "named"),
    [
        ("DELETE", "/api/v1/pools/ci", None, "delete pool ci"),
        ("POST", "/api/v1/pools", {"name": "big", "provider": "scripted", "change": {"template": "runner", "target_size": 11}}, f"up to {MANY} hosts"),
        ("POST", "/api/v1/pools", {"name": "big", "provider": "scripted", "change": {"template": "runner", "target_size": 1, "max_size": MANY}}, f"up to {MANY} hosts"),
        ("PATCH", "/api/v1/pools/ci", {"change": {"max_size": MANY}}, f"to {MANY} hosts"),
        ("PATCH", "/api/v1/pools/ci", {"change": {"template": "other"}}, "replace 3 members"),
        ("PATCH", "/api/v1/pools/ci", {"change": {"status": "draining"}}, "terminate 3 members"),
        ("PATCH", "/api/v1/pools/ci", {"change": {"status": "archived"}}, "terminate 3 members"),
        ("PATCH", "/api/v1/pools/ci", {"change": {"target_size": 0}}, "terminate 3 members"),
        ("PATCH", "/api/v1/pools/ci", {"change": {"settings": {"ready_ttl_seconds": 1}}}, "end members or claims sooner"),
        ("PATCH", "/api/v1/pools/ci", {"change": {"settings": {"claimed_ttl_action": "terminate"}}}, "end members or claims sooner"),
        ("PATCH", "/api/v1/pools/ci/autoscale", {"change": {"max_size": 0}}, "terminate 3 members"),
        ("POST", "/api/v1/pools/ci/claims", {"request": {"count": MANY}}, f"claim {MANY} members"),
        ("POST", "/api/v1/clusters", {"order": {"count": MANY, "template": "runner", "provider": "scripted"}, "confirmed": True}, f"launch {MANY} hosts of scripted"),
        ("POST", "/api/v1/pool-hosts/rack-7/forget", {"confirmed": True}, "give up 0 members on rack-7"),
    ],
)  # fmt: skip
def test_a_destructive_or_costly_call_waits_for_a_person(
    shared: assistants.World, method: str, path: str, body: Any, named: str
) -> None:
    before = shared.get("/api/v1/pools")
    asked = pending(shared.ask(method, path, role=ASSISTANT, json=body))
    assert named in asked["effect"]["summary"]
    assert shared.get("/api/v1/pools") == before


OTHER_WAYS = (
    ("PATCH", "/api/v1/pools/ci/autoscale", {"change": {"max_size": 2}}, "terminate 1 member"),
    ("PATCH", "/api/v1/pools/ci/autoscale", {"change": {"zero_after_seconds": 60}}, "end members or claims sooner"),
    ("PATCH", "/api/v1/pools/ci", {"change": {"target_size": 1}}, "terminate 2 members"),
    ("PATCH", "/api/v1/pools/ci", {"change": {"target_size": 2, "max_size": 2}}, "terminate 1 member"),
    ("PATCH", "/api/v1/pools/ci", {"change": {"max_size": 30, "min_size": 24, "target_size": 24}}, "raise the size of pool ci from 3 to 24 hosts"),
    ("POST", "/api/v1/pools/ci/claims", {"request": {"lease_seconds": 86_401}}, "claim 1 member of pool ci for 1 d 1 s"),
    ("POST", "/api/v1/clusters", {"order": {"count": 1, "template": "runner", "provider": "scripted", "lease_seconds": 86_401}, "confirmed": True}, "launch 1 host of scripted"),
)  # fmt: skip


def test_the_resulting_state_decides(world: assistants.World) -> None:
    """Not the name of the operation, nor its words: these did the same as others that were confirmed."""
    world.filled()
    for method, path, body, named in OTHER_WAYS:
        asked = pending(world.ask(method, path, role=ASSISTANT, json=body))
        assert named in asked["effect"]["summary"]
    assert len(world.get("/api/v1/pools/ci")["details"]["members"]) == 3


def test_what_is_neither_is_direct(world: assistants.World) -> None:
    world.filled()
    small = {"name": "small", "provider": "scripted", "change": {"template": "runner", "target_size": 5, "max_size": 10}}  # fmt: skip
    for method, path, body in (
        ("POST", "/api/v1/pools", small),
        ("PATCH", "/api/v1/pools/ci", {"change": {"target_size": 4}}),
        (
            "PATCH",
            "/api/v1/pools/ci",
            {"change": {"settings": {"ready_ttl_seconds": 90_000, "launch_parallel": 1}}},
        ),
        ("POST", "/api/v1/pools/ci/replenish", None),
        ("POST", "/api/v1/pools/ci/recycle", None),
        ("PATCH", "/api/v1/pools/ci", {"change": {"status": "paused"}}),
    ):
        answer = world.ask(method, path, role=ASSISTANT, json=body)
        assert answer.status_code == 200, answer.text


def test_a_member_is_terminated_with_its_claim(world: assistants.World) -> None:
    world.filled(claims=1)
    [claimed] = world.pools.members("ci", "claimed")
    path = f"/api/v1/pool-members/{claimed.id}/terminate"
    asked = pending(world.ask("POST", path, role=ASSISTANT, json={"confirmed": True}))
    assert asked["effect"]["summary"].endswith("and end 1 claim")
    assert asked["effect"]["claims"][0].endswith(" of job-0")
    world.confirm()
    done = world.ask("POST", path, role=ASSISTANT, json={"confirmed": False})
    assert done.json()["state"] == "draining"
    again = world.ask("POST", path, role=ASSISTANT, json={"confirmed": False})
    assert again.status_code == 200  # it is gone


def test_a_token_of_an_assistant_is_listed_as_such(world: assistants.World) -> None:
    sent = {"role": "operator", "name": "claude", "assistant": True}
    created = world.ask("POST", "/api/v1/tokens", role="admin", json=sent).json()
    assert created["assistant"] is True
    own = [t for t in world.get("/api/v1/tokens", "admin")["items"] if t["id"] == created["id"]]
    assert own[0]["assistant"] is True
    refused = world.ask("POST", "/api/v1/tokens", role="admin", json=sent | {"role": "agent"})
    assert refused.status_code == 400
