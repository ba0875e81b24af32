"""Providers that fail, hang, give wrong answers or are slow; and what the sweep repairs."""

from __future__ import annotations

import contextlib
import dataclasses
import threading

import noise
import pytest
from poolworld import S, State, World

from overnight import pools
from overnight.pools import pool_errors, reaper


def test_failures_back_off_and_open_the_breaker(world: World) -> None:
    world.pool(target=3)
    world.provider.refuse("provider_quota_exceeded")
    a_reaper = reaper.Reaper(world.plane)
    for _ in range(200):
        a_reaper.tick()
        world.clock.forward(5)
    # Not two hundred: 10 + 20 + 40 + 80 s between five, then the breaker.
    assert len(world.provider.calls) == 5
    pool = world.plane.show("ci").pool
    assert pool.breaker_opened_us is not None
    assert pool.last_failure == "provider_quota_exceeded"
    assert world.reasons("breaker_opened") == ["provider_quota_exceeded"]
    with pytest.raises(pool_errors.NoReadyMembersError) as caught:
        world.plane.acquire("ci")
    assert "breaker is open: provider_quota_exceeded" in caught.value.why


def test_a_trial_that_comes_up_closes_the_breaker(world: World) -> None:
    world.pool(target=3, breaker_failures=1)
    world.provider.refuse("provider_quota_exceeded")
    world.plane.replenish("ci")
    world.provider.obey()
    world.clock.forward(1799)
    assert world.plane.replenish("ci") == 0
    world.clock.forward(1)
    assert world.plane.replenish("ci") == 1
    assert world.reasons("member_warming")[-1] == "breaker_trial"
    assert world.plane.replenish("ci") == 0
    world.boot_all()
    assert world.reasons("breaker_closed") == ["member_ready"]
    assert world.plane.replenish("ci") == 2


def test_a_failed_trial_keeps_the_breaker_open_with_one_event(world: World) -> None:
    world.pool(target=3, breaker_failures=1)
    world.provider.refuse("provider_quota_exceeded")
    for _ in range(3):
        world.plane.replenish("ci")
        world.clock.forward(1800)
    assert len(world.provider.calls) == 3
    assert world.kinds().count("breaker_opened") == 1


def test_an_operator_closes_the_breaker(world: World) -> None:
    world.pool(target=2, breaker_failures=1, breaker_retry_seconds=0)
    world.provider.refuse("provider_quota_exceeded")
    world.plane.replenish("ci")
    world.provider.obey()
    world.clock.forward(10**6)
    assert world.plane.replenish("ci") == 0
    world.plane.update("ci", close_breaker=True)
    assert world.reasons("breaker_closed") == ["operator"]
    assert world.plane.replenish("ci") == 2


def test_members_that_never_come_up_count_as_failures(world: World) -> None:
    world.pool(target=2, warming_timeout_seconds=60)
    world.plane.replenish("ci")
    world.clock.forward(60)
    world.plane.recycle("ci")
    assert world.plane.show("ci").pool.failures == 2
    assert world.provider.machines == {}


def test_a_provider_that_hangs_delays_no_other_pool(world: World) -> None:
    world.pool("hangs", target=1)
    world.pool("works", target=1)
    stop, let_go = threading.Event(), threading.Event()

    def hang(order: pools.Order) -> None:
        if order.pool == "hangs":
            let_go.wait(20)

    world.provider.on_launch = hang
    a_reaper = threading.Thread(
        target=reaper.Reaper(world.plane, interval=0.05).run, args=(stop,), daemon=True
    )
    a_reaper.start()
    for want in (1, 2, 3):
        # A row exists before its machine does, and only a machine can boot.
        _until(lambda: any(m.machine_id for m in world.members("works", State.WARMING)))
        world.boot_all()
        world.another().acquire("works")
        _until(lambda want=want: world.plane.show("works").counts.claimed == want)
    assert world.members("hangs")[0].machine_id is None
    let_go.set()
    _until(lambda: world.members("hangs")[0].machine_id is not None)
    stop.set()
    a_reaper.join(10)
    assert not a_reaper.is_alive()


def _until(true: object) -> None:
    import time

    deadline = time.monotonic() + noise.HANG_SECONDS
    while not true():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_launch_that_times_out_fails_and_its_machine_is_found(world: World) -> None:
    world.pool(target=1, provider_timeout_seconds=1)
    let_go, done = threading.Event(), threading.Event()

    def wait(_: pools.Order) -> None:
        let_go.wait(20)

    world.provider.on_launch = wait
    world.provider.after_launch = lambda _: done.set()
    assert world.plane.replenish("ci") == 0
    assert world.reasons("member_errored") == ["provider_timeout"]
    let_go.set()
    assert done.wait(10)
    assert len(world.provider.machines) == 1  # it was launched after all
    world.settle()
    world.check_settled()


@pytest.mark.parametrize("lie", [None, "i-1", 5, pools.Machine(id="", member_id="x"), pools.Machine(id="i-9", member_id="somebody")])  # fmt: skip
def test_a_wrong_answer_to_a_launch_is_an_error(world: World, lie: object) -> None:
    world.pool(target=1)
    world.provider.on_launch = lambda _: "nothing" if lie is None else lie
    assert world.plane.replenish("ci") == 0
    assert world.reasons("member_errored") == ["provider_lied"]
    world.check()


def test_a_machine_that_does_not_exist_is_not_capacity(world: World) -> None:
    world.pool(target=1)
    world.provider.on_launch = lambda order: pools.Machine(id="i-air", member_id=order.member_id)
    world.plane.replenish("ci")
    world.provider.obey()
    assert world.plane.replenish("ci") == 0
    assert world.plane.sweep("scripted").missing == 1
    assert world.plane.replenish("ci") == 1  # at once
    assert world.plane.sweep("scripted").gone == 1
    assert world.plane.show("ci").pool.failures == 1
    assert world.reasons("member_gone") == ["machine_gone"]


def test_a_failed_or_wrong_inventory_ends_nothing(world: World) -> None:
    world.pool(target=2)
    world.fill()
    [grant] = world.plane.acquire("ci")

    def fail() -> None:
        raise pools.ProviderError("provider_error", "throttled")

    for trouble in (fail, lambda: "nothing", lambda: [None]):
        world.provider.on_inventory = trouble
        with pytest.raises(pools.ProviderError):
            world.plane.sweep("scripted")
    assert world.all_events().count("inventory_failed") == 3
    # One empty inventory: claimed members stay, and beating members count again later.
    world.provider.on_inventory = list
    assert world.plane.sweep("scripted").missing == 2
    with pytest.raises(pool_errors.NoReadyMembersError):
        world.plane.acquire("ci")
    world.clock.forward(10)
    world.beat_all()
    assert world.plane.sweep("scripted").gone == 0
    world.provider.obey()
    world.plane.sweep("scripted")
    assert world.plane.show("ci").counts.claimed == 1
    assert len(world.provider.machines) == 2
    assert world.plane.acquire("ci")
    assert grant.member.machine_id in world.provider.machines


def test_a_claimed_machine_that_is_gone_ends_its_claim(world: World) -> None:
    world.pool(target=1)
    world.fill()
    [grant] = world.plane.acquire("ci")
    world.provider.machines.clear()
    world.plane.sweep("scripted")
    world.clock.forward(60)
    world.plane.sweep("scripted")
    assert world.plane.show("ci").counts.claimed == 1  # wait until it is certain
    world.clock.forward(180)
    assert world.plane.sweep("scripted").gone == 1
    [claim] = world.plane.show("ci").claims
    assert (claim.id, claim.release_reason) == (grant.claim.id, "machine_gone")
    world.check()


def test_a_ready_machine_that_is_gone_is_not_claimed(world: World) -> None:
    world.pool(target=1)
    world.fill()
    world.provider.machines.clear()
    world.plane.sweep("scripted")
    with pytest.raises(pool_errors.NoReadyMembersError):
        world.plane.acquire("ci")
    assert world.plane.replenish("ci") == 1


def test_machines_of_others_are_never_touched(world: World) -> None:
    world.pool(target=1)
    world.fill()
    world.provider.machines["i-theirs"] = pools.Machine(id="i-theirs", member_id="m-theirs")
    world.provider.owners["i-theirs"] = "another-control-plane"
    assert world.plane.sweep("scripted").orphans == 0
    assert "i-theirs" in world.provider.machines


def test_an_orphan_that_cannot_be_terminated_is_counted(world: World) -> None:
    world.pool(target=1)
    world.fill()
    world.provider.machines["i-lost"] = pools.Machine(id="i-lost", member_id="m-none")
    world.provider.owners["i-lost"] = world.plane.context.owner

    def refuse(_: str) -> None:
        raise pools.ProviderError("provider_error", "no")

    world.provider.on_terminate = refuse
    result = world.plane.sweep("scripted")
    assert (result.orphans, result.orphans_left) == (1, 1)
    world.provider.obey()
    assert world.plane.sweep("scripted").orphans_left == 0
    assert "i-lost" not in world.provider.machines


def test_a_new_machine_may_be_missing_from_a_slow_inventory(world: World) -> None:
    world.provider.inventory_lag_seconds = 60.0  # type: ignore[misc]
    world.pool(target=1)
    world.fill()
    world.provider.on_inventory = list
    assert world.plane.sweep("scripted").missing == 0
    world.clock.forward(60)
    assert world.plane.sweep("scripted").missing == 1
    assert world.clock.now_us % S == 0


@pytest.mark.parametrize("knows", ["the launcher", "a later sweep"])
def test_a_machine_that_a_sweep_found_too_early_gets_its_address(world: World, knows: str) -> None:
    """A machine of nspawn has one when its PID 1 runs, a moment after its first process."""
    world.pool(target=1)

    def sweep_early(_: object) -> None:
        [machine] = world.provider.machines.values()
        early = dataclasses.replace(machine, address="")
        world.provider.on_inventory = lambda: [early]
        assert world.plane.sweep("scripted").adopted == 1
        world.provider.on_inventory = lambda: None

    def killed(step: str) -> None:
        if step == "launched: begin" and knows == "a later sweep":
            raise KeyboardInterrupt

    world.provider.after_launch = sweep_early
    with contextlib.suppress(KeyboardInterrupt):
        world.another(killed).replenish("ci")
    world.plane.sweep("scripted")
    [member] = world.members()
    assert (member.machine_id, member.address) == ("i-0001", "10.0.0.1")
    assert world.kinds().count("member_launched") == 1


def test_a_machine_whose_launcher_was_killed_is_adopted(world: World) -> None:
    world.pool(target=1)

    def killed(step: str) -> None:
        if step == "launched: begin":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        world.another(killed).replenish("ci")
    [machine] = world.provider.machines
    [intent] = world.members()
    assert intent.machine_id is None
    with pytest.raises(pool_errors.TooEarlyError):
        world.boot(intent.id)
    assert world.plane.sweep("scripted").adopted == 1
    world.boot(intent.id)
    assert [(m.machine_id, m.state) for m in world.members()] == [(machine, State.READY)]
    assert world.provider.launched == 1


def test_a_machine_left_by_a_deleted_pool_is_ended(world: World) -> None:
    world.pool(target=1)
    [member] = world.fill()
    world.plane.update("ci", status="paused")
    world.plane.terminate(member.id, forget=True)
    world.plane.delete("ci")
    assert len(world.provider.machines) == 1
    assert reaper.Reaper(world.plane).tick() == {}
    assert world.provider.machines == {}
