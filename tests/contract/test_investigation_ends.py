"""Investigations with a second actor between two steps, or with an end in place of a resume."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import investigated
import pytest
from investigated import KIND, PLAN, S, World
from killer import KilledError

from overnight.investigations import decisions, driver
from overnight.model.investigation import ArmRun, ArmState, Investigation, Phase
from overnight.model.plan import ArmKind, ArmPlan, ExperimentPlan, WaitPlan
from overnight.model.protocol import TaskKind, TaskState
from overnight.model.reservation import ReservationState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from overnight.model.event import Event

HOT = ArmPlan(kind=ArmKind.HOT, age={"memory-cgroups": 500}, changes=("first", "second"))


@pytest.fixture
def world(url: str) -> Iterator[World]:
    new_world = World(url)
    yield new_world
    new_world.close()


class SlowHosts(investigated.Hosts):
    """Tasks end some time after they are asked to stop, and an undo takes its time."""

    stop_seconds = 0.0
    undo_seconds = 0.0

    def __init__(self, clock: Any) -> None:
        super().__init__(clock)
        self.stops: dict[str, int] = {}

    def start(self, host: str, task_id: str, kind: TaskKind, arguments: Mapping[str, Any]) -> None:
        is_new, before = task_id not in self.tasks, dict(self.changed)
        super().start(host, task_id, kind, arguments)
        if is_new and kind is TaskKind.UNDO:
            task, self.changed = self.tasks[task_id], before
            task.state, task.began_us = (
                TaskState.RUNNING,
                self.clock() + round(self.undo_seconds * S),
            )

    def look(self, task_ids: Sequence[str]) -> Mapping[str, Any]:
        found = super().look(task_ids)
        for task in self.tasks.values():
            if task.kind is TaskKind.UNDO and task.state is TaskState.DONE:
                self.changed.pop((task.host, task.arguments["task"]), None)
        return found

    def stop(self, host: str, task_id: str) -> None:
        asked_us = self.stops.setdefault(task_id, self.clock())
        if self.clock() - asked_us >= self.stop_seconds * S:
            super().stop(host, task_id)


def observe(world: World, made: Investigation, at: int = 0) -> driver.Driver:
    """Drive until an arm is observed, and keep the driver."""
    driven = world.step_until(made, Phase.ARMS)
    for _ in range(200):
        if driven.investigation.arms[at].state is ArmState.RUNNING:
            return driven
        driven.step()
        world.clock.forward(1)
    raise AssertionError


def finish(world: World, driven: driver.Driver) -> Investigation:
    while driven.step().phase is not Phase.ENDED:
        world.clock.forward(1)
    return world.plane.show(driven.investigation.id)


def begun(world: World, kind: TaskKind) -> int:
    return sum(task.kind is kind for task in world.hosts.tasks.values())


# stop


def test_a_stop_after_a_crash_releases_reservations_that_only_their_purpose_names(
    world: World,
) -> None:
    made, other = world.create(), world.create()

    def die(step: str) -> None:
        if step == "create reservation: after":
            raise KilledError(step)

    world.reserved.steps = die
    driven = driver.take(world.plane.context, made, lambda _: None)
    with pytest.raises(KilledError):
        driven.step()
    world.reserved.steps = lambda _: None
    assert world.plane.show(made.id).reservations == ()
    [lost] = world.reserved.all
    elsewhere = world.step_until(other, Phase.ARMS).investigation.reservations[0]
    world.plane.stop(made.id)
    ended = world.run(made, world.another())
    assert ended.reason == "stopped on request"
    states = {name: r.state for name, r in world.reserved.all.items()}
    assert states == {lost: ReservationState.RELEASED, elsewhere: ReservationState.ACTIVE}
    assert ended.arms == ()


def test_a_stop_before_anything_was_reserved_reserves_nothing(world: World) -> None:
    made = world.create()
    world.plane.stop(made.id)
    ended = world.run(made)
    assert (ended.reason, ended.reservations) == ("stopped on request", ())
    assert world.reserved.all == {}


def test_a_stop_while_the_agents_are_awaited_begins_no_arm(world: World) -> None:
    made = world.create()
    driven = world.step_until(made, Phase.CHECK)
    world.plane.stop(made.id)
    ended = finish(world, driven)
    assert (ended.reason, ended.arms) == ("stopped on request", ())
    world.check_clean()


def test_a_stop_while_a_change_is_due_makes_no_other(world: World) -> None:
    made = world.create(arms=(HOT,))
    driven = world.step_until(made, Phase.ARMS)
    driven.step()  # writes the tasks
    driven.step()  # asks for the first of each host
    assert begun(world, TaskKind.CHANGE) == 0
    world.plane.stop(made.id)
    finish(world, driven)
    assert begun(world, TaskKind.CHANGE) == 0
    world.check_clean()


def test_a_stop_during_an_experiment_ends_and_undoes_it(world: World) -> None:
    long = ExperimentPlan(allow=("mask-unit",), seconds=600.0)
    made = world.create(arms=PLAN.arms[1:], experiment=long)
    driven = world.step_until(made, Phase.EXPERIMENT)
    for _ in range(100):
        experiment = driven.investigation.experiment
        if experiment and experiment.arm.state is ArmState.RUNNING:
            break
        driven.step()
        world.clock.forward(1)
    world.plane.stop(made.id)
    ended = finish(world, driven)
    assert ended.experiment is not None
    assert ended.experiment.undone
    assert ended.experiment.arm.ended_us - ended.experiment.arm.began_us < 30 * S
    assert ended.reason == "stopped on request"
    world.check_clean()


def test_a_slow_stop_leaves_a_slow_undo_its_own_time(world: World) -> None:
    slow = world.hosts = SlowHosts(world.clock)
    slow.stop_seconds, slow.undo_seconds = decisions.STOP_SECONDS - 15, 130.0
    made = world.create(arms=(HOT,), wait=WaitPlan(seconds=900.0, events=(KIND,)), experiment=ExperimentPlan())  # fmt: skip
    driven = observe(world, made)
    driven.step()
    world.plane.stop(made.id)
    ended = finish(world, driven)
    [arm] = ended.arms
    assert not decisions.list_left(arm)
    assert not any("not undone" in text for text in world.texts(made))
    # What was observed until then is not lost by a stop that takes long.
    assert {task.state for task in decisions.list_stage(arm, decisions.Stage.OBSERVE)} == {TaskState.FAILED}  # fmt: skip
    world.check_clean()


def test_an_undo_that_never_ends_is_reported_and_the_hosts_are_given_back(world: World) -> None:
    slow = world.hosts = SlowHosts(world.clock)
    slow.undo_seconds = 100_000.0
    made = world.create(arms=(HOT,), experiment=ExperimentPlan())
    ended = world.run(made)
    [arm] = ended.arms
    # The first of each host does not end, so the second, and what was aged, never begin.
    assert len(decisions.list_left(arm)) == 6
    assert sum("not undone" in text for text in world.texts(made)) == 6
    assert {r.state for r in world.reserved.all.values()} == {ReservationState.RELEASED}


# changes


def test_two_changes_are_undone_in_reverse_order_one_after_the_other(world: World) -> None:
    slow = world.hosts = SlowHosts(world.clock)
    slow.undo_seconds = 5.0
    ended = world.run(world.create(arms=(HOT,), experiment=ExperimentPlan()))
    [arm] = ended.arms
    for host in arm.hosts:
        done = [t.id for t in arm.tasks if t.host == host and t.kind is TaskKind.CHANGE]
        undone = [t for t in slow.tasks.values() if t.host == host and t.kind is TaskKind.UNDO]
        assert [t.arguments["task"] for t in undone] == done[::-1]
        first, second = (task.began_us for task in undone)
        assert second - first >= slow.undo_seconds * S
        # What was aged comes last: it was made first.
        [aged] = [t for t in slow.tasks.values() if t.host == host and t.arguments.get("state") == "undo"]  # fmt: skip
        assert aged.began_us >= second
    world.check_clean()


@pytest.mark.parametrize("state", [ReservationState.RELEASING, ReservationState.RELEASED])
def test_a_reservation_that_ends_while_changes_are_due_makes_none(
    world: World, state: ReservationState
) -> None:
    made = world.create(arms=(HOT,))
    driven = world.step_until(made, Phase.ARMS)
    driven.step()
    driven.step()
    [mine] = world.reserved.all
    world.reserved.change(mine, state=state, reason="released by hand")
    ended = finish(world, driven)
    assert begun(world, TaskKind.CHANGE) == 0
    assert ended.reason == f"{mine} has ended: released by hand"
    world.check_clean()


def test_a_reservation_that_ends_before_the_experiment_makes_no_change(world: World) -> None:
    made = world.create(arms=PLAN.arms[1:])
    driven = world.step_until(made, Phase.EXPERIMENT)
    before = begun(world, TaskKind.CHANGE)
    [mine] = world.reserved.all
    world.reserved.change(mine, state=ReservationState.RELEASING, reason="released by hand")
    ended = finish(world, driven)
    assert ended.experiment is None
    assert begun(world, TaskKind.CHANGE) == before
    assert ended.reason == f"{mine} has ended: released by hand"


def test_a_reservation_that_ends_while_agents_are_awaited_begins_no_arm(world: World) -> None:
    made = world.create()
    driven = world.step_until(made, Phase.CHECK)
    [mine] = world.reserved.all
    world.reserved.change(mine, state=ReservationState.RELEASING, reason="released by hand")
    ended = finish(world, driven)
    assert ended.arms == ()
    assert ended.reason == f"{mine} has ended: released by hand"


# windows


class LateHosts(investigated.Hosts):
    """A window can be kept only once its time is over, as in a fleet."""

    def __init__(self, clock: Any) -> None:
        super().__init__(clock)
        self.asked_seconds: set[int] = set()

    def pin(self, host: str, event: Event) -> None:
        self.asked_seconds.add((self.clock() - event.time_us) // S)
        if self.clock() >= event.time_us + 130 * S:
            super().pin(host, event)


def test_windows_of_hosts_of_other_arms_are_pinned_also_those_that_end_later(world: World) -> None:
    late = world.hosts = LateHosts(world.clock)
    arms = (
        ArmPlan(kind=ArmKind.COLD, hosts=1),
        dataclasses.replace(PLAN.arms[1], hosts=1),
        ArmPlan(kind=ArmKind.PURGED, hosts=1),
    )
    wait = WaitPlan(seconds=900.0, events=(KIND,))
    ended = world.run(world.create(arms=arms, wait=wait, experiment=ExperimentPlan()))
    events = {seen.event for arm in ended.arms for seen in arm.occurrences}
    assert len(events) == 1
    assert late.pins == {(f"host-{n}", event) for n in range(3) for event in events}
    # Ten minutes after the event nobody asks for it again.
    assert 590 < max(late.asked_seconds) <= 600


def test_windows_are_pinned_on_hosts_that_left_their_arm_or_wait_for_theirs(world: World) -> None:
    made = world.create(arms=(PLAN.arms[1], ArmPlan(kind=ArmKind.COLD)), experiment=ExperimentPlan())  # fmt: skip
    world.hosts.refuses.add(("host-1", TaskKind.CHANGE))  # so it leaves the hot arm
    ended = world.run(made)
    hot, cold = ended.arms
    assert (hot.hosts, cold.hosts) == (("host-0",), ("host-0", "host-1"))
    events = {seen.event for seen in hot.occurrences}
    assert events
    assert {(h, e) for h in ("host-0", "host-1") for e in events} <= world.hosts.pins
    world.check_clean()  # also what was aged on the host that left


def test_an_event_that_is_reported_after_the_arm_ended_still_belongs_to_it(world: World) -> None:
    made = world.create(arms=PLAN.arms[1:], experiment=ExperimentPlan())
    driven = observe(world, made)
    world.hosts.fault = None
    while driven.investigation.arms[0].state is ArmState.RUNNING:
        driven.step()
        world.clock.forward(1)
    run: ArmRun = driven.investigation.arms[0]
    assert (run.state, run.occurrences) == (ArmState.ENDING, ())
    inside, after = run.ended_us - 5 * S, run.ended_us + 1
    for at in (inside, run.ended_us, after):
        event = investigated.Event(at, KIND, host="host-0", id=f"late-{at}", text="reset")
        world.hosts.events.append(event)
    ended = finish(world, driven)
    found = [seen.event for seen in ended.arms[0].occurrences]
    assert found == [f"late-{inside}", f"late-{run.ended_us}"]
