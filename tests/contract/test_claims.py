"""Claims: who gets what, for how long, and what becomes of it; in the words of the contract."""

from __future__ import annotations

import pytest
from poolworld import START, S, State, World

from overnight.pools import pool_errors, problems


def test_the_oldest_warm_member_is_claimed_first(world: World) -> None:
    world.pool(target=0)
    for size in (1, 2, 3):
        world.plane.update("ci", target_size=size)
        world.plane.replenish("ci")
        world.clock.forward(1)
    oldest = [m.id for m in world.members()]
    for name in reversed(oldest):  # ready in the other order
        world.clock.forward(1)
        world.boot(name)
    claimed = [world.plane.acquire("ci")[0].member.id for _ in range(3)]
    assert claimed == oldest


def test_a_claim_says_whose_it_is_and_what_for(world: World) -> None:
    world.pool()
    world.fill()
    [grant] = world.plane.acquire("ci", acquired_by="job-1", acquired_for="build-9")
    assert grant.member.address.startswith("10.0.0.")
    shown = world.plane.show("ci")
    assert [(c.id, c.acquired_by, c.acquired_for) for c in shown.claims] == [
        (grant.claim.id, "job-1", "build-9")
    ]
    assert (shown.counts.ready, shown.counts.claimed, shown.counts.deficit) == (2, 1, 1)
    member = world.plane.member(grant.member.id)
    assert member.state is State.CLAIMED
    assert member.acquired_us == START
    assert world.kinds()[-1] == "member_claimed"


def test_an_empty_pool_says_what_it_has(world: World) -> None:
    world.pool(target=2)
    world.plane.replenish("ci")
    with pytest.raises(pool_errors.NoReadyMembersError, match="target 2, ready 0, warming 2"):
        world.plane.acquire("ci")


def test_silent_members_are_named_and_not_given_out(world: World) -> None:
    world.pool(target=2)
    names = [m.id for m in world.fill()]
    world.clock.forward(180)
    with pytest.raises(pool_errors.NoLiveReadyMembersError) as caught:
        world.plane.acquire("ci")
    assert sorted(caught.value.members) == sorted(names)
    assert "silent for 180 s" in str(caught.value)
    world.plane.enrolment.beat(world.credentials[names[1]])
    assert world.plane.acquire("ci")[0].member.id == names[1]


@pytest.mark.parametrize("status", ["paused", "draining", "archived"])
def test_only_an_active_pool_gives_out(world: World, status: str) -> None:
    world.pool()
    world.fill()
    world.plane.update("ci", status=status)
    with pytest.raises(pool_errors.PoolNotActiveError, match=f"ci is {status}"):
        world.plane.acquire("ci")


def test_a_batch_is_all_or_nothing(world: World) -> None:
    world.pool(target=3)
    world.fill()
    with pytest.raises(pool_errors.NoReadyMembersError, match="batch of 4"):
        world.plane.acquire("ci", count=4)
    assert world.plane.show("ci").counts.ready == 3
    grants = world.plane.acquire("ci", count=3)
    assert len({grant.member.id for grant in grants}) == 3
    assert len({grant.claim.batch_id for grant in grants}) == 1
    with pytest.raises(pool_errors.BadKnobError, match="count"):
        world.plane.acquire("ci", count=99)


def test_the_same_key_gets_the_same_claim(world: World) -> None:
    world.pool()
    world.fill()
    first = world.plane.acquire("ci", count=2, idempotency_key="k", acquired_by="a")
    again = world.plane.acquire("ci", count=2, idempotency_key="k", acquired_by="a")
    assert [g.claim for g in again] == [g.claim for g in first]
    assert world.plane.show("ci").counts.claimed == 2
    for other in (
        {"count": 1, "acquired_by": "a"},
        {"count": 2, "acquired_by": "b"},
        {"count": 2, "acquired_by": "a", "lease_seconds": 60},
    ):
        with pytest.raises(pool_errors.KeyReusedError):
            world.plane.acquire("ci", idempotency_key="k", **other)
    world.plane.update("ci", status="paused")
    assert world.plane.acquire("ci", count=2, idempotency_key="k", acquired_by="a") == again


def test_a_key_whose_claim_has_ended_gives_no_host_that_is_gone(world: World) -> None:
    world.pool()
    world.fill()
    [grant] = world.plane.acquire("ci", idempotency_key="k", lease_seconds=60)
    world.plane.renew(grant.claim.id, 90)
    [again] = world.plane.acquire("ci", idempotency_key="k", lease_seconds=60)
    assert again.claim.id == grant.claim.id
    world.plane.give_back(grant.claim.id)
    with pytest.raises(pool_errors.ClaimEndedError, match="returned") as caught:
        world.plane.acquire("ci", idempotency_key="k", lease_seconds=60)
    assert "new --key" in caught.value.todo


@pytest.mark.parametrize(
    "asked",
    [
        {"idempotency_key": ""},  # a variable that was not set: not everybody's claim
        {"priority": 10**20, "wait_seconds": 1},
        {"priority": None},
        {"count": None},
        {"acquired_by": None},
    ],
)
def test_what_is_asked_is_checked_at_the_door(world: World, asked: dict[str, object]) -> None:
    world.pool()
    world.fill()
    with pytest.raises(pool_errors.BadKnobError):
        world.plane.acquire("ci", **asked)
    assert world.plane.show("ci").counts.claimed == 0


def test_a_claim_that_looks_forgotten_can_be_kept_as_it_is_told(world: World) -> None:
    world.pool(heartbeat_stale_after_seconds=10**6)
    world.fill()
    [grant] = world.plane.acquire("ci")
    world.clock.forward(86_400)
    world.plane.recycle("ci")
    seen = world.plane.show("ci")
    [said] = [
        one
        for one in problems.find_problems(seen, now_us=world.clock(), reaper_us=world.clock())
        if one.name == "claim_stale"
    ]
    with pytest.raises(pool_errors.LeaseCapError, match="any further") as caught:
        world.plane.renew(grant.claim.id, 60)
    step = "overnight pool update ci --set lease_max_seconds=172800, then"
    assert f"{step} overnight pool renew {grant.claim.id}" in said.todo
    assert step in caught.value.todo
    world.plane.update("ci", lease_max_seconds=172_800)
    assert world.plane.renew(grant.claim.id, 60).stale_us is None


def test_ended_claims_of_a_member_that_is_used_again_are_forgotten(world: World) -> None:
    world.pool(target=1, reuse_without_reset=True, record_retention_seconds=3600)
    world.fill()
    [first] = world.plane.acquire("ci")
    world.plane.give_back(first.claim.id)
    world.clock.forward(3000)
    world.beat_all()
    [second] = world.plane.acquire("ci")
    assert second.member.id == first.member.id
    world.clock.forward(700)
    world.plane.recycle("ci")
    assert [c.id for c in world.plane.show("ci").claims] == [second.claim.id]


def test_parameters_that_nobody_declared_are_errors(world: World) -> None:
    world.pool()
    with pytest.raises(pool_errors.UnknownParameterError, match="aquired_by"):
        world.plane.acquire("ci", aquired_by="x")
    with pytest.raises(pool_errors.UnknownParameterError, match="name"):
        world.plane.update("ci", name="other")
    for asked in ({"count": True}, {"lease_seconds": "1"}, {"cold": 1}, {"wait_seconds": -1}, {"lease_seconds": 0}, {"acquired_by": 5}):  # fmt: skip
        with pytest.raises(pool_errors.BadKnobError, match=next(iter(asked))):
            world.plane.acquire("ci", **asked)


# leases


def test_a_lease_is_renewed_up_to_its_cap(world: World) -> None:
    world.pool(lease_max_seconds=100)
    world.fill()
    [grant] = world.plane.acquire("ci", lease_seconds=60)
    assert grant.claim.lease_until_us == START + 60 * S
    world.clock.forward(50)
    renewed = world.plane.renew(grant.claim.id, 40)
    assert (renewed.lease_until_us, renewed.renewals) == (START + 90 * S, 1)
    assert world.plane.renew(grant.claim.id, 90).lease_until_us == START + 100 * S
    assert world.plane.renew(grant.claim.id, 1).lease_until_us == START + 100 * S
    with pytest.raises(pool_errors.BadKnobError, match="lease_seconds"):
        world.plane.renew(grant.claim.id, 101)
    world.clock.forward(60)
    with pytest.raises(pool_errors.ClaimEndedError):
        world.plane.renew(grant.claim.id, 5)


def test_a_lease_that_runs_out_ends_the_member(world: World) -> None:
    world.pool()
    world.fill()
    [grant] = world.plane.acquire("ci", lease_seconds=60)
    world.clock.forward(60)
    world.beat_all()
    world.plane.recycle("ci")
    assert world.plane.member(grant.member.id).gone_us is not None
    assert grant.member.machine_id not in world.provider.machines
    [claim] = world.plane.show("ci").claims
    assert claim.release_reason == "lease_expired"
    with pytest.raises(pool_errors.ClaimEndedError, match="lease_expired"):
        world.plane.give_back(grant.claim.id)


def test_a_claim_without_a_lease_is_flagged_never_ended(world: World) -> None:
    world.pool()
    world.fill()
    [grant] = world.plane.acquire("ci")
    world.clock.forward(10 * 86400)
    for _ in range(3):
        world.plane.recycle("ci")
    [claim] = [c for c in world.plane.show("ci").claims if c.released_us is None]
    assert claim.stale_us == world.clock.now_us
    assert world.kinds().count("claim_stale") == 1
    assert grant.member.machine_id in world.provider.machines


# return, terminate, cordon


def test_a_returned_member_is_recycled_by_default(world: World) -> None:
    world.pool()
    world.fill()
    [grant] = world.plane.acquire("ci")
    back = world.plane.give_back(grant.claim.id)
    assert back.gone_us is not None
    assert grant.member.machine_id not in world.provider.machines
    assert world.plane.give_back(grant.claim.id) == back  # said twice, done once
    with pytest.raises(pool_errors.ClaimNotFoundError):
        world.plane.give_back("c-none")


def test_a_returned_member_is_reused_where_the_pool_allows(world: World) -> None:
    world.pool(reuse_without_reset=True)
    world.fill()
    [grant] = world.plane.acquire("ci")
    back = world.plane.give_back(grant.claim.id)
    assert back.state is State.READY
    assert back.acquired_us is None
    [again] = world.plane.acquire("ci")
    assert again.member.id == back.id
    world.plane.update("ci", template="newer")
    assert world.plane.give_back(again.claim.id).gone_us is not None  # of the old template
