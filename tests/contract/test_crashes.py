"""Killed at every step of every operation, before and after each commit and provider call: a new control
plane completes everything, and all guarantees hold.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from typing import TYPE_CHECKING

import pooldatabases
import pytest
from killer import KilledError, Killer
from poolworld import DAY_SECONDS, State, World, cluster_order

from overnight import pools
from overnight.model.cluster import ClusterState
from overnight.model.pool import Reason
from overnight.pools import control, pool_errors, reaper

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable, Iterator


@dataclasses.dataclass(frozen=True)
class Scenario:
    """The preparation, the operation that is killed, and what must be true in the end."""

    prepare: Callable[[World], object]
    act: Callable[[World, control.ControlPlane, object], object]
    after: Callable[[World, object], None] = lambda _world, _prepared: None


@dataclasses.dataclass(frozen=True)
class Worlds:
    """A factory of new worlds, and which steps are killed in them: all, or every third."""

    another: Callable[[], contextlib.AbstractContextManager[World]]
    every: int


def _filled(world: World, **changes: object) -> None:
    world.pool(target=2, **changes)
    world.fill()


def _claimed(world: World, **changes: object) -> object:
    _filled(world, **changes)
    return world.plane.acquire("ci")[0]


def _one_claim(world: World, _: object) -> None:
    """A retry with the same key gets the claim already made, or a new one, never two."""
    world.beat_all()
    with contextlib.suppress(pool_errors.NoReadyMembersError):
        world.plane.acquire("ci", idempotency_key="k")
    assert world.plane.show("ci").counts.claimed == 1


def _at_most_one(world: World, _: object) -> None:
    with contextlib.suppress(pool_errors.NoReadyMembersError):
        world.plane.acquire("ci", idempotency_key="k")
    assert world.plane.show("ci").counts.claimed <= 1


def _no_claim(world: World, _: object) -> None:
    """Every claim is open, or ended with its reason."""
    assert all(
        c.release_reason in ("", "returned", "terminated") for c in world.plane.show("ci").claims
    )


def _drained(world: World, _: object) -> None:
    world.plane.drain("ci")
    world.settle()
    assert world.provider.machines == {}


def _stale(world: World) -> None:
    world.pool(target=3, warming_timeout_seconds=60)
    world.plane.replenish("ci")
    world.boot(world.members()[0].id)
    world.clock.forward(200)


def _astray(world: World) -> None:
    """Prepare an orphan, a row that lost its machine, and a row whose launch was killed."""
    _filled(world)
    lost = world.members()[0]
    del world.provider.machines[str(lost.machine_id)]
    world.provider.machines["i-lost"] = pools.Machine(id="i-lost", member_id="m-none")
    world.provider.owners["i-lost"] = world.plane.context.owner
    killed = world.another(Killer(7))
    killed_pool = killed.create(
        name="cut", template="t", target_size=1, provider="scripted", launch_parallel=1
    )
    with contextlib.suppress(KilledError):
        killed.replenish(killed_pool.id)


def _cold(world: World, plane: control.ControlPlane, _: object) -> None:
    """Claim cold while another thread boots the members."""
    stop = threading.Event()
    other = world.another()

    def boots() -> None:
        while not stop.wait(0.005):
            for member in other.show("ci").members:
                if member.state is State.WARMING and member.machine_id:
                    with contextlib.suppress(pool_errors.PoolError):
                        world.boot(member.id)

    booting = threading.Thread(target=boots)
    booting.start()
    try:
        plane.acquire("ci", cold=True, idempotency_key="k", wait_seconds=10)
    finally:
        stop.set()
        booting.join()


def _boot(world: World, plane: control.ControlPlane, _: object) -> None:
    for member in world.members():
        credential = world.credentials.setdefault(
            member.id, member.id.encode().hex().ljust(64, "0")
        )
        plane.enrolment.enrol(world.provider.tokens[member.id], credential)
        plane.enrolment.phase(credential, "ready")


def _fail(world: World, plane: control.ControlPlane, _: object) -> None:
    [member, _other] = world.members()
    credential = world.credentials.setdefault(member.id, "ab" * 32)
    plane.enrolment.enrol(world.provider.tokens[member.id], credential)
    plane.enrolment.phase(credential, "failed", "module_pull_failed")


def _wanted(world: World) -> None:
    """Prepare an autoscaled pool of one with missed claims."""
    world.pool(target=1, max_size=9)
    world.plane.autoscale("ci", warm_up_seconds=90, max_size=2)
    world.clock.forward(1000)
    with contextlib.suppress(pool_errors.NoReadyMembersError):
        world.plane.acquire("ci", count=8)


def _unwanted(world: World) -> None:
    world.pool(target=1, heartbeat_stale_after_seconds=10**6)
    world.fill()
    world.plane.autoscale("ci", zero_after_seconds=60, cooldown_seconds=1)
    world.clock.forward(3600)


def _stepped(world: World, _: object) -> None:
    """Every step has one event and starts at the size where the previous one ended."""
    size = 1
    for event in reversed(world.plane.show("ci", recent=1000).events):
        if event.kind == "pool_scaled":
            before, after = (
                event.detail.partition(";")[0].removeprefix("target_size: ").split(" -> ")
            )
            assert int(before) == size
            size = int(after)
    details = world.plane.show("ci")
    assert details.pool.target_size == size
    policy = details.autoscale
    assert policy is None or (policy.changed_us is None) == (size == 1)


def _set(world: World, _: object) -> None:
    """The policy is complete or absent, and can be set again."""
    policy = world.plane.show("ci").autoscale
    assert policy is None or (policy.miss, policy.openings) == (0.02, ("* 01:00-02:00 = 5",))
    assert ("autoscale_set" in world.kinds()) == (policy is not None)
    _policy(world.plane)


def _policy(plane: control.ControlPlane) -> None:
    plane.autoscale("ci", miss=0.02, openings=["* 01:00-02:00 = 5"])


def _off(world: World, _: object) -> None:
    has_policy = world.plane.show("ci").autoscale is not None
    assert ("autoscale_off" in world.kinds()) != has_policy


def _assembled(world: World, **fields: object) -> str:
    """Prepare a cluster whose members are ready, but not handed over."""
    cluster = world.cluster(2, **fields)
    world.plane.replenish(cluster.id)
    world.boot_all()
    return cluster.id


def _held(world: World) -> str:
    name = _assembled(world)
    world.plane.clusters.step(world.plane.show(name).pool)
    return name


def _refused_one(world: World) -> str:
    """Prepare a cluster of which the provider delivers only a part."""
    cluster = world.cluster(3, at_least=1, wait_seconds=1800)
    world.provider.after_launch = lambda _: world.provider.refuse("provider_quota_exceeded")
    world.plane.replenish(cluster.id)
    world.provider.after_launch = lambda _: None
    world.boot_all()
    world.clock.forward(1801)
    world.beat_all()
    return cluster.id


def _one_cluster(world: World, _: object) -> None:
    """A retry with the same key orders nothing twice, and the cluster is handed over as a whole."""
    name = world.cluster(2, "k").id
    world.settle()
    _is_held(world, name)
    assert len(world.plane.clusters.list(ended=True)) == 1


def _is_held(world: World, name: object, least: int = 2) -> None:
    cluster, details = world.find_cluster(str(name))
    assert cluster.state is ClusterState.HELD
    claims = [claim for claim in details.claims if claim.released_us is None]
    assert least <= len(claims) == len(world.provider.machines) <= cluster.count
    assert len({claim.batch_id for claim in claims}) == 1


def _is_ended(world: World, name: object, state: ClusterState, reason: str) -> None:
    """Ending it again changes nothing; no machine and no pool is left."""
    with contextlib.suppress(pool_errors.ClusterStateError):
        world.plane.clusters.end(str(name), state, reason)
    world.settle()
    cluster, details = world.find_cluster(str(name))
    assert (cluster.state, cluster.reason) == (ClusterState.ENDED, reason)
    assert (details.members, world.provider.machines) == ((), {})
    while world.plane.list(archived=True):
        world.plane.clusters.step(details.pool)


def _stuck(world: World) -> str:
    """Prepare a member whose machine the provider does not terminate."""
    _filled(world)
    [member, _] = world.members()
    world.provider.on_terminate = _refuse
    world.plane.terminate(member.id)
    return world.plane.member(member.id).task


def _refuse(_: str) -> None:
    raise pools.ProviderError(Reason.ERROR, "no")


def _given_up(world: World, task: object) -> None:
    """The member is an alert, or not given up yet; it ends once somebody asks for it."""
    name = str(task).partition(":")[0]
    if world.plane.member(name).abandoned_us is None:
        assert world.plane.member(name).gone_us is not None
    world.plane.terminate(name)
    assert world.plane.member(name).gone_us is not None


SCENARIOS: dict[str, Scenario] = {
    "create": Scenario(lambda _: None, lambda _w, p, _g: p.create(name="ci", template="t", target_size=1, provider="scripted")),
    "replenish": Scenario(lambda w: w.pool(target=2), lambda _w, p, _g: p.replenish("ci")),
    "a refused launch": Scenario(
        lambda w: (w.pool(target=1), w.provider.refuse("provider_quota_exceeded")),
        lambda _w, p, _g: p.replenish("ci"),
    ),
    "boot": Scenario(lambda w: (w.pool(target=2), w.plane.replenish("ci")), _boot),
    "a failed boot": Scenario(lambda w: (w.pool(target=2), w.plane.replenish("ci")), _fail),
    "acquire": Scenario(_filled, lambda _w, p, _g: p.acquire("ci", idempotency_key="k"), _one_claim),
    "acquire a batch": Scenario(_filled, lambda _w, p, _g: p.acquire("ci", count=2), _no_claim),
    "acquire cold": Scenario(lambda w: w.pool(target=0, max_size=3), _cold, _at_most_one),
    "renew": Scenario(_claimed, lambda _w, p, g: p.renew(g.claim.id, 3600)),
    "return": Scenario(_claimed, lambda _w, p, g: p.give_back(g.claim.id), _no_claim),
    "return for reuse": Scenario(
        lambda w: _claimed(w, reuse_without_reset=True),
        lambda _w, p, g: p.give_back(g.claim.id), _no_claim,
    ),
    "terminate": Scenario(_claimed, lambda _w, p, g: p.terminate(g.member.id), _no_claim),
    "cordon": Scenario(
        _filled,
        lambda w, p, _g: [p.set_cordoned(w.members()[0].id, cordoned=c) for c in (True, False)],
        lambda w, _g: [w.plane.set_cordoned(m.id, cordoned=False) for m in w.members()] and None,
    ),
    "shrink": Scenario(_filled, lambda _w, p, _g: p.update("ci", target_size=0)),
    "a new template": Scenario(_filled, lambda _w, p, _g: (p.update("ci", template="new"), p.replenish("ci"))),
    "drain": Scenario(_filled, lambda _w, p, _g: p.drain("ci"), _drained),
    "drain while claimed": Scenario(_claimed, lambda _w, p, _g: p.drain("ci"), _no_claim),
    "delete": Scenario(lambda w: (_filled(w), w.plane.drain("ci")), lambda _w, p, _g: p.delete("ci")),
    "recycle": Scenario(_stale, lambda _w, p, _g: p.recycle("ci")),
    "sweep": Scenario(_astray, lambda w, p, _g: (p.sweep("scripted"), w.clock.forward(1), p.sweep("scripted"))),
    "autoscale set": Scenario(_filled, lambda _w, p, _g: _policy(p), _set),
    "autoscale up": Scenario(_wanted, lambda _w, p, _g: p.scale("ci"), _stepped),
    "autoscale down": Scenario(_unwanted, lambda _w, p, _g: p.scale("ci"), _stepped),
    "autoscale off": Scenario(_unwanted, lambda _w, p, _g: p.autoscale_off("ci"), _off),
    "a tick": Scenario(_stale, lambda _w, p, _g: reaper.Reaper(p).tick()),
    "create a cluster": Scenario(
        lambda _: None,
        lambda _w, p, _g: p.clusters.create(cluster_order(2), "k"),
        _one_cluster,
    ),
    "hold a cluster": Scenario(
        _assembled, lambda w, p, g: p.clusters.step(w.plane.show(g).pool), _is_held
    ),
    "hold a part of a cluster": Scenario(
        _refused_one, lambda _w, p, _g: reaper.Reaper(p).tick(), lambda w, g: _is_held(w, g, 1)
    ),
    "cancel a cluster": Scenario(
        _assembled, lambda _w, p, g: p.clusters.end(g, ClusterState.ASSEMBLING, "cancelled"),
        lambda w, g: None if w.find_cluster(str(g))[0].state is ClusterState.HELD
        else _is_ended(w, g, ClusterState.ASSEMBLING, "cancelled"),
    ),
    "release a cluster": Scenario(
        _held, lambda _w, p, g: p.clusters.end(g, ClusterState.HELD, "released"),
        lambda w, g: _is_ended(w, g, ClusterState.HELD, "released"),
    ),
    "the lease of a cluster ends": Scenario(
        lambda w: (_held(w), w.clock.forward(DAY_SECONDS + 1))[0],
        lambda _w, p, _g: [reaper.Reaper(p).tick() for _ in range(2)],
        lambda w, g: _is_ended(w, g, ClusterState.HELD, "lease_expired"),
    ),
    "cancel a launch": Scenario(
        lambda w: (w.pool(target=1), w.plane.replenish("ci"), w.members()[0].task)[2],
        lambda _w, p, g: p.cancel(g),
    ),
    "give up a teardown": Scenario(_stuck, lambda _w, p, g: p.cancel(g), _given_up),
}  # fmt: skip


# `make test` kills at every third step: all of them take 45 s of CPU time, and a minute and a half on PostgreSQL.
@pytest.fixture(
    params=[
        pytest.param(("sqlite", 3), id="sqlite"),
        pytest.param(("sqlite", 1), id="sqlite-every-step", marks=pytest.mark.long),
        pytest.param(("postgresql", 1), id="postgresql", marks=pytest.mark.long),
    ]
)
def worlds(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Worlds:
    kind, every = request.param
    server = request.getfixturevalue("postgresql") if kind == "postgresql" else None
    numbers = iter(range(10_000))

    @contextlib.contextmanager
    def another() -> Iterator[World]:
        if server is None:
            url = f"sqlite:///{tmp_path / f'{next(numbers)}.db'}"
        else:
            url = pooldatabases.emptied(server)
        world = World(url)
        yield world
        world.close()

    return Worlds(another, every)


def _one_sweep(world: World) -> None:
    """After one sweep every machine has a row, and no row without a machine counts."""
    world.provider.obey()
    plane = world.another()
    for provider in plane.providers_in_use():
        plane.sweep(provider)
    members = [m for d in plane.list(archived=True) for m in plane.show(d.pool.id).members]
    assert {m.member_id for m in world.provider.machines.values()} <= {m.id for m in members}
    for member in members:
        if member.state is State.READY and member.serves:
            assert member.machine_id in world.provider.machines


@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_at_every_step(worlds: Worlds, name: str) -> None:
    scenario = SCENARIOS[name]
    at = first = list(SCENARIOS).index(name) % worlds.every
    while True:
        with worlds.another() as world:
            prepared = scenario.prepare(world)
            killer = Killer(10**6)
            plane = world.another(killer)
            killer.at = len(killer.passed) + at
            killed = False
            try:
                scenario.act(world, plane, prepared)
            except KilledError:
                killed = True
            world.check()
            _one_sweep(world)
            world.settle()
            scenario.after(world, prepared)
            world.settle()
            world.check_settled()
        if not killed:
            break
        at += worlds.every
    assert at >= max(2, first + 1), "nothing was killed"
