"""Events and conditions on a fake node; the tests have no API server."""

from __future__ import annotations

import dataclasses

import hoststatus

from overnight.agent.outlets import kubernetes, npd
from overnight.model import clock


class Node:
    """Keep what was written."""

    def __init__(self, *before: kubernetes.NodeCondition) -> None:
        self.by_type = {condition.type: condition for condition in before}
        self.events: dict[str, kubernetes.NodeEvent] = {}

    def conditions(self):
        return list(self.by_type.values())

    def write_event(self, event):
        self.events[event.name] = event

    def write_condition(self, condition):
        self.by_type[condition.type] = condition

    def delete_condition(self, type_):
        del self.by_type[type_]


def later(seconds: float, **changes):
    status = hoststatus.make_status(**changes)
    wall = status.clock.wall_ns + round(seconds * 1e9)
    return dataclasses.replace(status, clock=clock.Clock(wall, status.clock.monotonic_ns))


def condition(type_: str, status: str = "True") -> kubernetes.NodeCondition:
    return kubernetes.NodeCondition(
        type_, status, "MemoryZombieCgroups", "", "2026-01-01T00:00:00Z"
    )


def test_a_single_occurrence_is_an_event_without_a_condition():
    node = Node()
    kubernetes.Kubernetes(node, "ip-10-0-0-7").event(hoststatus.make_event())
    (event,) = node.events.values()
    assert (event.reason, event.type, event.count) == ("NetDriverReset", "Warning", 3)
    assert event.first_timestamp == "2023-11-14T22:13:20Z"
    assert event.last_timestamp == "2023-11-14T22:13:26Z"
    assert node.by_type == {}


def test_every_condition_begins_unknown():
    node = Node()
    kubernetes.Kubernetes(node, "n").tick(later(0, open=()))
    assert {condition.status for condition in node.by_type.values()} == {"Unknown"}
    assert set(node.by_type) == set(npd.CONDITIONS.values())


def test_a_lasting_problem_is_true_until_its_time_to_live_ends():
    node = Node()
    outlet = kubernetes.Kubernetes(node, "n", clear_seconds=300)
    outlet.tick(later(0, open=()))
    outlet.event(hoststatus.make_event("memory.zombie_cgroups"))
    assert node.by_type["ZombieMemoryCgroups"].status == "True"
    outlet.tick(later(1000))  # still open
    outlet.tick(later(1200, open=()))
    assert node.by_type["ZombieMemoryCgroups"].status == "True"
    outlet.tick(later(1301, open=()))
    assert node.by_type["ZombieMemoryCgroups"].status == "False"


def test_conditions_survive_an_agent_restart_until_their_time_to_live():
    node = Node(condition("ZombieMemoryCgroups"))
    outlet = kubernetes.Kubernetes(node, "n", clear_seconds=300)
    outlet.tick(later(0, open=()))
    assert node.by_type["ZombieMemoryCgroups"].status == "True"
    outlet.tick(later(301, open=()))
    assert node.by_type["ZombieMemoryCgroups"].status == "False"


def test_the_condition_of_a_removed_rule_is_deleted():
    node = Node(condition("OldRule"))
    kubernetes.Kubernetes(node, "n").tick(later(0, open=()))
    assert "OldRule" not in node.by_type


def test_a_condition_that_is_never_seen_becomes_false():
    node = Node()
    outlet = kubernetes.Kubernetes(node, "n", clear_seconds=300)
    outlet.tick(later(0, open=()))
    outlet.tick(later(300, open=()))
    assert {c.status for c in node.by_type.values()} == {"Unknown"}
    outlet.tick(later(301, open=()))
    assert {(c.status, c.message) for c in node.by_type.values()} == {("False", "not seen")}


def test_two_kinds_of_one_condition_do_not_take_turns():
    node = Node()
    outlet = kubernetes.Kubernetes(node, "n")
    outlet.event(hoststatus.make_event("unit.crash_loop"))
    first = node.by_type["UnitCrashLoop"]
    outlet.event(hoststatus.make_event("unit.hidden_crash_loop"))
    assert node.by_type["UnitCrashLoop"] is first
