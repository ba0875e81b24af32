"""Hosts of an investigation whose agents report to a server: tasks, events and windows of the fleet."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import fleetworld
import pytest
from fleetworld import START, S

from overnight import errors
from overnight.investigations import hosts
from overnight.model.uplink import TaskKind, TaskReport, TaskState

if TYPE_CHECKING:
    from fleetworld import World


def open_hosts(fleet: World) -> hosts.FleetHosts:
    return hosts.FleetHosts(fleet.plane, "i-1")


def test_a_task_is_asked_for_once_however_often_it_is_started(fleet: World) -> None:
    who, asked = fleet.enrol(), open_hosts(fleet)
    for _ in range(3):
        asked.start("db-7", "t-1", TaskKind.RECORD, {"seconds": 60})
        asked = open_hosts(fleet)  # another driver
    [task] = fleet.plane.report(who, fleetworld.report(1)).tasks
    assert (task.id, task.arguments) == ("t-1", {"seconds": 60})
    assert asked.look(["t-1", "t-2"])["t-1"].state is TaskState.LEASED
    done = TaskReport(TaskState.DONE, "recorded", 1.0, {"busy": 0.5})
    fleet.plane.tasks.report(who, "t-1", done)
    found = asked.look(["t-1", "t-2"])
    assert {*found} == {"t-1"}
    assert (found["t-1"].state, found["t-1"].result) == (TaskState.DONE, {"busy": 0.5})
    assert found["t-1"].detail == "recorded"
    asked.stop("db-7", "t-1")  # it has ended
    assert fleet.plane.report(who, fleetworld.report(2)).tasks == ()
    with pytest.raises(errors.NotFoundError, match="no agent reports from db-9"):
        asked.start("db-9", "t-3", TaskKind.RECORD, {})


def test_a_stopped_task_still_reports_its_result(fleet: World) -> None:
    who, asked = fleet.enrol(), open_hosts(fleet)
    for name in ("t-1", "t-2"):
        asked.start("db-7", name, TaskKind.RECORD, {"seconds": 60})
        if name == "t-1":
            fleet.plane.report(who, fleetworld.report(1))
            fleet.plane.tasks.report(who, "t-1", TaskReport(TaskState.RUNNING))
    fleet.clock.forward(-((fleet.clock() - START) // S % 60))
    for _ in range(2):
        asked.stop("db-7", "t-1")
        asked.stop("db-7", "t-2")
        asked.stop("db-7", "t-none")
        fleet.clock.forward(5)
    tasks = fleet.plane.report(who, fleetworld.report(2)).tasks
    assert [(task.kind, task.arguments) for task in tasks] == [(TaskKind.STOP, {"task": "t-1"})]
    # The host may have begun the task only after it was asked to stop it.
    fleet.clock.forward(60)
    asked.stop("db-7", "t-1")
    again = fleet.plane.report(who, fleetworld.report(3)).tasks
    assert {task.id for task in again if task.kind is TaskKind.STOP} - {task.id for task in tasks}
    failed = TaskReport(TaskState.FAILED, "stopped by task", 1.0, {"busy": 0.4})
    fleet.plane.tasks.report(who, "t-1", failed)
    found = asked.look(["t-1", "t-2"])
    assert found["t-1"].result == {"busy": 0.4}
    assert found["t-2"].state is TaskState.CANCELLED


def test_a_task_that_no_agent_takes_expires(fleet: World) -> None:
    fleet.enrol()
    asked = open_hosts(fleet)
    asked.start("db-7", "t-1", TaskKind.RECORD, {"seconds": 60})
    fleet.clock.forward(14 * 60)
    fleet.plane.maintain()
    assert asked.look(["t-1"])["t-1"].state is TaskState.PENDING
    fleet.clock.forward(61)
    fleet.plane.maintain()
    assert asked.look(["t-1"])["t-1"].state is TaskState.EXPIRED


def test_events_are_those_of_the_named_hosts(fleet: World) -> None:
    for name in ("db-7", "db-8"):
        who = fleet.enrol(name)
        labels = {"instance": "i-0abc"} if name == "db-8" else {}
        seen = (fleetworld.event(1, at=50), fleetworld.event(2, at=5))
        fleet.plane.report(who, fleetworld.report(60, events=seen, labels=labels))
    asked = open_hosts(fleet)
    # A cloud names its hosts by instance.
    found = asked.list_events(["i-0abc"], START + 10 * S, START + 60 * S)
    assert [(event.host, event.time_us) for event in found] == [("i-0abc", START + 50 * S)]
    assert asked.list_events(["i-0abc"], START + 10 * S, START + 50 * S) == []
    both = asked.list_events(["db-7", "i-0abc"], START, START + 60 * S)
    assert sorted((event.host, event.time_us) for event in both) == [
        (host, START + at * S) for host in ("db-7", "i-0abc") for at in (5, 50)
    ]
    assert asked.list_events(["gone"], START, START + 60 * S) == ()
    # A cluster knows its hosts by the names that they have themselves.
    asked.start("db-7", "t-1", TaskKind.LOAD, {"hosts": ["db-7", "i-0abc"]})
    seven = fleet.plane.hosts(hosts.HostFilter({}), limit=9).items
    assert {host.name for host in seven} == {"db-7", "db-8"}
    assert fleet.plane.tasks.get("t-1").arguments == {"hosts": ["db-7", "db-8"]}


def test_every_host_is_asked_for_its_window_once_it_is_recorded(fleet: World) -> None:
    agents = {name: fleet.enrol(name) for name in ("db-7", "db-8")}
    event = dataclasses.replace(fleetworld.event(1, at=50), host="db-7")
    asked = open_hosts(fleet)
    fleet.clock.now_us = event.time_us + 29 * S
    for host in (*agents, "gone"):
        asked.pin(host, event)
    fleet.clock.forward(1)
    for _ in range(2):
        for host in (*agents, "gone"):
            asked.pin(host, event)
        asked = open_hosts(fleet)  # another driver asks for the same
    sent = {}
    for name, who in agents.items():
        [task] = fleet.plane.report(who, fleetworld.report(90)).tasks
        assert task.kind is TaskKind.UPLOAD_WINDOW
        sent[name] = task.arguments
    begin, end = event.time_us - 60 * S, event.time_us + 30 * S
    assert sent == {"db-7": {"event": event.id}, "db-8": {"begin_us": begin, "end_us": end}}
    assert asked.used_bytes() == 0


def test_windows_of_each_event_and_investigation_are_asked_for_once_they_are_over(
    fleet: World,
) -> None:
    who = fleet.enrol("db-8")
    short, long = (fleetworld.event(number, at=50) for number in (1, 2))
    short = dataclasses.replace(short, host="db-7")
    long = dataclasses.replace(long, host="db-7", until_us=short.time_us + 100 * S)
    fleet.clock.now_us = short.time_us + 129 * S
    for why in ("i-1", "i-2"):
        asked = hosts.FleetHosts(fleet.plane, why)
        asked.pin("db-8", short)
        asked.pin("db-8", long)
    fleet.clock.forward(1)
    hosts.FleetHosts(fleet.plane, "i-1").pin("db-8", long)
    tasks = fleet.plane.report(who, fleetworld.report(200)).tasks
    begin_us = short.time_us - 60 * S
    spans = sorted((t.arguments["begin_us"], t.arguments["end_us"]) for t in tasks)
    assert spans == [(begin_us, short.time_us + 30 * S)] * 2 + [(begin_us, short.time_us + 130 * S)]
