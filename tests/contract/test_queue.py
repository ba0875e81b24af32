"""The queue of waiting callers: by priority and age, without overtaking."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import noise
import pytest
import sqlalchemy as sa
from poolworld import START

from overnight.model.pool import Request, Waiter
from overnight.pools import pool_errors
from overnight.pools.sql import schema, waiter_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from poolworld import World


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + noise.HANG_SECONDS
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class Waiting:
    """An acquire in a second thread."""

    def __init__(self, world: World, name: str, **request_fields: object) -> None:
        self.name = name
        self.answer: object = None
        before = len(world.plane.show("ci").waiters)
        self._thread = threading.Thread(
            target=self._run, args=(world.another(), request_fields), daemon=True
        )
        self._thread.start()
        until(lambda: len(world.plane.show("ci").waiters) > before)

    def _run(self, plane: object, request_fields: dict[str, object]) -> None:
        try:
            self.answer = plane.acquire(  # type: ignore[attr-defined]
                "ci", acquired_by=self.name, **{"wait_seconds": 20.0} | request_fields
            )
        except pool_errors.PoolError as error:
            self.answer = error

    def result(self) -> object:
        self._thread.join(20)
        return self.answer


def served(world: World) -> list[str]:
    return [c.acquired_by for c in reversed(world.plane.show("ci").claims)]


def add_member(world: World) -> None:
    """Bring up one more member, and wait until a caller gets it."""
    before = world.plane.show("ci").counts.claimed
    waiting = world.plane.show("ci").counts.waiting
    world.plane.update("ci", max_size=world.plane.show("ci").counts.members + 1)
    world.plane.replenish("ci")
    world.clock.forward(0.001)
    world.boot_all()
    until(lambda: world.plane.show("ci").counts.claimed == before + 1)
    until(lambda: world.plane.show("ci").counts.waiting == waiting - 1)


def test_callers_are_served_by_priority_then_by_age(world: World) -> None:
    world.pool(target=0, max_size=0)
    # No request may exceed what the pool can hold.
    world.plane.update("ci", max_size=9)
    world.plane.update("ci", max_size=9, target_size=0, launch_backoff_seconds=0)
    world.provider.refuse("provider_quota_exceeded")
    waiting = []
    for name, priority in (("low", 0), ("lower", -5), ("high", 5), ("high-2", 5), ("low-2", 0)):
        waiting.append(Waiting(world, name, priority=priority))
        world.clock.forward(0.001)
    assert world.plane.show("ci").counts.waiting == 5
    world.provider.obey()
    for _ in range(5):
        add_member(world)
    order = sorted(world.plane.show("ci").claims, key=lambda c: c.acquired_us)
    assert [c.acquired_by for c in order] == ["high", "high-2", "low", "low-2", "lower"]
    assert all(isinstance(caller.result(), tuple) for caller in waiting)
    assert all(c.waited_us > 0 for c in order)
    assert world.plane.show("ci").waiters == ()


def test_a_caller_that_waits_gains_priority(world: World) -> None:
    """Without ageing, a caller of low priority would wait for ever behind a stream of others."""
    world.pool(target=0, max_size=9, waiter_stale_seconds=86400)
    world.provider.refuse("provider_quota_exceeded")
    waiting = []
    for name, priority, seconds in (("low", 0, 299), ("soon", 5, 2), ("late", 5, 0)):
        waiting.append(Waiting(world, name, priority=priority, wait_seconds=60.0))
        world.clock.forward(seconds)
    assert [w.acquired_by for w in world.plane.show("ci").waiters] == ["soon", "low", "late"]
    world.provider.obey()
    for _ in range(3):
        add_member(world)
    order = sorted(world.plane.show("ci").claims, key=lambda c: c.acquired_us)
    assert [c.acquired_by for c in order] == ["soon", "low", "late"]
    assert all(isinstance(caller.result(), tuple) for caller in waiting)


def test_a_caller_of_low_priority_does_not_hold_up_others(fast_world: World) -> None:
    world = fast_world
    world.pool(target=1)
    low = Request(count=3, priority=-5)
    world.plane._claims._enter_queue("ci", low, world.clock.now_us)
    assert len(world.fill()) == 4
    with pytest.raises(pool_errors.NoReadyMembersError):
        world.plane.acquire("ci", count=2, priority=-6)
    assert len(world.plane.acquire("ci", count=2)) == 2


def test_later_callers_do_not_overtake(world: World) -> None:
    world.pool(target=1, waiter_stale_seconds=3600)
    batch = Waiting(world, "batch", count=2)
    world.fill()  # target 1 plus 2 for the waiting batch: all three come up
    assert len(batch.result()) == 2  # type: ignore[arg-type]
    world.plane.update("ci", target_size=0)
    batch = Waiting(world, "batch-2", count=2)
    world.plane.update("ci", max_size=world.plane.show("ci").counts.members + 1)
    world.fill()
    assert world.plane.show("ci").counts.ready == 1
    # One is ready, and it is reserved for the batch.
    with pytest.raises(pool_errors.NoReadyMembersError) as caught:
        world.plane.acquire("ci")
    assert "callers already in the queue asked for 2" in caught.value.why
    world.clock.forward(60)
    with pytest.raises(pool_errors.NoReadyMembersError):
        world.plane.acquire("ci", priority=1)  # the batch has gained one
    assert len(world.plane.acquire("ci", priority=2)) == 1  # unless its priority is higher
    world.plane.update("ci", max_size=9)
    world.fill()
    assert len(batch.result()) == 2  # type: ignore[arg-type]


def test_a_wait_that_times_out_reports_the_counts(world: World) -> None:
    world.pool(target=1)
    world.plane.replenish("ci")
    with pytest.raises(pool_errors.NoReadyMembersError, match="target 1, ready 0, warming 1"):
        world.plane.acquire("ci", wait_seconds=0.05)
    assert world.plane.show("ci").waiters == ()
    assert world.kinds()[-3:] == ["waiter_queued", "waiter_left", "claim_missed"]


def test_a_caller_killed_in_the_queue_counts_as_missed(world: World) -> None:
    pool = world.pool(target=1)
    with world.plane.context.database.write("queue up") as connection:
        waiter = Waiter(id="w-1", pool_id=pool.id, wanted=2, queued_us=START, seen_us=START)
        waiter_rows.insert(connection, waiter)
    world.clock.forward(10 * pool.settings.waiter_stale_seconds)
    world.plane.recycle("ci")
    assert world.reasons("claim_missed") == []  # it may still be there
    world.clock.forward(1)
    world.plane.recycle("ci")
    world.plane.recycle("ci")
    assert world.reasons("claim_missed") == world.reasons("waiter_left") == ["unseen"]
    assert world.plane.past("ci").missed_us == (world.clock(),) * 2


def test_a_wait_is_in_the_history(world: World) -> None:
    world.pool(target=0)
    waiting = Waiting(world, "w")
    world.clock.forward(5)
    world.fill()
    waiting.result()
    assert world.plane.past("ci").waited_us == (START,)


def test_draining_a_pool_refuses_waiting_callers(world: World) -> None:
    world.pool(target=1)
    waiting = Waiting(world, "w")
    world.plane.drain("ci")
    assert isinstance(waiting.result(), pool_errors.PoolNotActiveError)


def test_a_killed_waiter_does_not_block_others(world: World) -> None:
    world.pool(target=1)
    world.fill()
    with world.plane.context.database.write("a killed waiter") as connection:
        connection.execute(
            schema.waiters.insert().values(
                id="w-dead", pool_id=world.plane.show("ci").pool.id, priority=9, wanted=1,
                queued_us=0, seen_us=world.clock.now_us, acquired_by="dead",
            )
        )  # fmt: skip
    with pytest.raises(pool_errors.NoReadyMembersError):
        world.plane.acquire("ci")
    world.clock.forward(15)
    assert world.plane.acquire("ci")
    world.clock.forward(200)
    world.beat_all()
    world.plane.recycle("ci")
    with world.plane.context.database.read() as connection:
        assert connection.execute(sa.select(schema.waiters)).all() == []


def test_a_cold_claim_launches_its_own_member(world: World) -> None:
    """No reaper runs here."""
    world.pool(target=0)
    cold = Waiting(world, "cold", cold=True, wait_seconds=0.0)
    until(lambda: world.provider.machines)
    until(lambda: world.members()[0].machine_id)
    world.clock.forward(30)
    world.boot_all()
    [grant] = cold.result()  # type: ignore[misc]
    assert grant.claim.cold
    assert len(world.provider.machines) == 1
    assert world.reasons("member_claimed") == ["cold"]


def test_a_cold_claim_that_cannot_launch_fails_at_once(world: World) -> None:
    world.pool(target=0)
    world.provider.refuse("provider_quota_exceeded")
    with pytest.raises(pool_errors.NoReadyMembersError):
        world.plane.acquire("ci", cold=True)


def test_a_ready_member_needs_no_cold_start(world: World) -> None:
    world.pool(target=1)
    world.fill()
    [grant] = world.plane.acquire("ci", cold=True)
    assert not grant.claim.cold


def test_concurrent_claims_get_different_members(world: World) -> None:
    world.pool(target=24, max_size=24)
    world.fill()
    together = threading.Barrier(6)
    claimed: list[str] = []
    refused: list[str] = []

    def claim() -> None:
        plane = world.another()
        together.wait()
        for _ in range(5):
            try:
                claimed.extend(grant.member.id for grant in plane.acquire("ci"))
            except pool_errors.NoReadyMembersError as error:
                refused.append(str(error))

    threads = [threading.Thread(target=claim) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(claimed) == len(set(claimed)) == 24
    assert len(refused) == 6
    world.check()


def test_the_same_key_at_the_same_moment_is_one_claim(world: World) -> None:
    world.pool(target=8)
    world.fill()
    together = threading.Barrier(6)
    claimed: list[str] = []

    def claim() -> None:
        plane = world.another()
        together.wait()
        claimed.extend(g.claim.id for g in plane.acquire("ci", idempotency_key="k", wait_seconds=5))

    threads = [threading.Thread(target=claim) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(claimed) == 6
    assert len(set(claimed)) == 1
    assert world.plane.show("ci").counts.claimed == 1


def test_two_control_planes_drain_and_claim_at_once(world: World) -> None:
    """In any order, no caller has a member that was ended."""
    world.pool(target=10)
    world.fill()
    together = threading.Barrier(3)
    claimed: list[str] = []

    def claim() -> None:
        plane = world.another()
        together.wait()
        for _ in range(5):
            try:
                claimed.extend(str(g.member.machine_id) for g in plane.acquire("ci"))
            except pool_errors.PoolError:
                return

    def drain() -> None:
        plane = world.another()
        together.wait()
        plane.drain("ci")

    threads = [threading.Thread(target=caller) for caller in (claim, claim, drain)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(world.provider.machines) == set(claimed)
    world.check()


def test_a_batch_larger_than_the_new_maximum_leaves_the_queue(world: World) -> None:
    world.pool(target=0, max_size=3)
    large = Waiting(world, "large", count=3, wait_seconds=600.0)
    small = Waiting(world, "small")
    world.plane.update("ci", max_size=2)
    world.plane.replenish("ci")
    world.boot_all()
    assert isinstance(large.result(), pool_errors.BadKnobError)
    assert isinstance(small.result(), tuple)


def test_a_caller_waiting_for_a_deleted_pool_gets_an_error_with_its_name(world: World) -> None:
    world.pool(target=0)
    waiting = Waiting(world, "job")
    world.plane.delete("ci")
    error = waiting.result()
    assert isinstance(error, pool_errors.PoolNotFoundError)
    assert "'ci'" in error.what


def test_a_caller_that_waited_in_vain_gets_the_current_cause(world: World) -> None:
    world.pool(target=0, breaker_failures=1)
    waiting = Waiting(world, "job", wait_seconds=1.0)
    world.provider.refuse("provider_quota_exceeded")
    world.plane.replenish("ci")
    error = waiting.result()
    assert isinstance(error, pool_errors.NoReadyMembersError)
    assert error.why == "the circuit breaker is open: provider_quota_exceeded"


def test_a_cold_claim_keeps_its_place_during_a_slow_launch(world: World) -> None:
    world.pool(target=0, waiter_stale_seconds=1)
    launched = threading.Event()
    world.provider.on_launch = lambda _: launched.wait(20) and None
    cold = Waiting(world, "cold", cold=True)
    until(lambda: world.members("ci"))
    world.clock.forward(5)
    until(lambda: world.plane.show("ci").counts.waiting == 1)
    world.plane.recycle("ci")  # the member launched for it is not surplus
    launched.set()
    until(lambda: world.members("ci")[0].machine_id)
    world.boot_all()
    assert isinstance(cold.result(), tuple)


def test_a_caller_that_is_gone_leaves_the_queue(world: World) -> None:
    world.pool(target=1, max_size=1)
    world.fill()
    world.plane.acquire("ci")
    gone = threading.Event()
    waiting = Waiting(world, "leaves", wait_seconds=600.0, is_gone=gone.is_set)
    gone.set()
    assert isinstance(waiting.result(), pool_errors.NoReadyMembersError)
    assert world.plane.show("ci").waiters == ()
