"""Tasks: given to the agent with its report's answer, again if it is not heard of, ended for good."""

from __future__ import annotations

import concurrent.futures
from typing import TYPE_CHECKING

import pytest
from fleetworld import FAR, START, S, World, report
from killer import KilledError, Killer

from overnight import errors
from overnight.fleet import context, tasks
from overnight.model.uplink import TaskKind, TaskReport, TaskState

if TYPE_CHECKING:
    import pathlib

    from overnight.model.control_plane import AgentIdentity

LEASE = tasks.LEASE_US // S + 1
SHA = "ab" * 32


def given(fleet: World, who: AgentIdentity) -> list[str]:
    return [task.id for task in fleet.plane.report(who, report(1)).tasks]


def test_a_task_goes_to_its_host_once_and_its_result_is_stored(fleet: World) -> None:
    who, other = fleet.enrol(), fleet.enrol("db-8")
    made = fleet.plane.tasks.create("db-7", TaskKind.UPLOAD_WINDOW, {"event": "e-1"}, by="ann", why="look")  # fmt: skip
    assert given(fleet, other) == []
    [task] = fleet.plane.report(who, report(1)).tasks
    assert (task.id, task.kind, task.arguments) == (made.id, TaskKind.UPLOAD_WINDOW, {"event": "e-1"})  # fmt: skip
    assert given(fleet, who) == []
    running = TaskReport(TaskState.RUNNING, "bundling", 0.5)
    assert fleet.plane.tasks.report(who, task.id, running) is TaskState.RUNNING
    assert fleet.another().tasks.get(task.id).progress == 0.5
    done = TaskReport(TaskState.DONE, "", 1.0, {"sha256": SHA})
    for _ in range(2):
        assert fleet.plane.tasks.report(who, task.id, done) is TaskState.DONE
    late = fleet.plane.tasks.report(who, task.id, running)
    assert late is TaskState.DONE
    stored = fleet.plane.tasks.get(task.id)
    assert (stored.state, stored.result, stored.why) == (TaskState.DONE, {"sha256": SHA}, "look")
    assert [t.id for t in fleet.plane.tasks.list("db-7")] == [task.id]
    assert fleet.plane.tasks.list("db-8") == []
    entry = fleet.plane.audit_log().items[0]
    assert (entry.who, entry.action, entry.why) == ("ann", "task.upload-window", "look")


def test_a_task_whose_agent_is_not_heard_of_is_given_again_but_not_for_ever(fleet: World) -> None:
    who = fleet.enrol()
    task = fleet.plane.tasks.create("db-7", TaskKind.SNAPSHOT, {})
    for _ in range(tasks.ATTEMPTS):
        assert given(fleet, who) == [task.id]
        assert given(fleet, who) == []
        fleet.clock.forward(LEASE)
    assert given(fleet, who) == []
    ended = fleet.plane.tasks.get(task.id)
    assert (ended.state, ended.updated_us) == (TaskState.FAILED, fleet.clock())
    assert ended.detail == "the agent took it 5 times and reported nothing"


def test_a_running_task_keeps_its_lease_while_it_is_reported(fleet: World) -> None:
    who = fleet.enrol()
    task = fleet.plane.tasks.create("db-7", TaskKind.RECORD, {"seconds": 600})
    assert given(fleet, who) == [task.id]
    for _ in range(5):
        fleet.clock.forward(LEASE - 5)
        fleet.plane.tasks.report(who, task.id, TaskReport(TaskState.RUNNING))
        assert given(fleet, who) == []


@pytest.mark.parametrize("by_report", [True, False])
def test_a_task_that_is_not_taken_in_time_expires(fleet: World, *, by_report: bool) -> None:
    who = fleet.enrol()
    task = fleet.plane.tasks.create("db-7", TaskKind.LOAD, {}, expires_us=START + 60 * S)
    fleet.clock.forward(61)
    if by_report:
        assert given(fleet, who) == []
    else:
        fleet.plane.maintain()
    assert fleet.plane.tasks.get(task.id).state is TaskState.EXPIRED


def test_a_task_that_was_taken_does_not_expire_while_its_agent_has_the_lease(fleet: World) -> None:
    who = fleet.enrol()
    task = fleet.plane.tasks.create("db-7", TaskKind.LOAD, {}, expires_us=START + 60 * S)
    assert given(fleet, who) == [task.id]
    fleet.clock.forward(61)
    fleet.plane.maintain()
    assert fleet.plane.tasks.get(task.id).state is TaskState.LEASED


def test_a_task_that_is_done_makes_room_for_another(url: str, tmp_path: pathlib.Path) -> None:
    fleet = World(url, tmp_path / "blobs", limits=context.Limits(open_tasks=1))
    who = fleet.enrol()
    for _ in range(2):
        task = fleet.plane.tasks.create("db-7", TaskKind.LOAD, {})
        with pytest.raises(errors.QuotaError):
            fleet.plane.tasks.create("db-7", TaskKind.LOAD, {})
        fleet.plane.tasks.report(who, task.id, TaskReport(TaskState.DONE))
    fleet.close()


def test_a_task_that_was_done_after_all_is_done(fleet: World) -> None:
    who = fleet.enrol()
    task = fleet.plane.tasks.create("db-7", TaskKind.LOAD, {}, expires_us=START + 60 * S)
    assert given(fleet, who) == [task.id]
    fleet.clock.forward(LEASE)
    fleet.plane.maintain()
    assert fleet.plane.tasks.get(task.id).state is TaskState.EXPIRED
    fleet.plane.tasks.report(who, task.id, TaskReport(TaskState.DONE))
    assert fleet.plane.tasks.get(task.id).state is TaskState.DONE


def test_a_cancelled_task_is_not_given_and_a_running_one_is_stopped(fleet: World) -> None:
    who = fleet.enrol()
    waiting = fleet.plane.tasks.create("db-7", TaskKind.LOAD, {})
    assert fleet.plane.tasks.cancel(waiting.id, by="ann", why="no").state is TaskState.CANCELLED
    assert given(fleet, who) == []
    running = fleet.plane.tasks.create("db-7", TaskKind.LOAD, {})
    assert given(fleet, who) == [running.id]
    fleet.plane.tasks.cancel(running.id)
    [stop] = fleet.plane.report(who, report(2)).tasks
    assert (stop.kind, stop.arguments) == (TaskKind.STOP, {"task": running.id})
    answer = fleet.plane.tasks.report(who, running.id, TaskReport(TaskState.RUNNING))
    assert answer is TaskState.CANCELLED
    assert fleet.plane.tasks.cancel(running.id).state is TaskState.CANCELLED
    assert given(fleet, who) == []


def test_a_task_that_is_cancelled_while_it_is_given_stays_so(fleet: World) -> None:
    who = fleet.enrol()
    planes = [fleet.plane, fleet.another()]
    for number in range(6):
        task = fleet.plane.tasks.create("db-7", TaskKind.LOAD, {})
        with concurrent.futures.ThreadPoolExecutor(2) as threads:
            at = report(10 + number)
            given_to = threads.submit(planes[0].report, who, at)
            threads.submit(planes[1].tasks.cancel, task.id).result()
            given_to.result()
        assert fleet.plane.tasks.get(task.id).state is TaskState.CANCELLED


def test_a_host_cannot_report_the_task_of_another(fleet: World) -> None:
    fleet.enrol()
    hostile = fleet.enrol("evil")
    task = fleet.plane.tasks.create("db-7", TaskKind.LOAD, {})
    for unknown in (task.id, "t-0", "\0"):
        with pytest.raises(errors.NotFoundError):
            fleet.plane.tasks.report(hostile, unknown, TaskReport(TaskState.DONE))
    assert fleet.plane.tasks.get(task.id).state is TaskState.PENDING


def test_texts_that_databases_do_not_take_are_stored(fleet: World) -> None:
    who = fleet.enrol()
    task = fleet.plane.tasks.create("db-7", TaskKind.LOAD, {"a\0": "\ud800"}, by="a\0", why="\ud800")  # fmt: skip
    result = TaskReport(TaskState.FAILED, "x\0", 0, {"b\0": "\ud800"})
    fleet.plane.tasks.report(who, task.id, result)
    stored = fleet.plane.tasks.get(task.id)
    assert (stored.arguments, stored.result) == ({"a\0": "?"}, {"b\0": "?"})


def test_invalid_tasks_are_refused(url: str, tmp_path: pathlib.Path) -> None:
    fleet = World(url, tmp_path / "blobs", limits=context.Limits(open_tasks=2))
    fleet.enrol()
    with pytest.raises(errors.NotFoundError):
        fleet.plane.tasks.create("db-8", TaskKind.LOAD, {})
    with pytest.raises(errors.UsageError):
        fleet.plane.tasks.create("db-7", TaskKind.LOAD, {"x": "y" * 70_000})
    for _ in range(2):
        fleet.plane.tasks.create("db-7", TaskKind.LOAD, {})
    with pytest.raises(errors.QuotaError):
        fleet.plane.tasks.create("db-7", TaskKind.LOAD, {})
    fleet.close()


def test_of_two_servers_one_gives_a_task(fleet: World) -> None:
    who = fleet.enrol()
    planes = [fleet.plane, fleet.another()]
    made = {fleet.plane.tasks.create("db-7", TaskKind.LOAD, {}).id for _ in range(4)}
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        replies = threads.map(lambda n: planes[n % 2].report(who, report(1)), range(8))
        leased = [task.id for reply in replies for task in reply.tasks]
    assert sorted(leased) == sorted(made)


def test_a_task_whose_answer_was_lost_in_a_crash_is_given_later(fleet: World) -> None:
    who = fleet.enrol()
    task = fleet.plane.tasks.create("db-7", TaskKind.LOAD, {})
    for at in range(1, 4):
        with pytest.raises(KilledError):
            fleet.another(Killer(at - 1)).report(who, report(1))
    fleet.clock.forward(LEASE)
    assert given(fleet, who) == [task.id]


def test_tasks_are_given_in_order_and_a_few_at_a_time(fleet: World) -> None:
    who, made = fleet.enrol(), []
    for _ in range(tasks.SENT + 2):
        made.append(fleet.plane.tasks.create("db-7", TaskKind.LOAD, {}).id)
        fleet.clock.forward(1)
    assert [task.id for task in fleet.plane.tasks.list(limit=3)] == made[:-4:-1]
    assert given(fleet, who) == made[: tasks.SENT]
    assert given(fleet, who) == made[tasks.SENT :]


def test_a_task_that_is_asked_for_again_by_its_id_is_the_same(fleet: World) -> None:
    fleet.enrol()
    first = fleet.plane.tasks.create("db-7", TaskKind.LOAD, {}, task_id="t-own")
    assert fleet.plane.tasks.create("db-7", TaskKind.RECORD, {"x": 1}, task_id="t-own") == first
    assert fleet.plane.tasks.list() == [first]


def test_a_cancellation_is_in_the_audit_log_once(fleet: World) -> None:
    who = fleet.enrol()
    task = fleet.plane.tasks.create("db-7", TaskKind.LOAD, {})
    assert given(fleet, who) == [task.id]
    for _ in range(2):
        fleet.plane.tasks.cancel(task.id, by="ann", why="too hot")
    rows = [(row.who, row.action, row.target, row.why) for row in fleet.plane.audit_log().items]
    stop = next(each for each in fleet.plane.tasks.list() if each.kind is TaskKind.STOP)
    assert rows[:2] == [
        ("ann", "task.stop", f"{stop.id} db-7", "too hot"),
        ("ann", "task.cancel", f"{task.id} db-7", "too hot"),
    ]
    assert (stop.created_by, stop.why) == ("ann", "too hot")


@pytest.mark.parametrize("kept", [True, False])
def test_a_task_expires_after_a_day(fleet: World, *, kept: bool) -> None:
    who = fleet.enrol()
    task = fleet.plane.tasks.create("db-7", TaskKind.LOAD, {})
    fleet.clock.forward(86_400 if kept else 86_401)
    fleet.plane.maintain()
    assert given(fleet, who) == ([task.id] if kept else [])


def test_finished_tasks_are_removed_long_after_their_last_change(fleet: World) -> None:
    who = fleet.enrol()
    done, open_ = (
        fleet.plane.tasks.create("db-7", TaskKind.LOAD, {}, expires_us=FAR) for _ in range(2)
    )
    fleet.clock.forward(100 * 86_400)
    fleet.plane.tasks.report(who, done.id, TaskReport(TaskState.DONE))
    fleet.plane.tasks.report(who, open_.id, TaskReport(TaskState.RUNNING))
    for days, left in ((390, {done.id, open_.id}), (20, {open_.id})):
        fleet.clock.forward(days * 86_400)
        fleet.plane._trim()
        assert {task.id for task in fleet.plane.tasks.list()} == left
