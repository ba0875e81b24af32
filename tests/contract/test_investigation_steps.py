"""Steps of an investigation's driver: hosts, agents, failures and experiments, more than one of each."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Any

import pytest
from investigated import AGENT, KIND, PLAN, S, World

from overnight import errors
from overnight.investigations import context, decisions, driver
from overnight.model.investigation import Investigation, Outcome, Phase
from overnight.model.plan import ArmKind, ArmPlan, ExperimentPlan, HostsPlan, WaitPlan
from overnight.model.protocol import TaskKind
from overnight.model.reservation import Check, CheckState, HostState, ReservationState

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator

    from overnight.model.reservation import Reservation

OWN = (ArmPlan(kind=ArmKind.COLD, hosts=1), dataclasses.replace(PLAN.arms[1], hosts=2))
NO_EXPERIMENT = ExperimentPlan()


@pytest.fixture
def world(tmp_path: pathlib.Path) -> Iterator[World]:
    new_world = World(f"sqlite:///{tmp_path / 'db'}")
    yield new_world
    new_world.close()


def drive(world: World, made: Investigation) -> driver.Driver:
    return driver.take(world.plane.context, world.plane.show(made.id), lambda _: None)


def finish(world: World, driven: driver.Driver) -> Investigation:
    while driven.step().phase is not Phase.ENDED:
        world.clock.forward(1)
    return driven.investigation


# reservations


def test_a_reservation_that_ends_before_it_is_active_ends_the_investigation(world: World) -> None:
    def create(order: Any) -> Reservation:
        made = type(world.reserved).create(world.reserved, order)
        return world.reserved.change(made.id, state=ReservationState.RELEASED, reason="no capacity")

    world.hooks.reserve = create
    ended = world.run(world.create())
    [mine] = world.reserved.all
    assert ended.reason == f"{mine} could not be made: no capacity"
    assert (ended.outcome, ended.arms) == (Outcome.FAILED, ())


def test_no_arm_begins_before_every_group_of_hosts_is_reserved(world: World) -> None:
    arms = (dataclasses.replace(OWN[0], up_at_most=60.0), OWN[1])
    made = world.create(arms=arms, experiment=NO_EXPERIMENT)
    show = world.reserved.show
    until_us = world.clock() + 20 * S

    def slow(reservation_id: str) -> Reservation:
        if reservation_id[-1] == "1" and world.clock() < until_us:
            return world.reserved.all[reservation_id]
        return show(reservation_id)

    world.reserved.show = slow  # type: ignore[method-assign]
    driven = world.step_until(made, Phase.CHECK)
    assert world.clock() >= until_us
    assert "reserved host-0, host-1, host-2" in world.texts(made)
    finish(world, driven)
    world.check_clean()


def test_only_hosts_that_are_held_get_into_an_arm(world: World) -> None:
    made = world.create(experiment=NO_EXPERIMENT)
    driven = drive(world, made)
    while not world.reserved.all:
        driven.step()
    [mine] = world.reserved.all.values()
    gone = dataclasses.replace(mine.hosts[0], state=HostState.RELEASED)
    world.reserved.change(mine.id, hosts=(gone, mine.hosts[1]))
    ended = finish(world, driven)
    assert {arm.hosts for arm in ended.arms} == {("host-1",)}
    assert "reserved host-1" in world.texts(made)


def test_agents_are_awaited_for_five_minutes_and_then_their_absence_is_noted(world: World) -> None:
    late = Check("agent", CheckState.UNKNOWN, "no report", "start it")
    clock = Check("clock", CheckState.FAILED, "4 s off", "run chrony")
    other = Check("load-constancy", CheckState.UNKNOWN, "not measured")
    made = world.create(experiment=NO_EXPERIMENT)
    world.clock.forward(400)  # the reservation takes its time, too
    driven = world.step_until(made, Phase.CHECK)
    began_us = world.clock() - S
    [mine] = world.reserved.all.values()
    first, second = mine.hosts
    hosts = (first, dataclasses.replace(second, checks=(late, clock, other)))
    world.reserved.change(mine.id, hosts=hosts)
    world.clock.now_us = began_us + 299 * S
    assert driven.step().phase is Phase.CHECK
    world.clock.now_us = began_us + 300 * S
    assert driven.step().phase is Phase.ARMS
    noted = [text for text in world.lines(made) if text.startswith("host-")]
    assert noted == ["host-1: agent: no report; start it", "host-1: clock: 4 s off; run chrony"]


def test_agents_that_report_are_not_awaited(world: World) -> None:
    made = world.create(experiment=NO_EXPERIMENT)
    driven = world.step_until(made, Phase.CHECK)
    assert driven.step().phase is Phase.ARMS
    assert {check for r in world.reserved.all.values() for h in r.hosts for check in h.checks} == {AGENT}  # fmt: skip


def test_this_machine_needs_no_agent_and_its_reservation_is_driven_twice_a_minute(world: World) -> None:  # fmt: skip
    driven_at: list[int] = []

    def drives(reservation: Reservation) -> None:
        world.reserved.show(reservation.id)
        driven_at.append(world.clock())

    world.reserved.drive = drives  # type: ignore[assignment,method-assign]
    world.hosts.fault = None
    made = world.create(hosts=HostsPlan(), wait=WaitPlan(seconds=200.0), experiment=NO_EXPERIMENT)
    driven = drive(world, made)
    while not world.reserved.all:
        driven.step()
    [mine] = world.reserved.all.values()
    checks = (Check("agent", CheckState.FAILED, "none"), Check("clock", CheckState.PASSED, "ok"))
    world.reserved.change(mine.id, hosts=tuple(dataclasses.replace(h, checks=checks) for h in mine.hosts))  # fmt: skip
    while driven.investigation.phase in (Phase.RESERVE, Phase.CHECK):
        driven.step()
    assert world.clock() == made.made_us, "nobody waited"
    ended = finish(world, driven)
    assert ended.outcome is Outcome.NOT_REPRODUCED
    assert not [text for text in world.lines(made) if "agent" in text]
    later = [at for at in driven_at if at > made.made_us]
    gaps = {(after - before) // S for before, after in itertools.pairwise(later)}
    assert gaps == {30}


def test_hosts_elsewhere_are_driven_by_the_server_alone(world: World) -> None:
    def refuse(_: Reservation) -> None:
        raise AssertionError

    world.reserved.drive = refuse  # type: ignore[assignment,method-assign]
    world.hosts.used = 5
    ended = world.run(world.create())
    assert (ended.outcome, ended.reason) == (Outcome.REPRODUCED, "")


def test_agents_report_to_the_server_that_asked_for_their_hosts(world: World) -> None:
    asked = dataclasses.replace(world.plane.context, endpoint=lambda: "https://here")
    made = world.create()
    driver.take(asked, made, lambda _: None).step()
    [mine] = world.reserved.all.values()
    assert (mine.order.agent_server, mine.order.owner) == ("https://here", "ops@desk")


# failures


def test_failures_that_are_not_in_a_row_end_nothing(world: World) -> None:
    listed, number = world.hosts.list_events, 0

    def fail_twice_of_three(*asked: Any) -> Any:
        nonlocal number
        number += 1
        if number % 3:
            raise errors.CannotError("no answer", why="timed out", todo="")
        return listed(*asked)

    world.hosts.list_events = fail_twice_of_three  # type: ignore[method-assign]
    made = world.create(arms=PLAN.arms[1:], wait=WaitPlan(seconds=300.0, events=(KIND,)))
    ended = world.run(made)
    assert (ended.outcome, ended.reason) == (Outcome.REPRODUCED, "")
    assert world.texts(made).count("no answer: timed out") > decisions.MAX_ATTEMPTS


def test_the_first_reason_of_an_end_stays_while_the_release_is_tried_again(world: World) -> None:
    released = world.reserved.release
    calls = 0

    def fail_ten_times(*asked: str) -> Reservation:
        nonlocal calls
        calls += 1
        if calls <= 10:
            raise errors.CannotError("no answer", why="timed out", todo="")
        return released(*asked)

    world.reserved.release = fail_ten_times  # type: ignore[method-assign]
    for stop, reason in ((True, "stopped on request"), (False, "")):
        calls = 0
        made = world.create(arms=PLAN.arms[1:])
        driven = world.step_until(made, Phase.ARMS)
        if stop:
            world.plane.stop(made.id)
        driven.free()
        ended = world.run(made)
        assert ended.reason == reason
        assert world.texts(made).count("no answer: timed out") == 1
        assert [text for text in world.texts(made) if "ending" in text] == ["ending: stopped on request"] * stop  # fmt: skip
        world.check_clean()


def test_every_reservation_that_is_not_released_is_named(world: World) -> None:
    world.reserved.stuck = True
    arms = (dataclasses.replace(OWN[0], up_at_most=60.0), OWN[1])
    made = world.create(arms=arms, experiment=NO_EXPERIMENT)
    ended = world.run(made)
    named = [text.split()[0] for text in world.texts(made) if "is not released yet" in text]
    assert named == sorted(world.reserved.all)
    assert ended.phase is Phase.ENDED
    reasons = {each.reason for each in world.reserved.all.values()}
    assert reasons == {f"{made.id} has ended"}


# experiments


def test_an_experiment_is_made_on_the_hosts_of_its_arm(world: World) -> None:
    ended = world.run(world.create(arms=OWN))
    experiment = ended.experiment
    assert experiment is not None
    assert (experiment.arm.kind, experiment.arm.hosts) == (ArmKind.FIXED, ("host-1", "host-2"))
    assert (experiment.change, experiment.why) == ("mask-unit x", "x is the cause")
    assert "experiment: mask-unit x; x is the cause" in world.texts(ended)
    assert "experiment: observing host-1, host-2" in world.texts(ended)


def test_an_experiment_that_could_not_be_undone_says_so(world: World) -> None:
    world.hosts.refuses |= {("host-0", TaskKind.UNDO)}
    ended = world.run(world.create(arms=PLAN.arms[1:]))
    assert ended.experiment is not None
    assert ended.experiment.undone is False
    left = [text for text in world.lines(ended) if "not undone" in text]
    assert left
    assert all(text.startswith("host-0: ") and text.endswith(": not allowed") for text in left)


def test_without_a_change_that_tests_the_cause_its_absence_is_explained(world: World) -> None:
    world.hooks.choose_experiment = lambda _: context.Proposal("nothing tests it", "mask x")  # type: ignore[method-assign]
    ended = world.run(world.create(arms=PLAN.arms[1:]))
    assert ended.experiment is None
    assert "no experiment: nothing tests it" in world.texts(ended)
