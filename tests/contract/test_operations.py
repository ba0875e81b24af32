"""Every operation, as the contract defines it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from poolworld import START, S, World

from overnight.model.pool import Counts, PoolStatus
from overnight.pools import control, pool_errors, reaper
from overnight.pools.providers import nspawn, process
from overnight.pools.sql import schema

if TYPE_CHECKING:
    import pathlib

Status = PoolStatus


def test_a_pool_has_the_defaults_of_the_contract(world: World) -> None:
    pool = world.pool(target=5)
    details = world.plane.show("ci")
    assert details.pool == pool
    assert (pool.status, pool.min_size, pool.max_size) == (Status.ACTIVE, 0, 15)
    assert pool.lifecycle_class == "ephemeral"
    assert details.counts == Counts(deficit=5)
    assert world.plane.show(pool.id).pool.name == "ci"
    assert world.kinds() == ["pool_created"]


def test_every_field_is_stored_as_given(world: World) -> None:
    pool = world.pool(
        name="gpu", target=2, min_size=1, max_size=4, lifecycle_class="spot", region="eu-1",
        instance_type="large", preferred_regions=["eu-2"], labels={"team": "ml"},
        ready_ttl_seconds=600, reuse_without_reset=True,
    )  # fmt: skip
    assert world.plane.show("gpu").pool == pool
    assert pool.preferred_regions == ("eu-2",)
    assert pool.settings.ready_ttl_seconds == 600


@pytest.mark.parametrize(
    ("changes", "named"),
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
        ({"name": "\u0441i"}, "name"),  # looks like ci
        ({"labels": {"a": 1}}, "labels"),
    ],
)
def test_an_invalid_pool_is_refused(world: World, changes: dict[str, object], named: str) -> None:
    plain = {"name": "ci", "template": "t", "target_size": 3, "provider": "scripted"}
    with pytest.raises(pool_errors.PoolError, match=named):
        world.plane.create(**plain | changes)
    assert world.plane.list() == ()


OPTIONS = {
    "template": "runner", "lifecycle_class": "spot", "region": "eu-1",
    "preferred_regions": ["eu-1", "eu-2"], "instance_type": "large",
}  # fmt: skip


@pytest.mark.parametrize(
    ("provider", "refused"),
    [
        (process.NAME, set(OPTIONS)),
        (nspawn.NAME, {"lifecycle_class", "region", "preferred_regions"}),
    ],
)
def test_a_provider_refuses_what_it_would_ignore(
    fast_world: World, tmp_path: pathlib.Path, provider: str, refused: set[str]
) -> None:
    module = {process.NAME: process, nspawn.NAME: nspawn}[provider]
    db = fast_world.plane.context.database
    plane = control.ControlPlane(db, {provider: module.create(tmp_path)})
    plain = {"name": "ci", "template": "plain", "target_size": 0, "provider": provider}
    plane.create(**plain)
    for name in refused:
        for call in (
            lambda given: plane.create(**{**plain, "name": "new", **given}),
            lambda given: plane.update("ci", **given),
        ):
            with pytest.raises(pool_errors.IgnoredOptionError) as caught:
                call({name: OPTIONS[name]})
            assert caught.value.knob == name
    assert [details.pool.name for details in plane.list()] == ["ci"]


def test_a_pool_keeps_an_ignored_option_that_it_had(
    fast_world: World, tmp_path: pathlib.Path
) -> None:
    """Earlier versions accepted them: such a pool can still be changed."""
    db = fast_world.plane.context.database
    plane = control.ControlPlane(db, {"process": process.create(tmp_path)})
    plane.create(name="ci", template="plain", target_size=0)
    with db.write("an old pool") as connection:
        connection.execute(sa.update(schema.pools).values(template="runner", region="eu-1"))
    plane.check("ci")
    assert plane.update("ci", region="").template == "runner"
    assert plane.update("ci", template="plain").template == "plain"


def test_a_pool_name_is_unique(world: World) -> None:
    world.pool()
    with pytest.raises(pool_errors.PoolExistsError, match="ci"):
        world.pool()


def test_an_unknown_pool_is_an_error(world: World) -> None:
    for call in (world.plane.show, world.plane.drain, world.plane.delete, world.plane.acquire):
        with pytest.raises(pool_errors.PoolNotFoundError, match="nope"):
            call("nope")


# acquire


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
    with pytest.raises(pool_errors.MemberNotFoundError):
        world.plane.terminate("m-none")


@pytest.mark.parametrize("how", ["returned", "lease_expired"])
@pytest.mark.parametrize("then", ["uncordon", "terminate", "drain"])
def test_a_cordoned_member_outlives_its_claim(world: World, how: str, then: str) -> None:
    world.pool(target=1, heartbeat_stale_after_seconds=10**6)
    world.fill()
    [grant] = world.plane.acquire("ci", lease_seconds=60)
    world.plane.set_cordoned(grant.member.id, cordoned=True)
    if how == "returned":
        world.plane.give_back(grant.claim.id)
    world.clock.forward(120)
    world.plane.recycle("ci")
    assert [c.release_reason for c in world.plane.show("ci").claims] == [how]
    assert grant.member.machine_id in world.provider.machines
    if then == "uncordon":
        world.plane.set_cordoned(grant.member.id, cordoned=False)
        world.plane.terminate_due("ci")
    elif then == "terminate":
        world.plane.terminate(grant.member.id)
    else:
        world.plane.drain("ci")
    assert grant.member.machine_id not in world.provider.machines


def test_a_cordoned_member_is_kept_and_replaced(world: World) -> None:
    world.pool(target=1)
    [member] = world.fill()
    world.plane.set_cordoned(member.id, cordoned=True)
    with pytest.raises(pool_errors.NoReadyMembersError):
        world.plane.acquire("ci")
    assert len(world.fill()) == 2
    world.clock.forward(10**6)
    world.plane.recycle("ci")
    assert [m.id for m in world.members()] == [member.id]
    world.plane.set_cordoned(member.id, cordoned=False)
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


def test_draining_ends_warming_members_but_not_claimed_ones(world: World) -> None:
    world.pool(target=2)
    world.fill()
    [grant] = world.plane.acquire("ci")
    world.plane.replenish("ci")
    assert world.plane.drain("ci") == {"drained": 2, "claimed_remaining": 1}
    assert list(world.provider.machines) == [grant.member.machine_id]
    assert world.plane.drain("ci") == {"drained": 0, "claimed_remaining": 1}
    assert world.plane.replenish("ci") == 0
    with pytest.raises(pool_errors.PoolHasMembersError, match=r"still has 1 member$"):
        world.plane.delete("ci")
    world.plane.give_back(grant.claim.id)
    world.plane.delete("ci")
    assert world.plane.list(archived=True) == ()
    assert world.all_events()[-1] == "pool_deleted"


def test_members_of_a_deleted_pool_stay_answerable(world: World) -> None:
    world.pool(target=1)
    world.fill()
    [grant] = world.plane.acquire("ci", acquired_by="job-1")
    member, claim = grant.member.id, grant.claim.id
    world.plane.give_back(claim)
    before = world.plane.show_member(member)
    pool = world.plane.show("ci").pool
    world.plane.drain("ci")
    world.plane.delete("ci")
    with pytest.raises(pool_errors.PoolNotFoundError):
        world.plane.show(pool.id)
    with pytest.raises(pool_errors.PoolNotFoundError):
        world.plane.acquire(pool.id)
    assert world.plane.list(archived=True) == ()
    world.pool(target=1)  # the name is free again
    assert world.plane.show_member(member) == before
    # Repeated requests get the same answers.
    assert world.plane.give_back(claim) == before.member
    assert world.plane.terminate(member) == before.member
    assert world.plane.enrolment.beat(world.credentials[member])["gone"]
    assert world.plane.enrolment.phase(world.credentials[member], "ready")["gone"]
    world.plane.delete("ci")  # a second pool of that name
    world.clock.forward(7 * 86400)
    reaper.Reaper(world.plane).tick()
    assert world.plane.member(member) == before.member
    world.clock.forward(1)
    reaper.Reaper(world.plane).tick()
    with pytest.raises(pool_errors.MemberNotFoundError):
        world.plane.show_member(member)
    with world.plane.context.database.read() as connection:
        assert connection.execute(sa.select(schema.pools)).all() == []


def test_a_drained_pool_is_refilled_only_when_resumed(world: World) -> None:
    world.pool()
    world.fill()
    world.plane.drain("ci")
    with pytest.raises(pool_errors.PoolError, match="cannot be paused"):
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

    from overnight.pools.sql import schema

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


def test_the_history_has_the_idle_time(world: World) -> None:
    world.pool(target=2)
    world.plane.replenish("ci")
    world.clock.forward(10)
    world.boot_all()
    world.clock.forward(30)
    [grant] = world.plane.acquire("ci")
    world.clock.forward(60)
    world.plane.give_back(grant.claim.id)
    world.clock.forward(100)
    past = world.plane.past("ci")
    # 10 s warming, 30 s ready and 60 s claimed; and 10 s warming, 190 s ready.
    assert (past.member_us, past.ready_us) == (300 * S, 220 * S)
    recent = world.plane.past("ci", 50)
    assert (recent.member_us, recent.ready_us) == (50 * S, 50 * S)
    world.plane.update("ci", labels={"changed": "now"})
    assert world.plane.past("ci").unchanged_us == world.clock()
    assert world.plane.past("ci").member_us == 0


def test_the_history_has_missed_claims_and_warm_ups(world: World) -> None:
    world.pool(target=2, reuse_without_reset=True)
    with pytest.raises(pool_errors.NoReadyMembersError):
        world.plane.acquire("ci", count=2)
    with pytest.raises(pool_errors.NoReadyMembersError):
        world.plane.acquire("ci", wait_seconds=0.01)
    world.plane.replenish("ci")
    world.clock.forward(90)
    world.boot_all()
    [grant] = world.plane.acquire("ci")
    world.clock.forward(10)
    world.plane.give_back(grant.claim.id)  # becoming ready again is not a warm-up
    world.clock.forward(20)
    past = world.plane.past("ci")
    assert (past.begin_us, past.end_us) == (START, START + 120 * S)
    assert past.asked_us == (START, START, START, START + 90 * S)
    assert past.warm_ups_us == (90 * S, 90 * S)
    assert (past.missed_us, past.waited_us) == ((START,) * 3, ())
    assert world.reasons("claim_missed") == ["no_ready_members", "gave_up"]
    assert world.plane.past("ci", 25).asked_us == ()
