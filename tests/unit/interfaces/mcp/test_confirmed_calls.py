"""Calls that a person confirms: at the client where one sits there, else with a credential of their own."""

from __future__ import annotations

import asyncio
import pathlib
import time
from collections.abc import Iterator
from typing import Any

import assistants
import mcp
import pytest
import serverworld

from overnight.app import concierge
from overnight.investigations import plan_file
from overnight.model.control_plane import Principal

DRAIN = ("system_drain_instance_pool", {"id": "ci"})


@pytest.fixture
def world(tmp_path: pathlib.Path) -> Iterator[assistants.World]:
    made = assistants.World(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[assistants.World]:
    """A server for tests that change nothing."""
    made = assistants.World(tmp_path_factory.mktemp("shared"))
    made.filled()
    yield made
    made.close()


class AtClient(concierge.ServedBackend):
    """A backend with a person at the client, who has a credential of their own."""

    def __init__(self, world: assistants.World) -> None:
        backend = world.backend()
        super().__init__(world.server, backend._by)
        self.world, self.confirmed = world, 0
        anna = world.fleet.tokens.authenticate(world.token("admin"))
        self.anna = Principal(anna.id, anna.name, anna.role)

    def confirm(self, pending: Any) -> None:
        self.confirmed += 1
        rows = self.world.fleet.confirmations
        [code] = [each.code for each in rows.list(self.anna) if each.id == pending.id]
        rows.confirm(code, self.anna)


def drain(backend: concierge.Backend, mode: str, **client: Any) -> Any:
    async def scene() -> Any:
        async with mcp.Client(assistants.serve(backend), mode=mode, **client) as connected:
            return await connected.call_tool(*DRAIN)

    return asyncio.run(scene()).structured_content


@pytest.mark.parametrize("mode", assistants.MODES)
def test_the_person_at_the_client_agrees_to_exactly_what_would_happen(
    world: assistants.World, mode: str
) -> None:
    ready = world.filled(claims=1)
    backend, asked = AtClient(world), []
    done = drain(backend, mode, elicitation_callback=assistants.answers(True, asked))
    assert done["drain_result"] == {"drained": 2, "claimed_remaining": 1}
    assert done["pool"]["status"] == "draining"
    [message] = asked
    for name in (*ready, "drain pool ci", "job-0"):
        assert name in message
    assert backend.confirmed == 1


@pytest.mark.parametrize("mode", assistants.MODES)
@pytest.mark.parametrize("how", ["declines", "client without elicitation", "no person"])
def test_without_a_person_s_yes_nothing_happens(
    shared: assistants.World, mode: str, how: str
) -> None:
    asked: list[str] = []
    backend: concierge.Backend = shared.backend() if how == "no person" else AtClient(shared)
    client = {"elicitation_callback": assistants.answers(how == "no person", asked)}
    waiting = drain(backend, mode, **({} if how.startswith("client") else client))
    assert waiting["confirmation"]["status"] == "pending"
    assert bool(asked) is (how == "declines")
    assert shared.get("/api/v1/pools/ci")["details"]["pool"]["status"] == "active"


@pytest.mark.parametrize("mode", assistants.MODES)
def test_a_yes_to_an_older_state_does_not_count(world: assistants.World, mode: str) -> None:
    """A member is claimed while the person reads."""
    world.filled()
    backend, asked = AtClient(world), []
    agree = assistants.answers(True, asked)

    async def answer(context: object, params: Any) -> Any:
        if len(asked) < 1:
            world.pools.plane.acquire("ci", acquired_by="job-9")
        return await agree(context, params)

    done = drain(backend, mode, elicitation_callback=answer)
    if mode == "legacy":  # the call ends; the next one asks again
        assert done["confirmation"]["status"] == "pending"
        assert "the state has changed" in done["confirmation"]["why"]
        done = drain(backend, mode, elicitation_callback=answer)
    assert done["drain_result"] == {"drained": 2, "claimed_remaining": 1}
    assert len(asked) == 2
    assert "job-9" in asked[1]
    assert "job-9" not in asked[0]


def test_elicitation_over_http_confirms_nothing(shared: assistants.World) -> None:
    """Whoever answers there may be the assistant itself."""

    async def scene(mode: str) -> Any:
        asked: list[str] = []
        answer = assistants.answers(True, asked)
        async with shared.connected(mode=mode, elicitation_callback=answer) as client:
            return (await client.call_tool(*DRAIN)).structured_content, asked

    for mode in assistants.MODES:
        done, asked = asyncio.run(scene(mode))
        assert done["confirmation"]["status"] == "pending"
        assert asked == []


@pytest.mark.parametrize("mode", assistants.MODES)
def test_another_credential_confirms_what_was_asked_over_http(
    world: assistants.World, mode: str
) -> None:
    world.filled()

    async def scene() -> None:
        async with world.connected(mode=mode) as client:
            wanted = {"action": DRAIN[0], "arguments": DRAIN[1]}
            asked = (await client.call_tool("request_confirmation", wanted)).structured_content
            assert asked["required"] is True
            first = (await client.call_tool(*DRAIN)).structured_content
            assert first["confirmation"] == asked["confirmation"]
            assert world_code() not in str(first)
            await asyncio.to_thread(world.confirm)
            again = (await client.call_tool("request_confirmation", wanted)).structured_content
            assert again["confirmation"]["status"] == "confirmed"
            done = (await client.call_tool(*DRAIN)).structured_content
            assert done["drain_result"]["drained"] == 3
            deleted = await client.call_tool("system_delete_instance_pool", {"id": "ci"})
            assert deleted.structured_content["confirmation"]["what"].startswith("delete pool ci")

    def world_code() -> str:
        return str(world.fleet.confirmations.list(AtClient(world).anna)[0].code)

    asyncio.run(scene())
    who = [(name.partition(" ")[0], action) for name, action, _ in world.audit()]
    assert ("admin-assistant", "pool.drain") in who
    assert ("admin", "confirmation.confirmed") in who


def test_a_call_that_needs_no_confirmation_says_so(shared: assistants.World) -> None:

    async def scene() -> None:
        async with shared.connected() as client:
            small = {"action": "system_acquire_pooled_instance", "arguments": {"pool_id": "ci"}}
            asked = (await client.call_tool("request_confirmation", small)).structured_content
            assert asked == {"required": False, "confirmation": None}
            never = await client.call_tool("request_confirmation", {"action": "hosts"})
            assert never.is_error
            assert "system_drain_instance_pool" in never.structured_content["error"]["why"]

    asyncio.run(scene())
    assert shared.get("/api/v1/pools/ci")["details"]["counts"]["claimed"] == 0


# --- /mcp


@pytest.mark.parametrize("mode", assistants.MODES)
@pytest.mark.parametrize(
    ("role", "name"),
    [("viewer, assistant", "NotAllowedError"), ("operator, assistant", "")],
)
def test_roles_are_those_of_the_api(
    world: assistants.World, mode: str, role: str, name: str
) -> None:
    world.filled()

    async def scene() -> None:
        async with world.connected(role, mode) as client:
            claim = await client.call_tool("system_acquire_pooled_instance", {"pool_id": "ci"})
            assert claim.is_error is bool(name)
            if name:
                assert claim.structured_content["error"]["name"] == name
            else:
                assert claim.structured_content["instance"]["status"] == "running"
            refused = await client.call_tool("system_drain_instance_pool", {"id": "ci"})
            assert refused.is_error
            assert "the role admin is required" in refused.structured_content["error"]["what"]
            listed = await client.call_tool("system_list_instance_pools", {})
            assert listed.structured_content["total"] == 1

    asyncio.run(scene())
    assert world.fleet.confirmations.list(AtClient(world).anna) == ()


MESSAGE = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:8416"}, 200),
        ({"Host": "[::1]:8416"}, 200),
        ({"Origin": "http://127.0.0.1:8416", "Host": "127.0.0.1:8416"}, 200),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "evil.example"}, 421),
        ({"Host": "evil.example", "Origin": "http://evil.example"}, 421),
    ],
)
def test_pages_of_other_sites_and_foreign_names_are_refused(
    shared: assistants.World, headers: dict[str, str], status: int
) -> None:
    sent = HEADERS | {"Host": "127.0.0.1"} | headers
    answer = shared.ask("POST", "/mcp", role="viewer", json=MESSAGE, headers=sent)
    assert answer.status_code == status, answer.text
    if status != 200:
        serverworld.problem(answer)


def test_a_token_is_required_and_only_messages_are_taken(shared: assistants.World) -> None:
    sent = HEADERS | {"Host": "127.0.0.1"}
    assert shared.ask("POST", "/mcp", json=MESSAGE, headers=sent).status_code == 401
    basic = {"Authorization": "Basic YTpi"}
    assert shared.ask("POST", "/mcp", json=MESSAGE, headers=sent | basic).status_code == 401
    assert shared.ask("GET", "/mcp", role="viewer", headers=sent).status_code == 405
    assert shared.ask("DELETE", "/mcp", role="viewer", headers=sent).status_code == 405
    large = MESSAGE | {"params": {"x": "y" * 70_000}}
    assert shared.ask("POST", "/mcp", role="viewer", json=large, headers=sent).status_code == 413


@pytest.mark.parametrize("version", ["", "2025-06-18", "2026-07-28", "\u00e4", "9"])
def test_a_hostile_message_is_refused(shared: assistants.World, version: str) -> None:
    call = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":%s}'
    headers = HEADERS | {"Host": "127.0.0.1"} | ({"MCP-Protocol-Version": version} if version else {})  # fmt: skip
    sent = {name: text.encode() for name, text in headers.items()}
    for body in (
        "", "[", "[]", "null", "5", '"x"', "[" * 20_000, '{"jsonrpc":"2.0"}', call % "5", call % "{}",
        call % '{"name": 5}', call % '{"name": "hosts", "arguments": []}', call % '{"name": "hosts", "arguments": {"limit": 1e400}}',
        call % '{"name": "\\ud800"}', call.replace("tools/call", "x" * 5_000) % "{}",
    ):  # fmt: skip
        answer = shared.ask("POST", "/mcp", role="viewer", content=body, headers=sent)
        assert answer.status_code < 500, (body[:80], answer.text)


@pytest.mark.parametrize("tool", ["start_investigation", "request_confirmation"])
def test_a_plan_is_read_only_for_a_role_that_may_start_it(
    shared: assistants.World, tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attack: a viewer's plan of 15 kB whose list is repeated by aliases took 13 s of CPU time each."""
    names = ",".join(["x"] * 2_000)
    plan = f"name: &a [{names}]\narms: [{', '.join(['{kind: hot, changes: *a}'] * 400)}]"
    arguments: dict[str, Any] = {"plan": plan}
    if tool == "request_confirmation":
        arguments = {"action": "start_investigation", "arguments": arguments}

    def call(role: str) -> str:
        params = {"name": tool, "arguments": arguments}
        sent = MESSAGE | {"method": "tools/call", "params": params}
        return str(shared.ask("POST", "/mcp", role=role, json=sent, headers=HEADERS | {"Host": "127.0.0.1"}).text)  # fmt: skip

    with monkeypatch.context() as patched:
        patched.setattr(plan_file, "parse", None)
        for _ in range(40):  # more than there are threads for changes
            assert "the role operator is required" in call("viewer")
    began = time.process_time()
    assert "aliases are not supported" in call("operator")
    assert time.process_time() - began < 2


def test_unknown_tools_prompts_and_resources_are_errors_of_the_protocol(
    shared: assistants.World,
) -> None:
    async def scene() -> None:
        async with shared.connected() as client:
            for ask in (
                client.call_tool("system_format_disk", {}),
                client.get_prompt("none"),
                client.get_prompt("burst", {"colour": "red"}),
                client.read_resource("overnight://nothing"),
                client.read_resource("file:///etc/passwd"),
                client.read_resource("overnight://plans/..%2f..%2fetc"),
            ):
                with pytest.raises(mcp.MCPError):
                    await ask

    asyncio.run(scene())
