"""Clusters: handed over together or not at all, and given back by their lease."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING

import poolprovider
import pytest
from poolworld import DAY_SECONDS, S, State, World, cluster_order

from overnight import errors, pools
from overnight.app import clusters
from overnight.app import pools as use_cases
from overnight.model.cluster import Cluster, ClusterState
from overnight.model.pool import PoolStatus, Reason
from overnight.pools import cluster_steps, pool_errors, reaper

if TYPE_CHECKING:
    import pathlib


def tick(world: World) -> None:
    reaper.Reaper(world.plane).tick()


def assemble(world: World, count: int = 3, **fields: object) -> Cluster:
    """Order a cluster, and let the reaper launch and hand over what comes up."""
    name = world.cluster(count, **fields).id
    tick(world)
    world.boot_all()
    tick(world)
    return world.find_cluster(name)[0]


def test_all_members_are_handed_over_at_once(world: World) -> None:
    name = world.cluster(3, acquired_by="trainer", acquired_for="run-9").id
    tick(world)
    [first, *others] = world.members(name)
    world.boot(first.id)
    tick(world)
    cluster, details = world.find_cluster(name)
    assert (cluster.state, details.counts.ready, details.claims) == (ClusterState.ASSEMBLING, 1, ())
    with pytest.raises(pool_errors.PoolNotActiveError):  # nobody else gets what is ready
        world.plane.acquire(name)
    for member in others:
        world.boot(member.id)
    tick(world)
    cluster, details = world.find_cluster(name)
    assert cluster.state is ClusterState.HELD
    assert details.pool.status is PoolStatus.ARCHIVED
    assert {m.state for m in details.members} == {State.CLAIMED}
    assert {(c.acquired_by, c.acquired_for) for c in details.claims} == {("trainer", "run-9")}
    assert {c.lease_until_us for c in details.claims} == {world.clock() + DAY_SECONDS * 1_000_000}
    assert len({c.batch_id for c in details.claims}) == 1
    tick(world)
    assert world.provider.launched == 3


def test_the_lease_ends_it_without_any_other_process(world: World) -> None:
    name = assemble(world, lease_seconds=600).id
    world.clock.forward(599)
    world.beat_all()
    tick(world)
    assert len(world.provider.machines) == 3
    world.clock.forward(1)
    for _ in range(3):
        tick(world)
    cluster, details = world.find_cluster(name)
    assert (cluster.state, cluster.reason) == (ClusterState.ENDED, "lease_expired")
    assert {c.release_reason for c in details.claims} == {"lease_expired"}
    assert world.provider.machines == {}
    assert world.plane.list(archived=True) == ()
    assert world.plane.clusters.list() == []
    assert [c.id for c, _ in world.plane.clusters.list(ended=True)] == [name]
    # Its records go when those of every deleted pool go.
    world.clock.forward(8 * DAY_SECONDS)
    tick(world)
    assert world.plane.clusters.list(ended=True) == []


def test_a_renewed_lease_is_that_of_all_hosts_up_to_its_cap(world: World) -> None:
    name = assemble(world, lease_seconds=600).id
    held_us = world.clock()
    world.plane.renew(world.find_cluster(name)[1].claims[0].id, 7200)
    world.plane.clusters.renew(name, 3600)
    ends = sorted(c.lease_until_us - held_us for c in world.find_cluster(name)[1].claims)
    assert ends == [3600 * S, 3600 * S, 7200 * S]  # none is shorter than before
    world.clock.forward(3599)
    world.beat_all()
    tick(world)
    assert len(world.provider.machines) == 3
    world.plane.clusters.renew(name, DAY_SECONDS)
    claims = world.find_cluster(name)[1].claims
    assert {c.lease_until_us - held_us for c in claims} == {DAY_SECONDS * S}
    assert world.kinds(name).count("claim_renewed") == 7
    for claim in claims:
        world.plane.give_back(claim.id)
    tick(world)
    assert world.find_cluster(name)[0].reason == "claims_ended"  # long after the ordered lease


def test_a_lease_that_is_over_is_not_renewed(world: World) -> None:
    renew = world.plane.clusters.renew
    name = world.cluster(2, lease_seconds=600).id
    with pytest.raises(
        pool_errors.ClusterStateError, match="renewed: its state is assembling"
    ) as early:
        renew(name, 60)
    assert early.value.why == "its lease begins when it is held"
    tick(world)
    world.boot_all()
    tick(world)
    for wrong in (0, DAY_SECONDS + 1, True):
        with pytest.raises(pool_errors.BadKnobError, match="lease_seconds"):
            renew(name, wrong)
    world.clock.forward(600)  # no reaper has ended it yet
    with pytest.raises(
        pool_errors.ClusterStateError, match="cannot be renewed: its state is ended"
    ) as late:
        renew(name, 60)
    assert late.value.why == "the reason of its end is lease_expired"
    assert late.value.todo == f"overnight cluster show {name}"
    for _ in range(2):
        tick(world)
    assert world.find_cluster(name)[0].reason == "lease_expired"
    with pytest.raises(
        pool_errors.ClusterStateError, match="cannot be renewed: its state is ended"
    ):
        renew(name, 60)
    with pytest.raises(pool_errors.ClusterNotFoundError):
        renew("cluster-none", 60)


@pytest.mark.parametrize(
    ("at_least", "state", "reason"),
    [(2, ClusterState.HELD, ""), (None, ClusterState.ENDED, Reason.QUOTA)],
    ids=["at least two", "all or nothing"],
)
def test_a_provider_that_delivers_only_a_part(
    world: World, at_least: int | None, state: ClusterState, reason: str
) -> None:
    """The decision does not wait for the deadline when no more can come."""
    name = world.cluster(4, at_least=at_least).id

    def refuse_more(_: pools.Order) -> None:
        if world.provider.launched == 2:
            world.provider.refuse(Reason.QUOTA)

    world.provider.after_launch = refuse_more
    for _ in range(4):
        tick(world)
        world.boot_all()
        world.clock.forward(100)
        world.beat_all()
    tick(world)
    cluster, details = world.find_cluster(name)
    assert (cluster.state, cluster.reason) == (state, reason)
    assert len(world.provider.machines) == (2 if at_least else 0)
    assert details.counts.claimed == (2 if at_least else 0)


def test_a_provider_that_is_throttled_for_a_while_is_tried_again(world: World) -> None:
    name = world.cluster(4).id
    world.provider.refuse(Reason.THROTTLED)
    for _ in range(3):
        tick(world)
        world.clock.forward(60)
    cluster, details = world.find_cluster(name)
    assert details.pool.breaker_opened_us is not None
    assert cluster.state is ClusterState.ASSEMBLING
    world.provider.obey()
    for _ in range(5):
        world.clock.forward(100)
        tick(world)
        world.boot_all()
        world.beat_all()
    assert world.find_cluster(name)[0].state is ClusterState.HELD


def test_members_that_never_come_up_end_it_at_the_deadline(world: World) -> None:
    name = world.cluster(3, wait_seconds=600, at_least=2).id
    tick(world)
    world.boot(world.members(name)[0].id)
    world.clock.forward(599)
    world.beat_all()
    tick(world)
    assert world.find_cluster(name)[0].state is ClusterState.ASSEMBLING
    world.clock.forward(1)
    tick(world)
    cluster, _ = world.find_cluster(name)
    assert (cluster.state, cluster.reason) == (ClusterState.ENDED, "assembly_timeout")
    world.settle()
    assert world.provider.machines == {}


def test_a_failed_member_is_replaced_but_never_more_than_asked_for(world: World) -> None:
    name = world.cluster(3).id
    tick(world)
    failed, *_ = world.members(name)
    world.boot(failed.id, "failed", "unit_failed", "evil.service")
    world.provider.on_terminate = lambda _: (_ for _ in ()).throw(
        pools.ProviderError(Reason.ERROR, "no")
    )
    world.boot_all()
    for _ in range(3):
        world.clock.forward(20)
        tick(world)
    assert len(world.provider.machines) == 3  # the failed one counts until it is gone
    world.provider.obey()
    world.clock.forward(400)
    world.beat_all()
    tick(world)
    tick(world)
    world.boot_all()
    tick(world)
    cluster, details = world.find_cluster(name)
    assert (cluster.state, details.counts.claimed) == (ClusterState.HELD, 3)


def test_release_and_cancel(world: World) -> None:
    held = assemble(world).id
    with pytest.raises(
        pool_errors.ClusterStateError, match="cannot be cancelled: its state is held"
    ):
        world.plane.clusters.end(held, ClusterState.ASSEMBLING, "cancelled")
    world.plane.clusters.end(held, ClusterState.HELD, "released")
    world.plane.clusters.end(held, ClusterState.HELD, "released")  # again: nothing changes
    assert world.provider.machines == {}
    assembling = world.cluster(2).id
    world.plane.replenish(assembling)
    with pytest.raises(pool_errors.ClusterStateError):
        world.plane.clusters.end(assembling, ClusterState.HELD, "released")
    world.plane.clusters.end(assembling, ClusterState.ASSEMBLING, "cancelled")
    assert world.provider.machines == {}  # at once, not with the next tick
    ended = world.plane.clusters.list(ended=True)
    assert {(c.id, c.reason) for c, _ in ended} == {(held, "released"), (assembling, "cancelled")}
    with pytest.raises(pool_errors.ClusterNotFoundError):
        world.plane.clusters.end("cluster-none", ClusterState.HELD, "released")


def test_a_cancel_between_the_two_looks_of_a_step_hands_nothing_over(world: World) -> None:
    name = world.cluster(2).id
    tick(world)
    world.boot_all()
    clusters_plane = world.plane.clusters
    decide, looks = clusters_plane._decide, 0

    def cancel_after_the_first(*arguments: object, **options: object) -> object:
        nonlocal looks
        step = decide(*arguments, **options)  # type: ignore[arg-type]
        looks += 1
        if looks == 1:
            assert isinstance(step, cluster_steps.Hold)
            # By another process, as the first look has ended its transaction.
            clusters_plane.end(name, ClusterState.ASSEMBLING, "cancelled")
        return step

    clusters_plane._decide = cancel_after_the_first  # type: ignore[method-assign,assignment]
    with contextlib.suppress(pool_errors.PoolNotFoundError):
        clusters_plane.step(world.plane.show(name).pool)
    del clusters_plane._decide
    assert looks == 2
    tick(world)
    [(cluster, details)] = world.plane.clusters.list(ended=True)
    assert (cluster.state, cluster.reason, cluster.held_us) == (
        ClusterState.ENDED,
        "cancelled",
        None,
    )
    assert details.claims == ()
    assert world.provider.machines == {}


def test_a_machine_that_does_not_end_keeps_the_cluster_in_the_list(world: World) -> None:
    def refuse(_: str) -> None:
        raise pools.ProviderError(Reason.TERMINATION_PROTECTED, "protected")

    name = assemble(world).id
    world.provider.on_terminate = refuse
    world.plane.clusters.end(name, ClusterState.HELD, "released")
    for _ in range(6):
        world.clock.forward(4000)
        tick(world)
    [(cluster, details)] = world.plane.clusters.list()
    assert cluster.state is ClusterState.ENDED
    assert all(member.abandoned_us for member in details.members)
    world.provider.obey()
    for member in details.members:
        world.plane.terminate(member.id)
    tick(world)
    assert world.plane.clusters.list() == []


def test_a_lost_machine_leaves_the_others_held(world: World) -> None:
    name = assemble(world).id
    [lost, *_] = world.members(name)
    del world.provider.machines[str(lost.machine_id)]
    for _ in range(3):
        world.clock.forward(200)
        world.beat_all()
        tick(world)
    cluster, details = world.find_cluster(name)
    assert (cluster.state, details.counts.claimed) == (ClusterState.HELD, 2)
    assert world.provider.launched == 3
    for claim in details.claims:
        if claim.released_us is None:
            world.plane.give_back(claim.id)
    tick(world)
    assert world.find_cluster(name)[0].reason == "claims_ended"


def test_the_same_key_is_the_same_cluster(world: World) -> None:
    first = world.cluster(2, "run-9", acquired_by="a")
    assert world.cluster(2, "run-9", acquired_by="a").id == first.id
    with pytest.raises(pool_errors.KeyReusedError):
        world.cluster(3, "run-9", acquired_by="a")
    world.plane.clusters.end(first.id, ClusterState.ASSEMBLING, "cancelled")
    tick(world)
    assert world.cluster(2, "run-9", acquired_by="a").state is ClusterState.ENDED
    assert world.provider.launched == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"count": 0}, {"count": 10_001}, {"at_least": 0}, {"at_least": 4}, {"lease_seconds": 0},
        {"lease_seconds": 15 * DAY_SECONDS}, {"wait_seconds": 0}, {"template": ""},
        {"provider": "none"}, {"settings": {"max_size": 9}}, {"settings": {"launch_parallel": "x"}},
        {"cost_per_host_hour": -1.0}, {"lifecycle_class": "other"},
    ],
    ids=str,
)  # fmt: skip
def test_orders_that_could_never_be_served_are_refused(
    fast_world: World, wrong: dict[str, object]
) -> None:
    with pytest.raises(errors.UsageError):
        fast_world.plane.clusters.create(dataclasses.replace(cluster_order(3), **wrong))
    assert fast_world.plane.clusters.list(ended=True) == []


def test_its_pool_cannot_be_changed_by_hand(fast_world: World) -> None:
    world = fast_world
    name = world.cluster(2).id
    for change in (
        lambda: world.plane.update(name, target_size=1),
        lambda: world.plane.update(name, status="active"),
        lambda: world.plane.drain(name),
        lambda: world.plane.delete(name),
        lambda: world.plane.autoscale(name),
    ):
        with pytest.raises(pool_errors.MemberStateError, match="cluster"):
            change()


def test_two_reapers_hand_it_over_once(world: World) -> None:
    name = world.cluster(2).id
    tick(world)
    world.boot_all()
    pool = world.plane.show(name).pool
    others = [world.another(), world.another()]
    for plane in (*others, *others):
        plane.clusters.step(pool)
    cluster, details = world.find_cluster(name)
    assert (cluster.state, len(details.claims)) == (ClusterState.HELD, 2)
    assert world.kinds(name).count("cluster_held") == 1


def test_machines_of_another_host_end_there(url: str) -> None:
    world = World(url, provider=poolprovider.OnHost("alpha"))
    try:
        name = assemble(world).id
        beta = world.another()
        beta.context.provider("scripted").provider.prefix = "beta"
        beta.clusters.end(name, ClusterState.HELD, "released")
        assert len(world.provider.machines) == 3
        world.provider.prefix = "alpha"
        tick(world)
        assert world.provider.machines == {}
    finally:
        world.close()


def test_the_cost_is_shown_and_confirmed_and_a_reaper_must_run(tmp_path: pathlib.Path) -> None:
    where = use_cases.Pools(tmp_path)
    use = clusters.Clusters(where)
    order = dataclasses.replace(
        cluster_order(50, lease_seconds=8 * 3600, wait_seconds=1800, cost_per_host_hour=0.4),
        template="plain", provider="process",
    )  # fmt: skip
    plan = use.preflight(order)
    assert (plan.host_hours, plan.cost) == (425.0, 170.0)
    with pytest.raises(errors.UnconfirmedError, match="50 hosts of process") as refused:
        use.create(order, confirmed=False)
    assert refused.value.why.endswith("425.0 host-hours, 170.00")
    with pytest.raises(errors.CannotError, match="cannot be launched yet"):
        use.create(order, confirmed=True)
    where.plane.set("endpoint", "http://127.0.0.1:1")
    with pytest.raises(errors.CannotError) as refused:
        use.create(order, confirmed=True)
    assert "no reaper is running" in refused.value.why
    assert use.list(ended=True) == ()
    where.plane.context.database.close()


def test_its_pool_is_deleted_once(fast_world: World) -> None:
    world = fast_world
    name = assemble(world).id
    world.plane.clusters.end(name, ClusterState.HELD, "released")
    pool = world.plane.show(name).pool
    world.plane.clusters.step(pool)
    world.clock.forward(10)
    with pytest.raises(pool_errors.PoolNotFoundError):
        world.another().clusters.step(pool)  # a reaper that read the pool before
    assert [e.kind for e in world.plane.events(name)].count("pool_deleted") == 1
