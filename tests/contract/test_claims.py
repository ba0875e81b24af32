"""Claims as the contract defines them: which member, for how long, and how they end."""

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


def test_a_claim_records_its_caller_and_purpose(world: World) -> None:
    world.pool()
    world.fill()
    [grant] = world.plane.acquire("ci", acquired_by="job-1", acquired_for="build-9")
    assert grant.member.address.startswith("10.0.0.")
    details = world.plane.show("ci")
    assert [(c.id, c.acquired_by, c.acquired_for) for c in details.claims] == [
        (grant.claim.id, "job-1", "build-9")
    ]
    assert (details.counts.ready, details.counts.claimed, details.counts.deficit) == (2, 1, 1)
    member = world.plane.member(grant.member.id)
    assert member.state is State.CLAIMED
    assert member.acquired_us == START
    assert world.kinds()[-1] == "member_claimed"


def test_a_claim_on_an_empty_pool_reports_the_counts(world: World) -> None:
    world.pool(target=2)
    world.plane.replenish("ci")
    with pytest.raises(pool_errors.NoReadyMembersError, match="target 2, ready 0, warming 2"):
        world.plane.acquire("ci")


def test_silent_members_are_named_and_not_claimed(world: World) -> None:
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
def test_only_an_active_pool_accepts_claims(world: World, status: str) -> None:
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


def test_the_key_of_an_ended_claim_is_an_error(world: World) -> None:
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
    "request_fields",
    [
        {"idempotency_key": ""},  # an unset variable must not share one claim among all callers
        {"priority": 10**20, "wait_seconds": 1},
        {"priority": None},
        {"count": None},
        {"acquired_by": None},
    ],
)
def test_an_invalid_request_is_refused(world: World, request_fields: dict[str, object]) -> None:
    world.pool()
    world.fill()
    with pytest.raises(pool_errors.BadKnobError):
        world.plane.acquire("ci", **request_fields)
    assert world.plane.show("ci").counts.claimed == 0


def test_a_stale_claim_can_be_renewed_as_its_problem_says(world: World) -> None:
    world.pool(heartbeat_stale_after_seconds=10**6)
    world.fill()
    [grant] = world.plane.acquire("ci")
    world.clock.forward(86_400)
    world.plane.recycle("ci")
    details = world.plane.show("ci")
    [problem] = [
        candidate
        for candidate in problems.find_problems(
            details,
            now_us=world.clock(),
            reaper_us=world.clock(),
            past=world.plane.past("ci"),
        )
        if candidate.name == "claim_stale"
    ]
    with pytest.raises(pool_errors.LeaseCapError, match="any further") as caught:
        world.plane.renew(grant.claim.id, 60)
    step = "`overnight pool update ci --set lease_max_seconds=172800`, then"
    assert f"{step} `overnight pool renew {grant.claim.id}`" in problem.todo
    assert step in caught.value.todo
    world.plane.update("ci", lease_max_seconds=172_800)
    assert world.plane.renew(grant.claim.id, 60).stale_us is None


def test_ended_claims_of_a_reused_member_are_pruned(world: World) -> None:
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


def test_undeclared_parameters_are_errors(world: World) -> None:
    world.pool()
    with pytest.raises(pool_errors.UnknownParameterError, match="aquired_by"):
        world.plane.acquire("ci", aquired_by="x")
    with pytest.raises(pool_errors.UnknownParameterError, match="name"):
        world.plane.update("ci", name="other")
    for request_fields in ({"count": True}, {"lease_seconds": "1"}, {"cold": 1}, {"wait_seconds": -1}, {"lease_seconds": 0}, {"acquired_by": 5}):  # fmt: skip
        with pytest.raises(pool_errors.BadKnobError, match=next(iter(request_fields))):
            world.plane.acquire("ci", **request_fields)


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
    world.clock.forward(50)
    with pytest.raises(pool_errors.ClaimEndedError):
        world.plane.renew(grant.claim.id, 5)


def test_an_expired_lease_ends_the_member(world: World) -> None:
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
    returned = world.plane.give_back(grant.claim.id)
    assert returned.gone_us is not None
    assert grant.member.machine_id not in world.provider.machines
    assert world.plane.give_back(grant.claim.id) == returned  # a repeated return changes nothing
    with pytest.raises(pool_errors.ClaimNotFoundError):
        world.plane.give_back("c-none")


def test_a_returned_member_is_reused_if_the_pool_allows_it(world: World) -> None:
    world.pool(reuse_without_reset=True)
    world.fill()
    [grant] = world.plane.acquire("ci")
    returned = world.plane.give_back(grant.claim.id)
    assert returned.state is State.READY
    assert returned.acquired_us is None
    [again] = world.plane.acquire("ci")
    assert again.member.id == returned.id
    world.plane.update("ci", template="newer")
    assert world.plane.give_back(again.claim.id).gone_us is not None  # it has the old template


def test_a_member_that_is_not_as_good_as_a_new_one_is_not_reused(fast_world: World) -> None:
    world = fast_world
    grants = {}
    for name in ("draining", "cordoned", "missing", "quiet", "silent"):
        world.pool(name, target=1, reuse_without_reset=True)
        world.fill(name)
        [grants[name]] = world.plane.acquire(name)

    def is_reused(name: str) -> bool:
        return world.plane.give_back(grants[name].claim.id).state is State.READY

    world.plane.drain("draining")
    world.plane.set_cordoned(grants["cordoned"].member.id, cordoned=True)
    del world.provider.machines[str(grants["missing"].member.machine_id)]
    world.plane.sweep("scripted")
    assert [is_reused(name) for name in ("draining", "cordoned", "missing")] == [False] * 3
    world.clock.forward(179)
    assert is_reused("quiet")
    world.clock.forward(1)
    assert not is_reused("silent")


def test_a_member_is_returned_by_pool_and_member(world: World) -> None:
    world.pool(target=1, reuse_without_reset=True)
    world.pool("other", target=0)
    [member] = world.fill()
    with pytest.raises(pool_errors.MemberStateError, match="not claimed"):
        world.plane.return_member("ci", member.id)
    [first] = world.plane.acquire("ci", acquired_by="first")
    with pytest.raises(pool_errors.MemberStateError, match="not in pool other"):
        world.plane.return_member("other", member.id)
    assert world.plane.return_member("ci", member.id).state is State.READY
    assert world.plane.return_member("ci", member.id).state is State.READY  # repeated
    world.clock.forward(-60)  # the open claim counts, not the newest by a clock that was set back
    [second] = world.plane.acquire("ci", acquired_by="second")
    assert world.plane.return_member(first.claim.pool_id, member.id).state is State.READY
    ended = {c.id: c.release_reason for c in world.plane.show("ci").claims}
    assert ended == {first.claim.id: "returned", second.claim.id: "returned"}
    world.clock.forward(61)
    world.beat_all()
    world.plane.acquire("ci")
    world.plane.terminate(member.id)
    with pytest.raises(pool_errors.ClaimEndedError, match="terminated"):
        world.plane.return_member("ci", member.id)
