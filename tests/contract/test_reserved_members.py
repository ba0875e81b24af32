"""Members of a pool reserved for a week: not recycled meanwhile, and ended by nothing but their lease."""

from __future__ import annotations

import dataclasses
import pathlib
import threading
from typing import TYPE_CHECKING

import pooldatabases
import pytest
from poolworld import State, World

from overnight import errors, reservations
from overnight.model.pool import Waiter
from overnight.model.reservation import (
    MAX_SECONDS,
    HostState,
    Order,
    Reservation,
    ReservationState,
)
from overnight.pools import pool_errors, reaper
from overnight.pools.sql import waiter_rows
from overnight.reservations import context, control, janitor
from overnight.reservations.providers import pool as pool_provider

if TYPE_CHECKING:
    from collections.abc import Iterator

S = 1_000_000
HOUR, DAY, WEEK = 3600, 86_400, 7 * 86_400
ORDER = Order(provider="pool", where="ci", count=1, seconds=WEEK, owner="ops", purpose="arm B")


class Reserved:
    """A pool with a reaper, and reservations of its members in the same database."""

    def __init__(self, world: World) -> None:
        self.world = world
        settings = reservations.Settings(
            home=pathlib.Path("/nonexistent"), pools=lambda: world.plane
        )
        self.provider = pool_provider.PoolMembers(settings)
        self.database = pooldatabases.opened(world.url)
        self.plane = control.ControlPlane(
            context.Context(
                self.database,
                {"pool": self.provider},
                clock=world.clock,
                sleep=world.clock.forward,
            )
        )
        self.reaper = reaper.Reaper(world.plane)

    def reserve(self, **changes: object) -> Reservation:
        order = dataclasses.replace(ORDER, **changes)
        return self.plane.reserve(self.plane.preflight(order))

    def live(self, seconds: int, *, driven: bool = False, every: int = 12 * HOUR) -> None:
        """Let so much time pass, with the reaper and the members that it launches."""
        for _ in range(seconds // every):
            self.world.clock.forward(every)
            self.world.beat_all()
            assert self.reaper.tick() == {}
            self.world.boot_all()
            if driven:
                self.plane.tick()
            self.world.check()

    def state(self, member: str) -> State:
        return self.world.plane.member(member).state


@pytest.fixture
def reserved(world: World) -> Iterator[Reserved]:
    made = Reserved(world)
    yield made
    made.database.close()


@pytest.fixture
def fast_reserved(fast_world: World) -> Iterator[Reserved]:
    made = Reserved(fast_world)
    yield made
    made.database.close()


def test_a_member_is_reserved_for_a_week_while_the_pool_goes_on(reserved: Reserved) -> None:
    world = reserved.world
    world.pool(target=2, claimed_ttl_action="terminate")
    ready = {member.id for member in world.fill()}
    made = reserved.reserve()
    [host] = made.held
    assert host.name in ready
    reserved.live(WEEK - 12 * HOUR)
    assert reserved.state(host.name) is State.CLAIMED
    # Every other member was recycled by age, as always.
    assert not ready - {host.name} & {member.id for member in world.members("ci", State.READY)}
    reserved.live(24 * HOUR)
    assert world.reasons("claim_ended") == ["lease_expired"]
    assert host.name not in {member.id for member in world.members()}
    # The reservation ends, too, although the reaper was first.
    [ended] = reserved.plane.tick()
    assert ended.state is ReservationState.RELEASED


def test_a_renewed_reservation_lasts_as_long_as_it_is_driven(fast_reserved: Reserved) -> None:
    reserved = fast_reserved
    world = reserved.world
    world.pool(target=1, max_size=3)
    world.fill()
    made = reserved.reserve(seconds=12 * HOUR, renew=True, max_seconds=WEEK)
    [host] = made.held
    reserved.live(3 * DAY, driven=True, every=5 * HOUR)
    assert reserved.state(host.name) is State.CLAIMED
    reserved.live(DAY, every=5 * HOUR)  # its driver was killed, and nothing else knows of it
    assert world.reasons("claim_ended") == ["lease_expired"]
    assert reserved.provider.list_held(made.order) == []


def test_the_log_of_the_pool_shows_what_a_reservation_did(fast_reserved: Reserved) -> None:
    reserved = fast_reserved
    world = reserved.world
    world.pool()
    world.fill()
    made = reserved.reserve()
    [claim] = [claim for claim in world.plane.show("ci").claims if not claim.released_us]
    assert (claim.acquired_by, claim.acquired_for) == ("ops", f"reservation {made.id} arm B")
    events = [event for event in world.plane.show("ci").events if event.kind == "claim_reserved"]
    assert [event.reason for event in events] == ["reservation"] * 2  # claimed, then active
    assert events[0].detail.startswith(f"for {WEEK} s; lease_max_seconds of {DAY} does not")
    reserved.plane.release(made.id)
    assert world.reasons("claim_ended") == ["returned"]


def test_callers_keep_the_limits_of_the_pool(reserved: Reserved) -> None:
    world = reserved.world
    world.pool(claimed_ttl_action="terminate")
    world.fill()
    with pytest.raises(pool_errors.BadKnobError, match="lease_seconds"):
        world.plane.acquire("ci", lease_seconds=DAY + 1, idempotency_key="r-0123456789ab/m-1")
    [ordinary] = world.plane.acquire("ci", lease_seconds=DAY)
    [endless] = world.plane.acquire("ci")
    [host] = reserved.reserve().held
    world.clock.forward(DAY - 60)
    world.plane.renew(ordinary.claim.id, HOUR)
    claim = world.plane.show_member(host.name).claims[0]
    # `pool renew` extends a claim of a reservation no further than any other claim.
    assert world.plane.renew(claim.id, DAY).lease_until_us == claim.lease_until_us
    world.clock.forward(61)
    with pytest.raises(pool_errors.LeaseCapError):
        world.plane.renew(claim.id, HOUR)
    world.plane.recycle("ci")
    assert sorted(world.reasons("claim_ended")) == ["claimed_ttl", "lease_expired"]
    assert world.plane.member(endless.member.id).state is State.DRAINING
    assert reserved.state(host.name) is State.CLAIMED


def test_no_claim_lasts_longer_than_a_reservation_may(reserved: Reserved) -> None:
    world = reserved.world
    world.pool()
    [first, *_] = world.fill()
    begin, claims = world.clock(), world.plane.reserved
    far = begin + 2 * MAX_SECONDS * S
    claim = claims.reserve("ci", first.id, key="k", by="", purpose="", until_us=far)
    assert claim.lease_until_us == begin + MAX_SECONDS * S
    world.clock.forward(HOUR)
    extended = claims.extend(claim.id, far)
    assert extended is not None
    assert extended.lease_until_us == begin + MAX_SECONDS * S
    shortened = claims.extend(claim.id, world.clock() + 60 * S)
    assert shortened is not None
    assert shortened.lease_until_us == world.clock() + 60 * S
    world.clock.forward(60)
    assert claims.extend(claim.id, far) is None


def test_a_drained_pool_keeps_its_reserved_members_and_gives_no_more(reserved: Reserved) -> None:
    world = reserved.world
    world.pool(target=2)
    world.fill()
    made = reserved.reserve(count=1)
    plan = reserved.plane.preflight(ORDER)
    world.plane.drain("ci")
    reserved.live(DAY, driven=True)
    assert reserved.plane.show(made.id).state is ReservationState.ACTIVE
    with pytest.raises(pool_errors.PoolNotActiveError, match="pool ci is draining"):
        reserved.plane.preflight(ORDER)
    with pytest.raises(errors.CannotError) as refused:
        reserved.plane.reserve(plan)
    assert "pool ci is draining" in refused.value.why
    with pytest.raises(pool_errors.PoolHasMembersError):
        world.plane.delete("ci")
    reserved.plane.release(made.id)
    reserved.live(12 * HOUR)
    assert world.members() == []


def test_a_deleted_pool_is_answered_clearly_and_has_no_marks(reserved: Reserved) -> None:
    world = reserved.world
    world.pool(target=1)
    world.fill()
    made = reserved.reserve()
    [host] = made.held
    world.plane.terminate(host.name)
    world.plane.drain("ci")
    world.plane.delete("ci")
    reserved.live(HOUR, driven=True, every=HOUR)
    now = reserved.plane.show(made.id)
    [check] = [check for check in now.held[0].checks if check.name == "marks"]
    assert "pool 'ci' not found" in check.detail
    with pytest.raises(errors.OvernightError, match="pool 'ci' not found"):
        reserved.plane.preflight(ORDER)
    assert reserved.provider.list_held(ORDER) == []
    assert reserved.plane.release(made.id).state is ReservationState.RELEASED


def test_a_member_that_is_ended_by_hand_is_a_lost_mark(fast_reserved: Reserved) -> None:
    reserved = fast_reserved
    world = reserved.world
    world.pool(target=2)
    world.fill()
    made = reserved.reserve()
    world.plane.return_member("ci", made.held[0].name)
    world.clock.forward(60)
    reserved.plane.tick()
    [check] = [c for c in reserved.plane.show(made.id).held[0].checks if c.name == "marks"]
    assert "has ended: returned" in check.detail
    assert "mark_lost" in [event.kind for event in reserved.plane.events(made.id)]
    assert reserved.plane.release(made.id).state is ReservationState.RELEASED


def test_a_member_that_a_caller_took_is_replaced(fast_reserved: Reserved) -> None:
    reserved = fast_reserved
    world = reserved.world
    world.pool(target=2, max_size=4)
    world.fill()
    plan = reserved.plane.preflight(ORDER)
    [grant] = world.plane.acquire("ci")
    while grant.member.id != plan.hosts[0].host.name:  # until the caller has the planned one
        [grant] = world.plane.acquire("ci")
        world.fill()
    made = reserved.plane.reserve(plan)
    assert [host.state for host in made.hosts] == [HostState.RELEASED, HostState.HELD]
    assert made.held[0].name != grant.member.id


def test_a_reservation_does_not_overtake_callers_who_wait(reserved: Reserved) -> None:
    world = reserved.world
    pool = world.pool(target=2)
    [first, second] = world.fill()
    now = world.clock()
    with world.plane.context.database.write("queue up") as connection:
        waiter = Waiter(id="w-1", pool_id=pool.id, queued_us=now, seen_us=now)
        waiter_rows.insert(connection, waiter)
    claims, until_us = world.plane.reserved, now + S
    claims.reserve("ci", second.id, key="a", by="", purpose="", until_us=until_us)
    with pytest.raises(pool_errors.MemberStateError, match="is for callers who wait"):
        claims.reserve("ci", first.id, key="b", by="", purpose="", until_us=until_us)


def test_concurrent_reservations_and_callers_never_share_a_member(reserved: Reserved) -> None:
    world = reserved.world
    world.pool(target=4, max_size=4)
    members = [member.id for member in world.fill()]
    until_us, taken = world.clock() + HOUR * S, list[str]()
    begin = threading.Barrier(3)

    def reserve(key: str) -> None:
        claims = world.another().reserved
        begin.wait()
        for member in members:
            try:
                claims.reserve("ci", member, key=f"{key}/{member}", by=key, purpose="", until_us=until_us)  # fmt: skip
            except pool_errors.MemberStateError:
                continue
            taken.append(member)

    def call() -> None:
        plane = world.another()
        begin.wait()
        for _ in members:
            try:
                taken.append(plane.acquire("ci")[0].member.id)
            except pool_errors.NoReadyMembersError:
                return

    threads = [threading.Thread(target=reserve, args=(key,)) for key in ("a", "b")]
    threads.append(threading.Thread(target=call))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == sorted(members)
    world.check()


def test_the_janitor_of_reservations_leaves_valid_claims_and_those_of_callers(
    reserved: Reserved,
) -> None:
    world = reserved.world
    world.pool()
    world.fill()
    world.plane.acquire("ci", acquired_for="reservation r-0123456789ab", lease_seconds=60)
    made = reserved.reserve(seconds=HOUR)
    clean = lambda: janitor.clean(reserved.provider, ORDER, clock=world.clock)  # noqa: E731
    assert [(each.held.id, each.why) for each in clean()] == [(made.id, "")]
    world.clock.forward(HOUR + 200)  # no reaper ran meanwhile
    assert [each.released for each in clean()] == [True]
    assert world.reasons("claim_ended") == ["returned"]


def test_an_agent_cannot_be_started_where_a_member_is_not_reached(fast_reserved: Reserved) -> None:
    reserved = fast_reserved
    reserved.world.pool()
    reserved.world.fill()
    made = reserved.reserve(start_agent=True)
    [host] = made.held
    assert "members of provider scripted are not reached from here" in host.detail


def test_a_claim_of_a_caller_is_never_ours(fast_reserved: Reserved) -> None:
    """A caller may use any key and purpose."""
    world = fast_reserved.world
    world.pool()
    [first, *_] = world.fill()
    lease = "r-0123456789ab"
    for key, purpose in (
        (f"{lease}/{first.id}", "nightly"),
        (f"{lease}/m-000000000000", f"reservation {lease}"),
        ("job-1", f"reservation {lease}"),
    ):
        world.plane.acquire("ci", idempotency_key=key, acquired_for=purpose)
    assert fast_reserved.provider.list_held(ORDER) == []


def test_a_paused_pool_gives_none_of_its_ready_members(fast_reserved: Reserved) -> None:
    fast_reserved.world.pool()
    fast_reserved.world.fill()
    plan = fast_reserved.plane.preflight(ORDER)
    fast_reserved.world.plane.update("ci", status="paused")
    with pytest.raises(errors.CannotError) as refused:
        fast_reserved.plane.reserve(plan)
    assert "pool ci is paused" in refused.value.why
    assert fast_reserved.world.members("ci", State.CLAIMED) == []
