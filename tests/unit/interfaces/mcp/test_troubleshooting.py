"""The runbook's troubleshooting table: each symptom is produced, and the assistant is led from it to the fix."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import assistants
import mcp
import pytest
from poolworld import State, World

from overnight import pools
from overnight.app import concierge
from overnight.model.pool import Reason
from overnight.pools import pool_errors, reaper

Ask = Callable[..., Awaitable[Any]]
Scene = Callable[[World, Ask], Awaitable[None]]


class Backend(concierge.LocalBackend):
    """The database of a world, with its provider and its clock; the person at the client agrees to everything."""

    def __init__(self, home: pathlib.Path, world: World) -> None:
        super().__init__(home, world.url)
        self._pools.__dict__["plane"] = world.plane
        world.plane.set("endpoint", "http://127.0.0.1:8417")

    def close(self) -> None:
        self._person.rows._control.database.close()


@pytest.fixture
def world(tmp_path: pathlib.Path) -> Iterator[World]:
    made = World(f"sqlite:///{tmp_path / 'pools.db'}")
    yield made
    made.close()


def converse(tmp_path: pathlib.Path, world: World, scene: Scene) -> None:
    """Run a conversation with the SDK's client, whose person agrees to what they are asked."""

    async def run() -> None:
        with contextlib.closing(Backend(tmp_path, world)) as backend:
            agree = assistants.answers(True, [])
            async with mcp.Client(assistants.serve(backend), elicitation_callback=agree) as client:

                async def ask(tool: str, error: str = "", /, **arguments: Any) -> Any:
                    result = await client.call_tool(tool, arguments)
                    found = result.structured_content
                    name = found["error"]["name"] if result.is_error else ""
                    assert name == error, found
                    return found["error"] if error else found

                await scene(world, ask)

    asyncio.run(run())


def tick(world: World) -> None:
    reaper.Reaper(world.plane).tick()


async def reasons(ask: Ask) -> set[str]:
    return {event["reason"] for event in (await ask("recent_events", pool_id="ci"))["events"]}


async def no_members(world: World, ask: Ask) -> None:
    """Pool stuck at 0 members despite target_size: 5."""
    world.provider.refuse(Reason.QUOTA)
    world.pool(target=5, breaker_failures=2)
    for _ in range(3):
        tick(world)
        world.clock.forward(60)
    shown = await ask("system_get_instance_pool", id="ci")
    assert shown["instance_pool"]["ready_count"] == 0
    assert shown["members"] == []
    assert "breaker_open" in {problem["name"] for problem in shown["problems"]}
    assert "provider_quota_exceeded" in await reasons(ask)
    assert (await ask("attribute_failure", id="ci"))["cause"] == "quota_exhausted"
    world.provider.obey()
    await ask("system_update_instance_pool", id="ci", close_breaker=True)
    assert await ask("system_replenish_instance_pool", id="ci") == {"launched": 5}


async def missing_module(world: World, ask: Ask) -> None:
    """The template references a missing module version."""
    world.pool(target=1)
    tick(world)
    [member] = world.members()
    world.boot(member.id, "failed", "module_pull_failed", assistants.POISON)
    assert "module_pull_failed" in await reasons(ask)
    explained = await ask("attribute_failure", id=member.id)
    assert (explained["subject"], explained["cause"]) == ("member", "template_missing")
    assistants.check_marked(explained)


async def stuck_warming(world: World, ask: Ask) -> None:
    """Members stuck warming > 10 min."""
    world.pool(target=1, bootstrap_token_seconds=900)
    tick(world)
    world.clock.forward(700)
    shown = await ask("system_get_instance_pool", id="ci")
    assert shown["problems"][0]["name"] in ("slow_warming", "reaper_not_running")
    [member] = shown["members"]
    assert (await ask("attribute_failure", id=member["instance_id"]))["cause"] == "bootstrap_failed"
    world.clock.forward(300)
    assert (await ask("attribute_failure", id=member["instance_id"]))["cause"] == "token_expired"
    cancelled = await ask("system_cancel_task", id=member["task_id"])
    assert cancelled["instance"]["status"] in ("terminating", "terminated")
    tick(world)
    world.boot_all()
    assert (await ask("system_get_instance_pool", id="ci"))["instance_pool"]["ready_count"] == 1


async def none_ready(world: World, ask: Ask) -> None:
    """NoReadyMembersError despite 5 members in the dashboard."""
    world.pool(target=5)
    tick(world)
    error = await ask("system_acquire_pooled_instance", "NoReadyMembersError", pool_id="ci")
    assert "target 5, ready 0, warming 5" in error["what"]
    assert error["next_tool"] == "attribute_failure"
    missed = await ask("attribute_failure", id=error["todo"].split()[-1].strip("`"))
    assert (missed["subject"], missed["cause"]) == ("claim", "still_warming")
    assert "0 ready, 5 warming" in missed["summary"]
    explained = await ask("attribute_failure", id="ci")
    assert explained["cause"] == "still_warming"
    world.boot_all()
    claimed = await ask("system_acquire_pooled_instance", pool_id="ci", acquired_by="ci-job-12345")
    assert claimed["instance"]["pool_state"] == "claimed"
    assert claimed["claim_id"].startswith("c-")


async def stalled_teardown(world: World, ask: Ask) -> None:
    """Pool stuck draining: the provider does not terminate a machine."""

    def refuse(_: object) -> None:
        raise pools.ProviderError(Reason.ERROR, assistants.POISON)

    world.pool(target=1)
    world.fill()
    world.provider.on_terminate = refuse
    drained = await ask("system_drain_instance_pool", id="ci")
    assert drained["drain_result"] == {"drained": 1, "claimed_remaining": 0}
    error = await ask("system_delete_instance_pool", "PoolHasMembersError", id="ci")
    assert "pool ci still has 1 member — drain first via system_drain_instance_pool" in error["what"]  # fmt: skip
    tick(world)
    explained = await ask("attribute_failure", id="ci")
    assert explained["cause"] == "teardown_stalled"
    assistants.check_marked(explained)
    [member] = (await ask("system_get_instance_pool", id="ci"))["members"]
    assert member["task_id"] == f"{member['instance_id']}:terminate"
    await ask("system_cancel_task", id=member["task_id"])
    names = (await ask("system_get_instance_pool", id="ci"))["problems"]
    assert "abandoned" in {problem["name"] for problem in names}
    world.provider.obey()
    await ask("system_terminate_instance", id=member["instance_id"])
    assert await ask("system_delete_instance_pool", id="ci") == {"deleted": 1}


async def claims_remain(world: World, ask: Ask) -> None:
    """Pool stuck draining: claimed members still run."""
    world.pool(target=1)
    world.fill()
    claimed = await ask("system_acquire_pooled_instance", pool_id="ci")
    drained = await ask("system_drain_instance_pool", id="ci")
    assert drained["drain_result"] == {"drained": 0, "claimed_remaining": 1}
    tick(world)
    assert (await ask("attribute_failure", id="ci"))["cause"] == "claims_running"
    instance = claimed["instance"]["id"]
    await ask("system_return_pooled_instance", pool_id="ci", instance_id=instance)
    assert (await ask("system_get_instance", id=instance))["instance"]["status"] == "terminated"
    assert await ask("system_delete_instance_pool", id="ci") == {"deleted": 1}


async def no_reaper(world: World, ask: Ask) -> None:
    """A target_size increase does not replenish."""
    world.pool(target=1)
    tick(world)
    world.boot_all()
    world.clock.forward(200)
    world.beat_all()
    await ask("system_update_instance_pool", id="ci", target_size=3)
    shown = await ask("system_get_instance_pool", id="ci")
    assert shown["instance_pool"]["deficit"] == 2
    assert shown["problems"][0]["name"] == "reaper_not_running"
    assert (await ask("attribute_failure", id="ci"))["cause"] == "reaper_not_running"
    assert await ask("system_replenish_instance_pool", id="ci") == {"launched": 2}


async def claimed_too_fast(world: World, ask: Ask) -> None:
    """Members continuously cycle (warm, claim, terminate, repeat)."""
    world.pool(target=1, max_size=50)
    world.fill()
    tick(world)
    for wait in (31, 17, 44, 8, 29, 52, 12, 38, 23, 41):
        world.clock.forward(wait)
        world.beat_all()
        with contextlib.suppress(pool_errors.NoReadyMembersError):
            world.plane.acquire("ci", lease_seconds=5)
            tick(world)
    world.boot_all()
    tick(world)
    assert (await ask("attribute_failure", id="ci"))["cause"] == "claims_too_fast"
    size = await ask("pool_size", claims_per_minute=2, warm_up_seconds=90, cost_per_host_hour=0.4)
    assert size["target_size"] > size["runbook_target_size"] > 1
    changed = await ask("system_update_instance_pool", id="ci", target_size=size["target_size"])
    assert changed["instance_pool"]["target_size"] == size["target_size"]


async def oscillates(world: World, ask: Ask) -> None:
    """The pool's claim metric oscillates."""
    world.pool(target=2, max_size=60)
    world.fill()
    for _ in range(6):
        world.clock.forward(1800)
        world.beat_all()
        tick(world)
        for _ in range(8):
            with contextlib.suppress(pool_errors.NoReadyMembersError):
                world.plane.acquire("ci", lease_seconds=5)
        tick(world)
        world.boot_all()
    world.clock.forward(60)
    world.beat_all()
    tick(world)
    explained = await ask("attribute_failure", id="ci")
    assert explained["cause"] == "size_too_tight"
    assert "--target" in explained["todo"]


SCENES = (
    no_members, missing_module, stuck_warming, none_ready, stalled_teardown, claims_remain, no_reaper,
    claimed_too_fast, oscillates,
)  # fmt: skip


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_a_row_of_the_table(tmp_path: pathlib.Path, world: World, scene: Scene) -> None:
    converse(tmp_path, world, scene)


def test_what_is_recycled_and_listed(tmp_path: pathlib.Path, world: World) -> None:
    async def stale(world: World, ask: Ask) -> None:
        world.pool(target=1, ready_ttl_seconds=60)
        world.fill()
        world.clock.forward(100)
        world.beat_all()
        assert (await ask("system_recycle_pool", id="ci"))["changed"] >= 1
        assert world.members("ci", State.READY) == []
        listed = await ask("system_list_instance_pools")
        assert [pool["name"] for pool in listed["instance_pools"]] == ["ci"]
        assert listed["instance_pools"][0]["metadata"]["ready_ttl_seconds"] == 60

    converse(tmp_path, world, stale)
