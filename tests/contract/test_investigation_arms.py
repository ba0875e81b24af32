"""Arms of an investigation: what is measured, noted and asked for, with values on both sides of each limit."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import investigated
import pytest
from investigated import KIND, PLAN, S, World

from overnight.model.investigation import ArmState, Investigation, Outcome, Phase
from overnight.model.plan import ArmKind, ArmPlan, ExperimentPlan, LoadPlan, WaitPlan
from overnight.model.protocol import TaskKind, TaskState

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator, Mapping

    from overnight.investigations import driver

NO_EXPERIMENT = ExperimentPlan()


@pytest.fixture
def world(tmp_path: pathlib.Path) -> Iterator[World]:
    new_world = World(f"sqlite:///{tmp_path / 'db'}")
    yield new_world
    new_world.close()


def finish(world: World, driven: driver.Driver) -> Investigation:
    while driven.step().phase is not Phase.ENDED:
        world.clock.forward(1)
    return driven.investigation


class HangingHosts(investigated.Hosts):
    """Some tasks never end by themselves, and some fail immediately."""

    hangs: tuple[str, TaskKind, str] = ("", TaskKind.AGE, "")  # host, kind, state of kind age
    fails: Mapping[TaskKind, tuple[str, ...]] = {}  # the details, one after the other

    def __init__(self, clock: Any) -> None:
        super().__init__(clock)
        self.stopped: dict[str, int] = {}

    def start(self, host: str, task_id: str, kind: TaskKind, arguments: Mapping[str, Any]) -> None:
        tries = sum((t.host, t.kind) == (host, kind) for t in self.tasks.values())
        super().start(host, task_id, kind, arguments)
        task = self.tasks[task_id]
        if (host, kind) == self.hangs[:2]:
            task.state, task.arguments = TaskState.RUNNING, {"seconds": 1e9}
        if texts := self.fails.get(kind):
            task.state, task.detail = TaskState.FAILED, texts[min(tries, len(texts) - 1)]

    def stop(self, host: str, task_id: str) -> None:
        self.stopped.setdefault(task_id, self.clock())
        super().stop(host, task_id)


def test_a_host_is_measured_for_a_minute_before_its_load_is_stopped(world: World) -> None:
    hanging = world.hosts = HangingHosts(world.clock)
    made = world.create(arms=PLAN.arms[1:], wait=WaitPlan(seconds=900.0, events=(KIND,), count=1), experiment=NO_EXPERIMENT)  # fmt: skip
    driven = world.step_until(made, Phase.ARMS)
    while driven.investigation.arms[0].state is not ArmState.ENDING:
        driven.step()
        world.clock.forward(1)
    hanging.hangs = ("host-1", TaskKind.AGE, "")
    run = driven.investigation.arms[0]
    finish(world, driven)
    loads = [at for name, at in hanging.stopped.items() if hanging.tasks[name].kind is TaskKind.LOAD]  # fmt: skip
    assert len(loads) == 2
    assert {(at - run.ended_us) // S for at in loads} == {60}


def test_hosts_that_are_measured_at_once_are_stopped_at_once(world: World) -> None:
    hanging = world.hosts = HangingHosts(world.clock)
    made = world.create(arms=PLAN.arms[1:], wait=WaitPlan(seconds=900.0, events=(KIND,), count=1), experiment=NO_EXPERIMENT)  # fmt: skip
    [run] = world.run(made).arms
    assert max(hanging.stopped.values()) - run.ended_us < 5 * S


def test_what_fails_in_the_same_way_again_is_noted_once(world: World) -> None:
    hanging = world.hosts = HangingHosts(world.clock)
    hanging.fails = {TaskKind.LOAD: ("no core", "no core", "no memory")}
    ended = world.run(world.create(arms=PLAN.arms[1:], experiment=NO_EXPERIMENT))
    failed = [text for text in world.lines(ended) if "failed" in text]
    assert sorted(failed) == [
        f"host-{n}: arm hot: load cpu failed: {why}" for n in range(2) for why in ("no core", "no memory")
    ]  # fmt: skip


def test_a_task_that_no_host_takes_is_noted_with_its_reason(world: World) -> None:
    world.hosts.gone.add("host-1")
    ended = world.run(world.create(experiment=NO_EXPERIMENT))
    text = "host-1: arm cold: age uptime failed: no agent reports from host-1: it is gone"
    assert text in world.lines(ended)


def test_an_arm_without_hosts_says_why_it_ended(world: World) -> None:
    made = world.create(arms=(ArmPlan(kind=ArmKind.HOT),), wait=WaitPlan(seconds=600.0))
    driven = world.step_until(made, Phase.ARMS)
    for _ in range(5):
        driven.step()
        world.clock.forward(1)
    world.hosts.gone |= {"host-0", "host-1"}
    [arm] = finish(world, driven).arms
    assert (arm.hosts, arm.note) == ((), "no host of this arm can be observed")
    assert arm.ended_us - arm.began_us < 60 * S


@pytest.mark.parametrize(
    ("record", "dose"),
    [
        ({"busy": None, "seconds": 5.0, "cores": 2}, {"load": 0.0, "cores": 2.0}),
        ({"busy": 0.5, "seconds": 4.9, "cores": 2}, {}),
    ],
)
def test_a_recording_of_a_few_seconds_has_not_observed_an_arm(
    world: World, record: dict[str, Any], dose: dict[str, float]
) -> None:
    world.hosts.fault = None
    world.hosts.results[TaskKind.RECORD] = record
    ended = world.run(world.create(experiment=NO_EXPERIMENT))
    assert ended.arms[0].doses["host-0"] == {**dose, "zombies": 7.0, "uptime_s": 60.0}
    assert ended.outcome is (Outcome.NOT_REPRODUCED if dose else Outcome.FAILED)


@pytest.mark.parametrize(("counts", "found"), [({"dying": 0}, {"zombies": 0.0}), ({}, {})])
def test_no_dying_cgroups_are_a_measurement_and_an_unknown_number_is_none(
    world: World, counts: dict[str, int], found: dict[str, float]
) -> None:
    world.hosts.results[TaskKind.AGE] = {"counts": counts, "uptime_s": 60.0}
    ended = world.run(world.create(experiment=NO_EXPERIMENT))
    doses = ended.arms[0].doses["host-0"]
    assert {name: value for name, value in doses.items() if name == "zombies"} == found


def test_a_load_that_varies_is_noted_with_what_the_gate_said(world: World) -> None:
    world.hosts.results[TaskKind.LOAD] = {"status": "not constant", "says": "it fell by half"}
    ended = world.run(world.create(arms=PLAN.arms[1:], experiment=NO_EXPERIMENT))
    assert ended.arms[0].constancy == {"host-0": "not constant", "host-1": "not constant"}
    varied = [text for text in world.lines(ended) if "constant" in text]
    says = "arm hot: the load is not constant: it fell by half"
    assert varied == [f"host-0: {says}", f"host-1: {says}"]
    world.hosts.results[TaskKind.LOAD] = {"status": "cannot tell", "says": "too short"}
    plain = world.run(world.create(arms=PLAN.arms[1:], experiment=NO_EXPERIMENT))
    assert not [text for text in world.lines(plain) if "constant" in text]


def test_one_load_of_a_cluster_is_that_of_all_its_hosts(world: World) -> None:
    load = LoadPlan(kind="trials", orchestrator="ray", address="ray:6379")
    ended = world.run(world.create(load=load, experiment=NO_EXPERIMENT))
    for arm in ended.arms:
        assert arm.constancy == {"host-0": "constant", "host-1": "constant"}
    asked = [t for t in world.hosts.tasks.values() if t.kind is TaskKind.LOAD]
    assert [t.host for t in asked] == ["host-0", "host-0"]
    assert {tuple(t.arguments["hosts"]) for t in asked} == {("host-0", "host-1")}


def test_a_recorder_is_asked_for_the_rest_of_its_arm(world: World) -> None:
    hanging = world.hosts = HangingHosts(world.clock)
    hanging.fault = None
    made = world.create(arms=(ArmPlan(kind=ArmKind.HOT),), wait=WaitPlan(seconds=100.0))
    driven = world.step_until(made, Phase.ARMS)
    while driven.investigation.arms[0].state is not ArmState.RUNNING:
        driven.step()
    world.clock.forward(60)
    [first, _] = [t for t in hanging.tasks.values() if t.kind is TaskKind.RECORD]
    first.state, first.detail = TaskState.FAILED, "killed"
    driven.step()
    lasting = [t.arguments["seconds"] for t in hanging.tasks.values() if t.kind is TaskKind.RECORD]
    assert lasting == [100, 100, 40]


def test_a_verdict_is_asked_for_until_it_is_there_and_then_no_more(world: World) -> None:
    asked: list[str] = []

    def diagnose(_: Investigation, seen: Any) -> Any:
        asked.append(seen.event)
        late = asked.count(seen.event) > 3
        return dataclasses.replace(seen, headline=f"cause of {seen.kind}") if late else None

    world.hooks.diagnose = diagnose  # type: ignore[method-assign]
    ended = world.run(world.create(arms=PLAN.arms[1:], experiment=NO_EXPERIMENT))
    events = [seen.event for seen in ended.arms[0].occurrences]
    assert [asked.count(event) for event in events] == [4, 4]
    says = f"arm hot: first verdict: cause of {KIND}"
    found = [text for text in world.lines(ended) if "first verdict" in text]
    assert sorted(found) == [f"host-0: {says}", f"host-1: {says}"]
    seen = [text for text in world.lines(ended) if text.endswith(f"arm hot: {KIND} reset")]
    assert sorted(seen) == [f"host-{n}: arm hot: {KIND} reset" for n in range(2)]
