"""Drivers of investigations killed at every step: another one goes on, and every host is given back as it was."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pooldatabases
import pytest
from investigated import PLAN, World
from killer import KilledError, Killer

from overnight.investigations import driver
from overnight.model.investigation import Investigation, Outcome, Phase
from overnight.model.plan import ArmKind, ArmPlan, WaitPlan

if TYPE_CHECKING:
    import pathlib


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def where(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'pools.db'}"
    return pooldatabases.emptied(request.getfixturevalue("postgresql"))


def _kill_at(world: World, made: Investigation, at: int) -> bool:
    """Run an investigation and kill its driver at a step; return whether there was such a step."""
    killer = Killer(at)
    world.reserved.steps = killer
    try:
        world.run(made, world.another(killer))
    except KilledError:
        return True
    finally:
        world.reserved.steps = lambda _: None
    return False


@pytest.mark.timeout(600)
@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.long)])
def test_every_kill_is_resumed(where: str, every: int) -> None:
    at = 0
    while True:
        world = World(where)
        try:
            made = world.create(arms=PLAN.arms[1:])
            going = _kill_at(world, made, at)
            ended = world.plane.show(made.id)
            if ended.phase is not Phase.ENDED:
                ended = world.run(made, world.another())
            assert (ended.phase, ended.outcome) == (Phase.ENDED, Outcome.REPRODUCED), at
            assert ended.experiment is not None
            assert ended.experiment.undone
            assert len(world.reserved.all) == 1, at  # an order is not given twice
            world.check_clean()
        finally:
            world.close()
        if not going:
            break
        at += every
    assert at > 150


@pytest.mark.timeout(600)
@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.long)])
def test_each_group_of_hosts_is_reserved_once(where: str, every: int) -> None:
    cold = ArmPlan(kind=ArmKind.COLD, hosts=1, up_at_most=3600.0)
    hot = ArmPlan(kind=ArmKind.HOT, hosts=2, up_at_least=86_400.0)
    for at in range(0, 60, every):
        world = World(where)
        made = world.create(arms=(cold, hot), wait=WaitPlan(seconds=2.0))
        _kill_at(world, made, at)
        world.run(made, world.another())
        orders = [each.order for each in world.reserved.all.values()]
        bounds = [(o.count, o.min_uptime_seconds, o.max_uptime_seconds) for o in orders]
        assert bounds == [(1, 0.0, 3600.0), (2, 86_400.0, 0.0)], at
        arms = [arm.hosts for arm in world.plane.show(made.id).arms]
        assert arms == [("host-0",), ("host-1", "host-2")]
        world.check_clean()
        world.close()


def test_a_driver_that_is_killed_again_and_again_still_ends(where: str) -> None:
    chance, world = random.Random(18), World(where)
    made = world.create()
    for _ in range(200):
        killer = Killer(chance.randrange(1, 60))
        world.reserved.steps = killer
        try:
            world.run(made, world.another(killer))
            break
        except KilledError:
            world.clock.forward(chance.uniform(0, 5))
    ended = world.plane.show(made.id)
    assert ended.phase is Phase.ENDED
    assert len(world.reserved.all) == 1
    world.check_clean()
    world.close()


def test_servers_that_race_drive_each_step_once(where: str) -> None:
    world = World(where)
    made = world.create()
    planes = [world.another() for _ in range(3)]
    for turn in range(400):
        plane = planes[turn % 3]
        read = plane.show(made.id)
        if read.phase is Phase.ENDED:
            break
        # Another one takes it between the read and the take of this one.
        if turn % 7 == 3:
            taken = driver.take(planes[(turn + 1) % 3].context, read, lambda _: None)
            with pytest.raises(driver.FenceLostError):
                driver.take(plane.context, read, lambda _: None)
            taken.free()
        plane.tick(lambda _: None)
        world.clock.forward(1)
    assert world.plane.show(made.id).phase is Phase.ENDED
    assert len(world.reserved.all) == 1
    world.check_clean()
    world.close()
