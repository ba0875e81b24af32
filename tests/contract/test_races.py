"""Two control planes at once: one works while another is between two of its steps."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from overnight import pools
from overnight.model.pool import Request
from overnight.pools import control, pool_errors
from overnight.pools.sql import member_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from poolworld import World


def interrupted(world: World, step: str, meanwhile: Callable[[], object]) -> control.ControlPlane:
    """Return a control plane; before its first `step`, `meanwhile` runs on others."""
    pending = [meanwhile]

    def steps(name: str) -> None:
        if name == step and pending:
            pending.pop()()

    return world.another(steps)


def refuse(_: str) -> None:
    raise pools.ProviderError("provider_error", "not now")


def lost_launch(world: World) -> None:
    """Launch one member whose launcher is killed before it records the machine."""

    def killed() -> None:
        raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        interrupted(world, "launched: begin", killed).replenish("ci")


# Members that end


@pytest.mark.parametrize("fails", [False, True], ids=["gone", "refused"])
def test_one_server_ends_a_member(fast_world: World, fails: bool) -> None:
    world = fast_world
    world.pool(target=1)
    [member] = world.fill()
    if fails:
        world.provider.on_terminate = refuse
    other = world.another()
    interrupted(world, "terminate: begin", lambda: other.terminate_due("ci")).drain("ci")
    assert world.provider.calls.count(f"terminate {member.machine_id}") == 1
    assert world.kinds().count("member_gone") == (not fails)
    assert world.plane.member(member.id).attempts == 1
    # One that is gone is not abandoned either: nobody need search for its machine.
    with world.plane.context.database.write("abandon") as connection:
        assert member_rows.set_abandoned(connection, member.id, world.clock.now_us) is fails


def test_a_member_that_was_just_cordoned_is_not_ended(fast_world: World) -> None:
    world = fast_world
    world.pool(target=1)
    world.fill()
    [grant] = world.plane.acquire("ci")
    member_id = grant.member.id
    returns = interrupted(
        world, "terminate: begin", lambda: world.plane.set_cordoned(member_id, cordoned=True)
    )
    assert returns.give_back(grant.claim.id).gone_us is None
    assert grant.member.machine_id in world.provider.machines
    world.plane.set_cordoned(member_id, cordoned=False)
    world.plane.recycle("ci")
    assert world.plane.member(member_id).gone_us is not None


def test_a_member_that_just_got_its_machine_is_ended_with_it(fast_world: World) -> None:
    world = fast_world
    world.pool(target=1, provider_timeout_seconds=120)
    lost_launch(world)
    world.clock.forward(119)
    world.plane.drain("ci")  # next attempt in a second: its launch may still be running
    world.clock.forward(1)

    def adopt() -> None:
        world.plane.sweep("scripted")
        world.provider.on_inventory = list  # slow to list a new machine

    interrupted(world, "terminate: begin", adopt).terminate_due("ci")
    assert world.members() != []
    world.plane.terminate_due("ci")
    assert (world.members(), world.provider.machines) == ([], {})


def test_launcher_and_sweep_record_a_machine_once(fast_world: World) -> None:
    world = fast_world
    world.pool(target=1)

    def adopted_and_ending() -> None:
        assert world.plane.sweep("scripted").adopted == 1
        world.provider.on_terminate = refuse
        world.plane.drain("ci")

    assert interrupted(world, "launched: begin", adopted_and_ending).replenish("ci") == 1
    assert world.kinds().count("member_launched") == 1
    assert world.provider.calls.count("terminate i-0001") == 1  # by the drain alone
    # Its second attempt waits as long as it would have.
    world.clock.forward(299)
    world.plane.terminate_due("ci")
    assert world.kinds().count("terminate_failed") == 1
    world.provider.obey()
    world.clock.forward(1)
    assert world.plane.terminate_due("ci") == 1


# The sweep: rows, inventory, rows


def test_a_machine_launched_after_the_inventory_is_not_missing(fast_world: World) -> None:
    world = fast_world
    world.pool(target=1)

    def list_then_launch() -> list[pools.Machine]:
        listed = list(world.provider.machines.values())
        world.another().replenish("ci")
        return listed

    world.provider.on_inventory = list_then_launch
    result = world.plane.sweep("scripted")
    assert (result.machines, result.missing, len(world.provider.machines)) == (0, 0, 1)


def test_a_machine_launched_before_the_inventory_is_not_an_orphan(fast_world: World) -> None:
    world = fast_world
    world.pool(target=1)
    world.provider.on_inventory = lambda: world.another().replenish("ci") and None
    result = world.plane.sweep("scripted")
    assert (result.machines, result.orphans, len(world.provider.machines)) == (1, 0, 1)


@pytest.mark.parametrize("ends", ["listed", "not listed", "missing before"])
def test_a_member_that_ends_during_a_sweep_is_neither_orphan_nor_missing(
    fast_world: World, ends: str
) -> None:
    world = fast_world
    world.pool("ends", target=1)
    world.fill("ends")
    if ends == "missing before":
        world.provider.on_inventory = list
        world.plane.sweep("scripted")
    missed = world.all_events().count("member_missing")
    world.pool(target=1)
    [lost] = world.fill()
    del world.provider.machines[str(lost.machine_id)]

    def end() -> list[pools.Machine] | None:
        machines = list(world.provider.machines.values())
        world.provider.obey()
        world.plane.drain("ends")
        world.plane.delete("ends")
        return machines if ends == "listed" else None

    world.provider.on_inventory = end
    result = world.another().sweep("scripted")
    assert (result.orphans, result.missing) == (0, 1)
    assert world.all_events().count("member_missing") == missed + 1
    assert world.reasons("member_missing") == ["not_in_inventory"]  # the sweep has gone on
    assert "orphan_found" not in world.all_events()


def test_two_sweeps_at_once_miss_a_machine_once(fast_world: World) -> None:
    world = fast_world
    world.pool(target=1)
    world.fill()
    world.provider.machines.clear()
    sweep = interrupted(world, "mark missing: begin", lambda: world.plane.sweep("scripted")).sweep
    assert sweep("scripted").missing == 0
    assert world.kinds().count("member_missing") == 1


@pytest.mark.parametrize("how", ["reported", "listed"])
def test_a_machine_that_is_back_is_not_given_up(fast_world: World, how: str) -> None:
    world = fast_world
    world.pool(target=1)
    [member] = world.fill()
    world.provider.on_inventory = list
    world.plane.sweep("scripted")
    world.clock.forward(1)

    def back() -> None:
        if how == "reported":
            world.beat_all()
        else:
            world.provider.obey()
            world.plane.sweep("scripted")

    assert interrupted(world, "machine gone: begin", back).sweep("scripted").gone == 0
    world.plane.sweep("scripted")
    assert world.plane.member(member.id).missing_us is None
    assert world.plane.acquire("ci")


# Callers and sizes


def test_a_caller_leaves_the_queue_once(fast_world: World) -> None:
    world = fast_world
    world.pool(target=0)
    waiter, pool = world.plane._claims._enter_queue("ci", Request(), world.clock.now_us)
    world.clock.forward(151)
    leaves = interrupted(world, "leave the queue: begin", lambda: world.plane.recycle("ci"))
    leaves._claims._leave_unserved(pool, waiter)
    assert world.reasons("waiter_left") == ["unseen"]
    assert world.kinds().count("claim_missed") == 1


@pytest.mark.parametrize(
    ("change", "size"),
    [
        (lambda plane: plane.update("ci", status="paused"), None),
        (lambda plane: plane.autoscale_off("ci"), None),
        (lambda plane: plane.autoscale("ci", max_size=2), None),
        (lambda plane: plane.update("ci", max_size=4), 4),
    ],
    ids=["paused", "switched off", "another policy", "a lower maximum"],
)
def test_a_decision_on_the_size_is_void_when_the_pool_has_changed(
    fast_world: World, change: Callable[[control.ControlPlane], object], size: int | None
) -> None:
    world = fast_world
    world.pool(target=1, max_size=40)
    world.plane.autoscale("ci", warm_up_seconds=90)
    world.clock.forward(1200)
    with contextlib.suppress(pool_errors.NoReadyMembersError):
        world.plane.acquire("ci", count=40)
    decision = interrupted(world, "autoscale: begin", lambda: change(world.plane)).scale("ci")
    assert (decision and decision.size) == size
    assert world.plane.show("ci").pool.target_size == (size or 1)
