"""Those who wait: by priority, then by age, and nobody overtakes."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import noise
import pytest
import sqlalchemy as sa

from overnight.pools import pool_errors
from overnight.pools.sql import schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from poolworld import World


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + noise.HANG_SECONDS
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class Waiting:
    """An acquire that runs beside the test."""

    def __init__(self, world: World, name: str, **asked: object) -> None:
        self.name = name
        self.got: object = None
        before = len(world.plane.show("ci").waiters)
        self._thread = threading.Thread(
            target=self._run, args=(world.another(), asked), daemon=True
        )
        self._thread.start()
        until(lambda: len(world.plane.show("ci").waiters) > before)

    def _run(self, plane: object, asked: dict[str, object]) -> None:
        try:
            self.got = plane.acquire(  # type: ignore[attr-defined]
                "ci", acquired_by=self.name, **{"wait_seconds": 20.0} | asked
            )
        except pool_errors.PoolError as error:
            self.got = error

    def result(self) -> object:
        self._thread.join(20)
        return self.got


def served(world: World) -> list[str]:
    return [c.acquired_by for c in reversed(world.plane.show("ci").claims)]


def one_more(world: World) -> None:
    """One more member comes up, and somebody gets it."""
    before = world.plane.show("ci").counts.claimed
    waiting = world.plane.show("ci").counts.waiting
    world.plane.update("ci", max_size=world.plane.show("ci").counts.members + 1)
    world.plane.replenish("ci")
    world.clock.forward(0.001)
    world.boot_all()
    until(lambda: world.plane.show("ci").counts.claimed == before + 1)
    until(lambda: world.plane.show("ci").counts.waiting == waiting - 1)


def test_by_priority_then_by_age(world: World) -> None:
    world.pool(target=0, max_size=0)
    # Nobody can be refused for more than the pool may hold.
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
        one_more(world)
    order = sorted(world.plane.show("ci").claims, key=lambda c: c.acquired_us)
    assert [c.acquired_by for c in order] == ["high", "high-2", "low", "low-2", "lower"]
    assert all(isinstance(one.result(), tuple) for one in waiting)
    assert all(c.waited_us > 0 for c in order)
    assert world.plane.show("ci").waiters == ()


def test_who_comes_later_does_not_overtake(world: World) -> None:
    world.pool(target=1)
    batch = Waiting(world, "batch", count=2)
    world.fill()  # target 1 and 2 that are waited for: all three come up
    assert len(batch.result()) == 2  # type: ignore[arg-type]
    world.plane.update("ci", target_size=0)
    batch = Waiting(world, "batch-2", count=2)
    world.plane.update("ci", max_size=world.plane.show("ci").counts.members + 1)
    world.fill()
    assert world.plane.show("ci").counts.ready == 1
    # One is ready, and the batch has a right to it.
    with pytest.raises(pool_errors.NoReadyMembersError) as caught:
        world.plane.acquire("ci")
    assert "callers already in the queue asked for 2" in caught.value.why
    assert len(world.plane.acquire("ci", priority=1)) == 1  # unless it is more urgent
    world.plane.update("ci", max_size=9)
    world.fill()
    assert len(batch.result()) == 2  # type: ignore[arg-type]


def test_nothing_in_time_is_said_with_the_counts(world: World) -> None:
    world.pool(target=1)
    world.plane.replenish("ci")
    with pytest.raises(pool_errors.NoReadyMembersError, match="target 1, ready 0, warming 1"):
        world.plane.acquire("ci", wait_seconds=0.05)
    assert world.plane.show("ci").waiters == ()
    assert world.kinds()[-3:] == ["waiter_queued", "waiter_left", "claim_missed"]


def test_a_pool_that_is_drained_sends_those_who_wait_away(world: World) -> None:
    world.pool(target=1)
    waiting = Waiting(world, "w")
    world.plane.drain("ci")
    assert isinstance(waiting.result(), pool_errors.PoolNotActiveError)


def test_a_waiter_that_was_killed_holds_nobody_up(world: World) -> None:
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


def test_a_cold_claim_launches_for_itself(world: World) -> None:
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


def test_a_cold_claim_without_hope_is_told_at_once(world: World) -> None:
    world.pool(target=0)
    world.provider.refuse("provider_quota_exceeded")
    with pytest.raises(pool_errors.NoReadyMembersError):
        world.plane.acquire("ci", cold=True)


def test_a_ready_member_needs_no_cold_start(world: World) -> None:
    world.pool(target=1)
    world.fill()
    [grant] = world.plane.acquire("ci", cold=True)
    assert not grant.claim.cold


def test_many_at_once_get_each_their_own(world: World) -> None:
    world.pool(target=24, max_size=24)
    world.fill()
    together = threading.Barrier(6)
    got: list[str] = []
    refused: list[str] = []

    def claim() -> None:
        plane = world.another()
        together.wait()
        for _ in range(5):
            try:
                got.extend(grant.member.id for grant in plane.acquire("ci"))
            except pool_errors.NoReadyMembersError as error:
                refused.append(str(error))

    threads = [threading.Thread(target=claim) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == len(set(got)) == 24
    assert len(refused) == 6
    world.check()


def test_the_same_key_at_the_same_moment_is_one_claim(world: World) -> None:
    world.pool(target=8)
    world.fill()
    together = threading.Barrier(6)
    got: list[str] = []

    def claim() -> None:
        plane = world.another()
        together.wait()
        got.extend(g.claim.id for g in plane.acquire("ci", idempotency_key="k", wait_seconds=5))

    threads = [threading.Thread(target=claim) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 6
    assert len(set(got)) == 1
    assert world.plane.show("ci").counts.claimed == 1


def test_two_control_planes_drain_and_claim_at_once(world: World) -> None:
    """Whatever comes first, nobody has a member that was ended."""
    world.pool(target=10)
    world.fill()
    together = threading.Barrier(3)
    got: list[str] = []

    def claim() -> None:
        plane = world.another()
        together.wait()
        for _ in range(5):
            try:
                got.extend(str(g.member.machine_id) for g in plane.acquire("ci"))
            except pool_errors.PoolError:
                return

    def drain() -> None:
        plane = world.another()
        together.wait()
        plane.drain("ci")

    threads = [threading.Thread(target=one) for one in (claim, claim, drain)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(world.provider.machines) == set(got)
    world.check()


def test_a_batch_that_can_no_longer_be_had_leaves_the_queue(world: World) -> None:
    world.pool(target=0, max_size=3)
    large = Waiting(world, "large", count=3, wait_seconds=600.0)
    small = Waiting(world, "small")
    world.plane.update("ci", max_size=2)
    world.plane.replenish("ci")
    world.boot_all()
    assert isinstance(large.result(), pool_errors.BadKnobError)
    assert isinstance(small.result(), tuple)


def test_who_waits_for_a_pool_that_is_deleted_is_told_its_name(world: World) -> None:
    world.pool(target=0)
    waiting = Waiting(world, "job")
    world.plane.delete("ci")
    told = waiting.result()
    assert isinstance(told, pool_errors.PoolNotFoundError)
    assert "'ci'" in told.what


def test_who_waited_in_vain_is_told_how_it_is_now(world: World) -> None:
    world.pool(target=0, breaker_failures=1)
    waiting = Waiting(world, "job", wait_seconds=1.0)
    world.provider.refuse("provider_quota_exceeded")
    world.plane.replenish("ci")
    told = waiting.result()
    assert isinstance(told, pool_errors.NoReadyMembersError)
    assert told.why == "the circuit breaker is open: provider_quota_exceeded"


def test_a_cold_claim_keeps_its_place_while_its_launch_takes_long(world: World) -> None:
    world.pool(target=0, waiter_stale_seconds=1)
    launched = threading.Event()
    world.provider.on_launch = lambda _: launched.wait(20) and None
    cold = Waiting(world, "cold", cold=True)
    until(lambda: world.members("ci"))
    world.clock.forward(5)
    until(lambda: world.plane.show("ci").counts.waiting == 1)
    world.plane.recycle("ci")  # what is launched for it is not too much
    launched.set()
    until(lambda: world.members("ci")[0].machine_id)
    world.boot_all()
    assert isinstance(cold.result(), tuple)
