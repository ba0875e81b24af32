"""A driver is killed at every step, before and after each commit and call: the hosts are given back.

Afterwards either another driver or the janitor alone works; both leave none of our marks, and all of others.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING

import pooldatabases
import pytest
import reservedhosts
from killer import KilledError, Killer
from reservedhosts import World

from overnight.model.reservation import ReservationState, Workload
from overnight.reservations import context, decisions

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable

    from overnight.reservations import control

ORDER = dataclasses.replace(reservedhosts.ORDER, seconds=600)
LATER = ORDER.seconds + decisions.GRACE_SECONDS + 1


def _reserve(world: World, plane: control.ControlPlane, _: object) -> None:
    plane.reserve(plane.preflight(dataclasses.replace(ORDER, start_agent=True)))


def _reserve_and_evict(world: World, plane: control.ControlPlane, _: object) -> None:
    plane.reserve(plane.preflight(dataclasses.replace(ORDER, evict=True)))


def _reserve_beside_another(world: World, plane: control.ControlPlane, _: object) -> None:
    """The other takes a host after the preflight, and keeps it."""
    plan = plane.preflight(ORDER)
    killer, world.platform.steps = world.platform.steps, lambda _: None
    world.reserve(hosts=("a",), owner="team-b", seconds=86_400)
    world.platform.steps = killer
    plane.reserve(plan)


SCENARIOS: dict[str, tuple[Callable[[World], object], Callable[..., None]]] = {
    "reserve": (lambda world: None, _reserve),
    "evict": (
        lambda world: world.platform.hosts["a"].workloads.append(Workload("web-1", "pod")),
        _reserve_and_evict,
    ),
    "taken": (lambda world: None, _reserve_beside_another),
    "release": (
        lambda world: world.reserve(seconds=600).id,
        lambda world, plane, made: plane.release(made),
    ),
    "renew": (
        lambda world: (world.reserve(seconds=300, max_seconds=600, renew=True), world.clock.forward(200)),
        lambda world, plane, _: plane.tick(),
    ),
    "expire": (
        lambda world: (world.reserve(seconds=600), world.clock.forward(601)),
        lambda world, plane, _: plane.tick(),
    ),
}  # fmt: skip


def _kill_at(world: World, scenario: str, at: int) -> bool:
    """Run a scenario and kill it at a step; return whether there was such a step."""
    prepare, act = SCENARIOS[scenario]
    prepared = prepare(world)
    killer = Killer(at)
    doomed = world.another(killer)
    world.platform.steps = killer
    try:
        act(world, doomed, prepared)
    except KilledError:
        return True
    finally:
        world.platform.steps = lambda _: None
    return False


def _others(world: World) -> set[str]:
    return {n for n, h in world.platform.hosts.items() if h.claim and h.claim.owner == "team-b"}


# `make test` kills at every third step: all of them take 25 s, and minutes on PostgreSQL.
@pytest.fixture(
    params=[
        pytest.param(("sqlite", 3), id="sqlite"),
        pytest.param(("sqlite", 1), id="sqlite-every-step", marks=pytest.mark.long),
        pytest.param(("postgresql", 1), id="postgresql", marks=pytest.mark.long),
    ]
)
def where(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> tuple[str, int]:
    """Return a database, and which steps are killed: all, or every third."""
    kind, every = request.param
    if kind == "sqlite":
        return f"sqlite:///{tmp_path / 'pools.db'}", every
    return pooldatabases.emptied(request.getfixturevalue("postgresql")), every


DRIVER, JANITOR = "another driver", "the janitor alone"
# Each takes 3 to 15 s.
LONG = {
    ("evict", DRIVER),
    ("taken", DRIVER),
    ("renew", DRIVER),
    ("expire", DRIVER),
    ("taken", JANITOR),
}


@pytest.mark.parametrize(
    ("scenario", "then"),
    [
        pytest.param(*case, marks=[pytest.mark.long] if case in LONG else [])
        for case in itertools.product(SCENARIOS, (DRIVER, JANITOR))
    ],
)
def test_every_crash_gives_the_hosts_back(where: tuple[str, int], scenario: str, then: str) -> None:
    url, every = where
    at = list(SCENARIOS).index(scenario) % every
    while True:
        world = World(url)
        try:
            if not _kill_at(world, scenario, at):
                _end_others(world)
                break
            kept = _others(world)
            if then == DRIVER:
                world.clock.forward(context.DRIVER_SECONDS + 1)
                world.tick_until(LATER, every=LATER / 3)
            else:
                world.clock.forward(LATER)
                world.clean()
            assert {*world.platform.marked} == kept, at
            world.platform.check_others()
            # The rows are completed by a driver, however late, and touch nobody else.
            world.clock.forward(context.DRIVER_SECONDS + 1)
            world.plane.tick()
            assert {*world.platform.marked} == kept
            assert {r.order.owner for r in world.plane.list()} <= {"team-b"}
            _end_others(world)
        finally:
            world.close()
        at += every
    assert at > 15


def _end_others(world: World) -> None:
    for reservation in world.plane.list():
        world.plane.release(reservation.id)


def test_a_killed_preparation_holds_hosts_for_its_own_time_only(url: str) -> None:
    """12 h were asked for, but nobody got the hosts: they are free after the 15 min of the preparation."""
    world = World(url)
    doomed = world.another(Killer(20))
    with pytest.raises(KilledError):
        doomed.reserve(doomed.preflight(dataclasses.replace(ORDER, seconds=12 * 3600)))
    assert world.platform.marked
    world.clock.forward(ORDER.prepare_seconds + decisions.GRACE_SECONDS + 1)
    world.clean()
    assert world.platform.marked == []
    world.close()


def test_another_driver_completes_a_reservation(url: str) -> None:
    world = World(url)
    _kill_at(world, "reserve", 20)
    [made] = world.plane.list()
    assert made.state is ReservationState.PREPARING
    assert world.plane.tick() == ()  # the other one may still run
    world.clock.forward(context.DRIVER_SECONDS + 1)
    [done] = world.plane.tick()
    assert (done.state, done.fence, len(done.held)) == (ReservationState.ACTIVE, 2, 2)
    world.close()
