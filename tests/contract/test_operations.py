"""Every operation, in the words of the contract."""

from __future__ import annotations

import pytest
from poolworld import START, S, State, World

from overnight.pools import refusals, shape, trouble

Status = shape.PoolStatus


def test_a_pool_has_the_defaults_of_the_contract(world: World) -> None:
    made = world.pool(target=5)
    shown = world.plane.show("ci")
    assert shown.pool == made
    assert (made.status, made.min_size, made.max_size) == (Status.ACTIVE, 0, 15)
    assert made.lifecycle_class == "ephemeral"
    assert shown.counts == shape.Counts(deficit=5)
    assert world.plane.show(made.id).pool.name == "ci"
    assert world.kinds() == ["pool_created"]


def test_every_field_comes_back_as_it_was_given(world: World) -> None:
    made = world.pool(
        name="gpu", target=2, min_size=1, max_size=4, lifecycle_class="spot", region="eu-1",
        instance_type="large", preferred_regions=["eu-2"], labels={"team": "ml"},
        ready_ttl_seconds=600, reuse_without_reset=True,
    )  # fmt: skip
    assert world.plane.show("gpu").pool == made
    assert made.preferred_regions == ("eu-2",)
    assert made.knobs.ready_ttl_seconds == 600


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"target_size": "5"}, "target_size"),
        ({"target_size": -1}, "target_size"),
        ({"target_size": True}, "target_size"),
        ({"min_size": 4}, "min 4, target 3"),
        ({"max_size": 2}, "target 3, max 2"),
        ({"warming_timeout_seconds": "abc"}, "warming_timeout_seconds"),
        ({"ready_ttl_seconds": -5}, "ready_ttl_seconds"),
        ({"claimed_ttl_seconds": True}, "claimed_ttl_seconds"),
        ({"lifecycle_class": "persistent"}, "lifecycle_class"),
        ({"provider": "nobody"}, "provider"),
        ({"warmth": 5}, "warmth"),
        ({"template": ""}, "template"),
        ({"name": "a b"}, "name"),
        ({"labels": {"a": 1}}, "labels"),
    ],
)
def test_what_does_not_fit_is_refused_at_the_door(
    world: World, given: dict[str, object], named: str
) -> None:
    plain = {"name": "ci", "template": "t", "target_size": 3, "provider": "scripted"}
    with pytest.raises(refusals.PoolError, match=named):
        world.plane.create(**plain | given)
    assert world.plane.list() == ()


def test_a_name_is_taken_once(world: World) -> None:
    world.pool()
    with pytest.raises(refusals.PoolExistsError, match="ci"):
        world.pool()


def test_a_pool_that_is_not_there(world: World) -> None:
    for call in (world.plane.show, world.plane.drain, world.plane.delete, world.plane.acquire):
        with pytest.raises(refusals.PoolNotFoundError, match="nope"):
            call("nope")


# acquire


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
    with pytest.raises(refusals.NoReadyMembersError, match="target 2, ready 0, warming 2"):
        world.plane.acquire("ci")


def test_silent_members_are_named_and_not_given_out(world: World) -> None:
    world.pool(target=2)
    names = [m.id for m in world.fill()]
    world.clock.forward(180)
    with pytest.raises(refusals.NoLiveReadyMembersError) as caught:
        world.plane.acquire("ci")
    assert sorted(caught.value.members) == sorted(names)
    assert "silent for 180 s" in str(caught.value)
    world.plane.door.beat(world.credentials[names[1]])
    assert world.plane.acquire("ci")[0].member.id == names[1]


@pytest.mark.parametrize("status", ["paused", "draining", "archived"])
def test_only_an_active_pool_gives_out(world: World, status: str) -> None:
    world.pool()
    world.fill()
    world.plane.update("ci", status=status)
    with pytest.raises(refusals.PoolNotActiveError, match=f"ci is {status}"):
        world.plane.acquire("ci")


def test_a_batch_is_all_or_nothing(world: World) -> None:
    world.pool(target=3)
    world.fill()
    with pytest.raises(refusals.NoReadyMembersError, match="batch of 4"):
        world.plane.acquire("ci", count=4)
    assert world.plane.show("ci").counts.ready == 3
    grants = world.plane.acquire("ci", count=3)
    assert len({grant.member.id for grant in grants}) == 3
    assert len({grant.claim.batch_id for grant in grants}) == 1
    with pytest.raises(refusals.BadKnobError, match="count"):
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
        with pytest.raises(refusals.KeyReusedError):
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
    with pytest.raises(refusals.ClaimEndedError, match="returned") as caught:
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
    with pytest.raises(refusals.BadKnobError):
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
        for one in trouble.look(seen, now_us=world.clock(), reaper_us=world.clock())
        if one.name == "claim_stale"
    ]
    with pytest.raises(refusals.LeaseCapError, match="any further") as caught:
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
    with pytest.raises(refusals.UnknownParameterError, match="aquired_by"):
        world.plane.acquire("ci", aquired_by="x")
    with pytest.raises(refusals.UnknownParameterError, match="name"):
        world.plane.update("ci", name="other")
    for asked in ({"count": True}, {"lease_seconds": "1"}, {"cold": 1}, {"wait_seconds": -1}, {"lease_seconds": 0}, {"acquired_by": 5}):  # fmt: skip
        with pytest.raises(refusals.BadKnobError, match=next(iter(asked))):
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
    with pytest.raises(refusals.BadKnobError, match="lease_seconds"):
        world.plane.renew(grant.claim.id, 101)
    world.clock.forward(60)
    with pytest.raises(refusals.ClaimEndedError):
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
    with pytest.raises(refusals.ClaimEndedError, match="lease_expired"):
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
    with pytest.raises(refusals.ClaimNotFoundError):
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


def test_any_member_can_be_terminated(world: World) -> None:
    world.pool(target=2)
    world.fill()
    [grant] = world.plane.acquire("ci")
    world.plane.replenish("ci")
    for member in world.members():
        assert world.plane.terminate(member.id).gone_us is not None
    assert world.provider.machines == {}
    assert world.plane.terminate(grant.member.id).gone_us is not None
    assert world.plane.show("ci").claims[0].release_reason == "terminated"
    with pytest.raises(refusals.MemberNotFoundError):
        world.plane.terminate("m-none")


@pytest.mark.parametrize("how", ["returned", "lease_expired"])
@pytest.mark.parametrize("then", ["uncordon", "terminate", "drain"])
def test_a_cordoned_member_outlives_its_claim(world: World, how: str, then: str) -> None:
    world.pool(target=1, heartbeat_stale_after_seconds=10**6)
    world.fill()
    [grant] = world.plane.acquire("ci", lease_seconds=60)
    world.plane.cordon(grant.member.id)
    if how == "returned":
        world.plane.give_back(grant.claim.id)
    world.clock.forward(120)
    world.plane.recycle("ci")
    assert [c.release_reason for c in world.plane.show("ci").claims] == [how]
    assert grant.member.machine_id in world.provider.machines
    if then == "uncordon":
        world.plane.uncordon(grant.member.id)
        world.plane.end_due("ci")
    elif then == "terminate":
        world.plane.terminate(grant.member.id)
    else:
        world.plane.drain("ci")
    assert grant.member.machine_id not in world.provider.machines


def test_a_cordoned_member_is_kept_and_replaced(world: World) -> None:
    world.pool(target=1)
    [member] = world.fill()
    world.plane.cordon(member.id)
    with pytest.raises(refusals.NoReadyMembersError):
        world.plane.acquire("ci")
    assert len(world.fill()) == 2
    world.clock.forward(10**6)
    world.plane.recycle("ci")
    assert [m.id for m in world.members()] == [member.id]
    world.plane.uncordon(member.id)
    world.plane.recycle("ci")
    assert world.members() == []


# update, drain, delete


def test_a_smaller_target_shrinks_oldest_idle_first(world: World) -> None:
    world.pool(target=3)
    world.plane.replenish("ci")
    names = [m.id for m in world.members()]
    for name in names:
        world.boot(name)
        world.clock.forward(1)
    world.plane.update("ci", target_size=1)
    assert [m.id for m in world.members()] == [names[-1]]
    assert len(world.provider.machines) == 1
    assert world.reasons("member_draining") == ["pool_shrunk"] * 2


def test_a_paused_pool_is_recycled_and_not_refilled(world: World) -> None:
    world.pool()
    world.fill()
    world.plane.update("ci", status="paused")
    world.clock.forward(14400)
    world.beat_all()
    world.plane.recycle("ci")
    assert world.members() == []
    assert world.plane.replenish("ci") == 0
    world.plane.update("ci", status="active")
    assert world.plane.replenish("ci") == 3


def test_draining_ends_warming_too_and_spares_the_claimed(world: World) -> None:
    world.pool(target=2)
    world.fill()
    [grant] = world.plane.acquire("ci")
    world.plane.replenish("ci")
    assert world.plane.drain("ci") == {"drained": 2, "claimed_remaining": 1}
    assert list(world.provider.machines) == [grant.member.machine_id]
    assert world.plane.drain("ci") == {"drained": 0, "claimed_remaining": 1}
    assert world.plane.replenish("ci") == 0
    with pytest.raises(refusals.PoolHasMembersError, match=r"still has 1 member\(s\) — drain"):
        world.plane.delete("ci")
    world.plane.give_back(grant.claim.id)
    world.plane.delete("ci")
    assert world.plane.list(archived=True) == ()
    assert world.all_events()[-1] == "pool_deleted"


def test_a_drained_pool_is_refilled_only_when_resumed(world: World) -> None:
    world.pool()
    world.fill()
    world.plane.drain("ci")
    with pytest.raises(refusals.PoolError, match="cannot be paused"):
        world.plane.update("ci", status="paused")
    world.plane.update("ci", status="active")
    assert len(world.fill()) == 3


def test_an_archived_pool_is_left_out_of_lists(world: World) -> None:
    world.pool()
    world.pool("other")
    world.plane.update("ci", status="archived")
    assert [d.pool.name for d in world.plane.list()] == ["other"]
    assert [d.pool.name for d in world.plane.list(archived=True)] == ["ci", "other"]


def test_sizes_are_checked_by_the_database_too(world: World) -> None:
    import sqlalchemy as sa
    import sqlalchemy.exc

    from overnight.pools import schema

    world.pool()
    world.fill()
    wrong = [
        sa.update(schema.pools).values(target_size=99),
        sa.update(schema.pools).values(min_size=-1),
        sa.update(schema.pools).values(status="drained"),
        sa.update(schema.pools).values(lifecycle_class="persistent"),
        sa.update(schema.members).values(state="gone"),
        sa.update(schema.members).values(machine_id=None),
        sa.update(schema.enrolments).values(used_us=None),
    ]
    for statement in wrong:
        with (
            pytest.raises(sqlalchemy.exc.IntegrityError),
            world.plane.context.database.write("wrong") as connection,
        ):
            connection.execute(statement)


def test_the_past_has_missed_claims_and_warm_ups(world: World) -> None:
    world.pool(target=2, reuse_without_reset=True)
    with pytest.raises(refusals.NoReadyMembersError):
        world.plane.acquire("ci", count=2)
    with pytest.raises(refusals.NoReadyMembersError):
        world.plane.acquire("ci", wait_seconds=0.01)
    world.plane.replenish("ci")
    world.clock.forward(90)
    world.boot_all()
    [grant] = world.plane.acquire("ci")
    world.clock.forward(10)
    world.plane.give_back(grant.claim.id)  # ready again is no warm-up
    world.clock.forward(20)
    past = world.plane.past("ci")
    assert (past.begin_us, past.end_us) == (START, START + 120 * S)
    assert past.asked_us == (START, START, START, START + 90 * S)
    assert past.warm_ups_us == (90 * S, 90 * S)
    assert world.reasons("claim_missed") == ["no_ready_members", "gave_up"]
    assert world.plane.past("ci", 25).asked_us == ()
