"""Investigations on real databases, with hosts and reservations that are values."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import investigated
import pytest
from investigated import KIND, PLAN, S, World

from overnight import errors
from overnight.investigations import decisions, driver
from overnight.model.investigation import (
    Answer,
    ArmRun,
    ArmState,
    Investigation,
    Outcome,
    Phase,
)
from overnight.model.plan import (
    ArmKind,
    ArmPlan,
    BudgetPlan,
    ExperimentPlan,
    HostsPlan,
    WaitPlan,
)
from overnight.model.protocol import TaskKind
from overnight.model.reservation import ReservationState

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def world(url: str) -> Iterator[World]:
    new_world = World(url)
    yield new_world
    new_world.close()


def test_a_plan_is_carried_out_to_the_end(world: World) -> None:
    made = world.create()
    ended = world.run(made)
    assert (ended.phase, ended.outcome, ended.reason) == (Phase.ENDED, Outcome.REPRODUCED, "")
    cold, hot = ended.arms
    assert [(arm.kind, arm.state, arm.hosts) for arm in ended.arms] == [
        (ArmKind.COLD, ArmState.ENDED, ("host-0", "host-1")),
        (ArmKind.HOT, ArmState.ENDED, ("host-0", "host-1")),
    ]
    assert cold.ended_us <= hot.began_us
    assert (len(cold.occurrences), len(hot.occurrences)) == (0, 2)
    assert {o.headline for o in hot.occurrences} == {f"cause of {KIND}"}
    assert hot.doses["host-1"] == {"load": 0.5, "cores": 4.0, "zombies": 7.0, "uptime_s": 60.0}
    assert hot.constancy == {"host-0": "constant", "host-1": "constant"}
    # Recorders start with the observation.
    started = {t.began_us for t in world.hosts.tasks.values() if t.kind is TaskKind.RECORD}
    assert started >= {cold.began_us, hot.began_us}
    # Each event pins windows on every host.
    assert world.hosts.pins == {
        (host, o.event) for o in hot.occurrences for host in ("host-0", "host-1")
    }
    experiment = ended.experiment
    assert experiment is not None
    assert (experiment.answer, experiment.undone) == (Answer.CONFIRMED, True)
    assert experiment.says == "no event of hot in fixed"
    assert experiment.arm.changes == ("slow-disk", "mask-unit x")
    assert experiment.arm.ended_us - experiment.arm.began_us == pytest.approx(10 * S, abs=5 * S)
    assert ended.report == "report.html"
    [order] = [r.order for r in world.reserved.all.values()]
    assert (order.purpose, order.renew, order.max_seconds) == (made.id, True, 3600)
    world.check_clean()


def test_arms_with_hosts_of_their_own_run_at_the_same_time(world: World) -> None:
    arms = (ArmPlan(kind=ArmKind.HOT, hosts=2), ArmPlan(kind=ArmKind.COLD, hosts=1))
    ended = world.run(world.create(arms=arms))
    hot, cold = ended.arms
    assert (hot.hosts, cold.hosts) == (("host-0", "host-1"), ("host-2",))
    assert abs(hot.began_us - cold.began_us) < 5 * S
    assert ended.outcome is Outcome.NOT_REPRODUCED
    world.check_clean()


def test_enough_events_end_an_arm_before_its_time(world: World) -> None:
    wait = WaitPlan(seconds=3600, events=(KIND,), count=1)
    ended = world.run(world.create(wait=wait, arms=PLAN.arms[1:]))
    [hot] = ended.arms
    assert hot.ended_us - hot.began_us < 60 * S
    # Recorders and loads that were stopped for that have not failed.
    assert not [text for text in world.texts(ended) if "stopped" in text]
    world.check_clean()


def test_a_stop_ends_cleanly_with_what_was_learnt(world: World) -> None:
    made = world.create(arms=PLAN.arms[1:], wait=WaitPlan(seconds=3000.0, events=(KIND,)))
    driven = world.step_until(made, Phase.ARMS)
    for _ in range(15):
        driven.step()
        world.clock.forward(1)
    assert driven.investigation.arms[0].occurrences
    world.plane.stop(made.id)  # by another process
    while driven.step().phase is not Phase.ENDED:
        world.clock.forward(1)
    ended = world.plane.show(made.id)
    assert (ended.outcome, ended.reason) == (Outcome.REPRODUCED, "stopped on request")
    assert ended.experiment is None
    world.check_clean()


def test_a_host_that_is_lost_leaves_the_arm(world: World) -> None:
    made = world.create(arms=(ArmPlan(kind=ArmKind.HOT),), wait=WaitPlan(seconds=60.0))
    driven = world.step_until(made, Phase.ARMS)
    for _ in range(5):
        driven.step()
        world.clock.forward(1)
    world.hosts.gone.add("host-1")
    driven.free()
    ended = world.run(made)
    [arm] = ended.arms
    assert arm.hosts == ("host-0",)
    assert arm.ended_us - arm.began_us >= 55 * S
    lost = [n.host for n in world.plane.notes(made.id, 999) if "no longer observed" in n.text]
    assert lost == ["host-1"]
    # What it measured before the arm is not what it measures at its end.
    assert "uptime_s" in arm.doses["host-0"]
    assert "uptime_s" not in arm.doses["host-1"]
    assert ended.outcome is Outcome.NOT_REPRODUCED


def test_without_a_host_the_arm_ends_and_the_next_one_begins(world: World) -> None:
    world.hosts.refuses |= {(h, TaskKind.AGE) for h in ("host-0", "host-1")}
    ended = world.run(world.create())
    cold, hot = ended.arms
    assert (cold.note, cold.hosts) == ("", ("host-0", "host-1"))  # only its note was refused
    assert (hot.note, hot.began_us) == ("no host of this arm could be prepared", 0)
    assert any("age memory-cgroups 500 refused" in text for text in world.texts(ended))


def test_a_task_whose_agent_was_killed_is_asked_for_again(world: World) -> None:
    world.hosts.interrupts |= {TaskKind.AGE, TaskKind.CHANGE, TaskKind.RECORD, TaskKind.UNDO}
    ended = world.run(world.create(arms=PLAN.arms[1:]))
    [hot] = ended.arms
    assert (hot.hosts, hot.note) == (("host-0", "host-1"), "")
    assert len([t for t in hot.tasks if t.kind == TaskKind.RECORD]) == 3
    assert not [text for text in world.texts(ended) if "not undone" in text]
    world.check_clean()


def test_nothing_observed_is_a_failure(world: World) -> None:
    world.hosts.gone |= {"host-0", "host-1"}
    ended = world.run(world.create())
    assert (ended.phase, ended.outcome) == (Phase.ENDED, Outcome.FAILED)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"budget": BudgetPlan(hours=0.05)}, "budget.hours is used up"),
        ({"budget": BudgetPlan(hours=1.0, money=1.0, price=10.0)}, "budget.money is used up"),
        ({"budget": BudgetPlan(disk=100)}, "budget.disk is used up"),
    ],
)  # fmt: skip
def test_a_budget_ends_it(world: World, changes: dict[str, object], reason: str) -> None:
    world.hosts.used = 100
    made = world.create(wait=WaitPlan(seconds=8 * 3600.0), **changes)
    ended = world.run(made)
    assert ended.reason == reason
    assert world.clock() <= decisions.end_us(ended)
    world.check_clean()


def test_hosts_that_differ_from_production_are_refused_or_noted(world: World) -> None:
    world.reserved.differences = {"host-1": ("kernel is 6.2, prod-7 has 6.1",)}
    refused = world.run(world.create(hosts=HostsPlan(provider="played", count=2, like="prod-7")))
    assert (refused.outcome, refused.reason) == (Outcome.FAILED, "a host is not like prod-7")
    world.check_clean()
    like = HostsPlan(provider="played", count=2, like="prod-7", require_equal=False)
    noted = world.run(world.create(hosts=like))
    assert noted.outcome is Outcome.REPRODUCED
    assert "differs from prod-7: kernel is 6.2, prod-7 has 6.1" in world.texts(noted)


def test_what_cannot_be_reserved_ends_with_its_reason(world: World) -> None:
    world.reserved.error = errors.UsageError("no such provider", why="there is none", todo="")
    ended = world.run(world.create())
    assert ended.reason == "no such provider: there is none"
    world.reserved.error = errors.CannotError("no answer", why="timed out", todo="")
    made = world.create()
    ended = world.run(made)
    assert ended.reason == "no answer: timed out"
    assert world.texts(made).count("no answer: timed out") == 1  # not once for each attempt


def test_a_lost_reservation_ends_the_arms(world: World) -> None:
    made = world.create()
    driven = world.step_until(made, Phase.ARMS)
    [mine] = world.reserved.all
    world.reserved.change(mine, state=ReservationState.RELEASED, reason="taken by the janitor")
    driven.free()
    ended = world.run(made)
    assert ended.reason == f"{mine} has ended: taken by the janitor"


def test_a_release_that_fails_is_left_to_the_reservation(world: World) -> None:
    world.reserved.stuck = True
    made = world.create()
    ended = world.run(made)
    assert ended.phase is Phase.ENDED
    assert "is not released yet" in world.texts(made)[-1]
    assert 10 < world.reserved.releases < 100  # a platform is not asked every second


def test_a_bug_in_a_hook_gives_the_hosts_back(world: World) -> None:
    def fail(*_: object) -> None:
        raise ValueError("bug")

    world.hooks.write_report = world.hooks.diagnose = fail  # type: ignore[assignment,method-assign]
    made = world.create()
    ended = world.run(made)
    assert ended.arms[1].occurrences[0].headline == "not diagnosed: ValueError: bug"
    assert "the report could not be written" in world.texts(made)
    world.check_clean()


def test_the_incident_of_an_arm_begins_before_it_is_observed_and_ends_before_the_undo(
    world: World,
) -> None:
    calls: list[tuple[str, ArmState | None, bool]] = []

    def begin(_: object, __: object, arm: ArmRun) -> bool:
        calls.append(("begin", arm.state, bool(world.hosts.changed)))
        return len(calls) > 2

    def end() -> None:
        calls.append(("end", None, bool(world.hosts.changed)))

    world.hooks.begin_incident, world.hooks.end_incident = begin, end  # type: ignore[assignment,method-assign]
    world.run(world.create(arms=PLAN.arms[1:], experiment=ExperimentPlan()))
    assert calls[:3] == [("begin", ArmState.PREPARING, True)] * 3
    assert ("begin", ArmState.RUNNING, True) in calls
    first = next(call for call in calls if call[0] == "end")
    assert first == ("end", None, True)
    world.check_clean()


def test_two_drivers_do_not_both_drive(world: World) -> None:
    made = world.create()
    first = driver.take(world.plane.context, made, lambda _: None)
    first.step()
    other = world.another()
    assert other.tick(print) == ()  # the lease of the first one
    second = driver.take(other.context, other.show(made.id), lambda _: None)
    with pytest.raises(driver.FenceLostError):
        first.step()
    second.step()
    second.free()
    world.run(made)
    assert len(world.reserved.all) == 1
    world.check_clean()


def test_a_tick_drives_what_has_hosts_elsewhere(world: World) -> None:
    remote = world.create()
    local = world.create(hosts=HostsPlan(provider="local"))
    lines: list[str] = []
    for _ in range(300):
        driven = world.plane.tick(lines.append)
        assert {each.id for each in driven} <= {remote.id}
        world.clock.forward(2)
    assert world.plane.show(remote.id).phase is Phase.ENDED
    assert world.plane.show(local.id).fence == 0
    assert f"{remote.id}: every host is given back" in lines
    assert [each.id for each in world.plane.list()] == [local.id]
    assert len(world.plane.list(ended=True)) == 2


def test_an_unknown_id_is_refused(world: World) -> None:
    with pytest.raises(errors.NotFoundError, match="no investigation 'i-x'"):
        world.plane.show("i-x")
    assert investigated.PLAN.is_local is False


# the record


def test_a_stop_that_is_asked_for_during_a_step_is_not_lost(world: World) -> None:
    made = world.create(arms=PLAN.arms[1:])

    def diagnose(_: Investigation, seen: Any) -> Any:
        world.another().stop(made.id)
        return dataclasses.replace(seen, headline="cause")

    world.hooks.diagnose = diagnose  # type: ignore[method-assign]
    ended = world.run(made)
    assert (ended.reason, ended.experiment) == ("stopped on request", None)


def test_a_stop_need_not_wait_for_the_next_try_and_changes_nothing_that_has_ended(world: World) -> None:  # fmt: skip
    world.reserved.error = errors.CannotError("no answer", why="timed out", todo="")
    made = world.create()
    for _ in range(4):
        world.plane.tick(lambda _: None)
        world.clock.now_us = max(world.clock(), world.plane.show(made.id).next_us)
    world.plane.tick(lambda _: None)
    assert world.plane.show(made.id).next_us > world.clock()
    world.plane.stop(made.id)
    [driven] = world.plane.tick(lambda _: None)
    assert driven.phase is Phase.RELEASE
    other = world.run(world.create(hosts=HostsPlan(provider="local")))
    assert world.plane.stop(other.id).stop is False


def test_a_driver_that_leaves_lets_another_one_go_on_at_once(world: World) -> None:
    made = world.create()
    with world.plane.drive(made) as step:
        step()
    [taken] = world.another().tick(lambda _: None)
    assert taken.id == made.id
    world.run(made)


def test_the_report_and_the_plan_of_the_next_night_are_kept(world: World) -> None:
    world.hooks.write_report = lambda *_: ("r.html", "next.yaml")  # type: ignore[method-assign]
    ended = world.run(world.create())
    assert (ended.report, ended.next_plan) == ("r.html", "next.yaml")


def test_logs_are_those_of_one_investigation_with_the_last_lines_in_order(world: World) -> None:
    first, second = (world.create(name=name) for name in ("one", "two"))
    world.run(first)
    world.clock.forward(1)
    third = world.create(name="three")
    assert next(each.id for each in world.plane.list(ended=True)) == third.id
    assert world.plane.notes(second.id, 10) == ()
    every = world.texts(first)
    assert every[-1] == "every host is given back"
    assert [note.text for note in world.plane.notes(first.id, 3)] == every[-3:]
