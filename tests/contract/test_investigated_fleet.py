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
    with pytest.raises(errors.NotFoundError, match="no agent reports from db-9"):
        asked.start("db-9", "t-3", TaskKind.RECORD, {})


def test_a_stopped_task_still_reports_its_result(fleet: World) -> None:
    who, asked = fleet.enrol(), open_hosts(fleet)
    for name in ("t-1", "t-2"):
        asked.start("db-7", name, TaskKind.RECORD, {"seconds": 60})
        if name == "t-1":
            fleet.plane.report(who, fleetworld.report(1))
            fleet.plane.tasks.report(who, "t-1", TaskReport(TaskState.RUNNING))
    for _ in range(2):
        asked.stop("db-7", "t-1")
        asked.stop("db-7", "t-2")
        asked.stop("db-7", "t-none")
    tasks = fleet.plane.report(who, fleetworld.report(2)).tasks
    assert [(task.kind, task.arguments) for task in tasks] == [(TaskKind.STOP, {"task": "t-1"})]
    failed = TaskReport(TaskState.FAILED, "stopped by task", 1.0, {"busy": 0.4})
    fleet.plane.tasks.report(who, "t-1", failed)
    found = asked.look(["t-1", "t-2"])
    assert found["t-1"].result == {"busy": 0.4}
    assert found["t-2"].state is TaskState.CANCELLED


def test_a_task_that_no_agent_takes_expires(fleet: World) -> None:
    fleet.enrol()
    asked = open_hosts(fleet)
    asked.start("db-7", "t-1", TaskKind.RECORD, {"seconds": 60})
    fleet.clock.forward(hosts.EXPIRES_US / S + 1)
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
    assert asked.list_events(["gone"], START, START + 60 * S) == ()


def test_every_host_is_asked_for_its_window_once_it_is_recorded(fleet: World) -> None:
    agents = {name: fleet.enrol(name) for name in ("db-7", "db-8")}
    event = dataclasses.replace(fleetworld.event(1, at=50), host="db-7")
    asked = open_hosts(fleet)
    fleet.clock.now_us = event.time_us + 29 * S
    for host in (*agents, "gone"):
        asked.pin(host, event)
    fleet.clock.forward(2)
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
