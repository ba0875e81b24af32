"""The fifteen defects of the documented system, each with a test that overnight does not have it."""

from __future__ import annotations

import threading

import pytest
from poolworld import State, World

from overnight import pools
from overnight.pools import pool_errors, reaper


def test_01_one_failed_launch_keeps_the_rows_of_the_others(world: World) -> None:
    world.pool(target=4)

    def third_fails(order: pools.Order) -> None:
        if world.provider.launched == 2:
            raise pools.ProviderError("provider_quota_exceeded", "2 of 2", nothing_made=True)

    world.provider.on_launch = third_fails
    world.plane.replenish("ci")
    warming = world.members("ci", State.WARMING)
    assert {m.machine_id for m in warming} == set(world.provider.machines)
    assert len(warming) == 2
    assert world.reasons("member_errored") == ["provider_quota_exceeded"]


def test_01_a_provider_is_never_called_in_a_transaction(world: World) -> None:
    world.pool(target=2)
    other = world.another()

    def write(*_: object) -> None:
        # On SQLite this would wait for the writer, on PostgreSQL for the pool's lock.
        other.update("ci", labels={"n": str(len(world.provider.calls))})

    world.provider.on_launch = world.provider.on_terminate = write
    world.fill()
    [grant] = world.plane.acquire("ci")
    world.plane.give_back(grant.claim.id)
    world.plane.drain("ci")
    assert len(world.provider.calls) == 4


def test_02_overlapping_ticks_never_exceed_the_target(world: World) -> None:
    world.pool(target=4, max_size=5)
    planes = [world.another() for _ in range(4)]
    together = threading.Barrier(4)

    def tick(plane: object) -> None:
        together.wait()
        plane.replenish("ci")  # type: ignore[attr-defined]

    threads = [threading.Thread(target=tick, args=(plane,)) for plane in planes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(world.provider.machines) == 4
    world.check()


def test_03_no_lock_is_held_while_machines_end(world: World) -> None:
    world.pool(target=2)
    world.fill()
    waiting, go_on = threading.Event(), threading.Event()

    def slow(_: str) -> None:
        if not waiting.is_set():  # the first one hangs
            waiting.set()
            assert go_on.wait(10)

    world.provider.on_terminate = slow
    draining = threading.Thread(target=world.another().drain, args=("ci",))
    draining.start()
    assert waiting.wait(10)
    world.plane.update("ci", labels={"changed": "meanwhile"})
    world.pool("other", target=1)
    go_on.set()
    draining.join(10)
    assert world.members() == []


@pytest.mark.parametrize("state", ["drain", "fail"])
def test_04_a_failed_terminate_is_retried(world: World, state: str) -> None:
    world.pool(target=1)
    world.plane.replenish("ci")
    [member] = world.members()

    def refuse(_: str) -> None:
        raise pools.ProviderError("provider_error", "not now")

    world.provider.on_terminate = refuse
    if state == "drain":
        world.plane.drain("ci")
    else:
        world.boot(member.id, "failed", "module_pull_failed")
        world.plane.recycle("ci")
    assert len(world.provider.machines) == 1
    for wait in (300, 600, 1200, 2400):
        attempts = world.plane.member(member.id).attempts
        world.clock.forward(wait - 1)
        world.plane.recycle("ci")
        assert world.plane.member(member.id).attempts == attempts
        world.clock.forward(1)
        world.plane.recycle("ci")
    world.clock.forward(3600)
    for _ in range(3):
        world.plane.recycle("ci")
    assert world.kinds().count("terminate_failed") == 5
    assert world.kinds().count("member_abandoned") == 1  # loudly, once
    assert world.plane.member(member.id).gone_us is None
    # An operator's request tries again.
    world.provider.obey()
    assert world.plane.terminate(member.id).gone_us is not None
    assert world.provider.machines == {}


def test_05_drain_ends_warming_members(world: World) -> None:
    world.pool(target=3)
    world.plane.replenish("ci")
    assert world.plane.drain("ci")["drained"] == 3
    assert world.provider.machines == {}


def test_06_a_lower_target_shrinks_and_the_floor_is_kept(world: World) -> None:
    world.pool(target=4, min_size=2)
    world.fill()
    world.plane.update("ci", target_size=2)
    assert len(world.members()) == 2
    world.clock.forward(14400)
    world.beat_all()
    world.plane.recycle("ci")
    assert len(world.members("ci", State.READY)) == 2  # expired, but the floor keeps them
    with pytest.raises(pool_errors.BadSizeError):
        world.plane.update("ci", target_size=1)


def test_07_records_of_gone_members_do_not_block_delete(world: World) -> None:
    world.pool(target=2)
    world.fill()
    [grant] = world.plane.acquire("ci")
    world.plane.give_back(grant.claim.id)
    world.plane.drain("ci")
    world.plane.delete("ci")
    assert world.plane.list(archived=True) == ()
    assert world.plane.member(grant.member.id).gone_us is not None


@pytest.mark.parametrize("bad", ["abc", -1, True, 0, "0"])
def test_08_garbage_in_a_setting_is_refused_and_makes_nothing_stale(
    world: World, bad: object
) -> None:
    world.pool()
    world.fill()
    with pytest.raises(pool_errors.BadKnobError, match="ready_ttl_seconds"):
        world.plane.update("ci", ready_ttl_seconds=bad)
    assert world.plane.show("ci").pool.settings.ready_ttl_seconds == 14400
    world.plane.recycle("ci")
    assert len(world.members("ci", State.READY)) == 3


def test_09_paused_pools_are_recycled(world: World) -> None:
    world.pool(target=2)
    world.plane.replenish("ci")
    world.plane.update("ci", status="paused")
    world.clock.forward(1800)
    assert reaper.Reaper(world.plane).tick() == {}
    assert world.provider.machines == {}
    assert world.reasons("member_errored") == ["never_enrolled"] * 2


def test_10_a_claim_wakes_the_reaper(world: World) -> None:
    """Leases, the queue, batches and keys have tests of their own."""
    world.pool(target=1)
    world.fill()
    with world.plane.context.notifier.listen() as wait:
        while wait(0.1):  # earlier notifications
            pass
        world.another().acquire("ci")
        assert wait(10)


def test_11_undeclared_parameters_are_errors(world: World) -> None:
    world.pool()
    for call in (world.plane.update, world.plane.acquire):
        with pytest.raises(pool_errors.UnknownParameterError, match="target_sise"):
            call("ci", target_sise=5)


def test_12_a_new_template_replaces_the_members(world: World) -> None:
    world.pool(target=2)
    old = {m.id for m in world.fill()}
    world.plane.update("ci", template="newer")
    for _ in range(3):
        world.clock.forward(10)
        reaper.Reaper(world.plane).tick()
        world.boot_all()
    reaper.Reaper(world.plane).tick()
    now = world.members()
    assert len(now) == 2
    assert {m.id for m in now}.isdisjoint(old)
    assert len(world.provider.machines) == 2
    assert world.reasons("member_draining") == ["template_changed"] * 2


def test_13_pruning_keeps_the_last_pointer_to_a_machine(world: World) -> None:
    world.pool(target=1)
    [member] = world.fill()

    def refuse(_: str) -> None:
        raise pools.ProviderError("provider_error", "never")

    world.provider.on_terminate = refuse
    world.plane.drain("ci")
    for _ in range(10):
        world.clock.forward(7 * 86400)
        world.plane.recycle("ci")
    assert world.plane.member(member.id).abandoned_us is not None
    with pytest.raises(pool_errors.PoolHasMembersError):
        world.plane.delete("ci")
    # And the other way: a machine whose row is gone is found and ended.
    world.provider.obey()
    world.plane.terminate(member.id, forget=True)
    assert len(world.provider.machines) == 1
    assert world.plane.sweep("scripted").orphans == 1
    assert world.provider.machines == {}
    world.clock.forward(8 * 86400)
    world.plane.recycle("ci")
    with pytest.raises(pool_errors.MemberNotFoundError):
        world.plane.member(member.id)


def test_14_every_transition_is_an_event_with_its_reason(world: World) -> None:
    world.pool(target=1)
    world.fill()
    [grant] = world.plane.acquire("ci", acquired_by="job")
    world.plane.give_back(grant.claim.id)
    world.provider.refuse("provider_quota_exceeded")
    world.plane.replenish("ci")
    events = [(e.kind, e.reason) for e in reversed(world.plane.show("ci").events)]
    assert events == [
        ("pool_created", ""),
        ("member_warming", "replenish"),
        ("member_launched", ""),
        ("member_enrolled", ""),
        ("member_ready", "phase_ready"),
        ("member_claimed", "claimed"),
        ("claim_ended", "returned"),
        ("member_draining", "returned"),
        ("member_gone", "returned"),
        ("member_warming", "replenish"),
        ("member_errored", "provider_quota_exceeded"),
        ("member_gone", "provider_quota_exceeded"),
    ]


def test_15_the_reaper_works_on_every_pool_and_records_failures(world: World) -> None:
    """Promotion has a caller (test_enrolment), no pool is skipped, no result is ignored."""
    for name in ("a", "b", "c"):
        world.pool(name, target=1)

    def only_b_fails(order: pools.Order) -> None:
        if order.pool == "b":
            raise RuntimeError("a bug in the provider")

    world.provider.on_launch = only_b_fails
    reaper.Reaper(world.plane).tick()
    assert [d.counts.warming for d in world.plane.list()] == [1, 0, 1]
    assert world.reasons("member_errored", "b") == ["provider_error"]
    assert "RuntimeError" in next(
        e.detail for e in world.plane.show("b").events if e.kind == "member_errored"
    )


def test_15_a_refused_write_is_not_committed(world: World) -> None:
    before = world.pool()
    with pytest.raises(pool_errors.BadSizeError):
        world.plane.update("ci", template="newer", target_size=99)
    assert world.plane.show("ci").pool == before
    assert world.kinds() == ["pool_created"]
