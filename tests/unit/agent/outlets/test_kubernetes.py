"""Events and conditions, against a double of the node: no API server can be had here."""

from __future__ import annotations

import dataclasses

import hoststatus

from overnight.agent.outlets import kubernetes, npd
from overnight.model import clock


class Node:
    """Remembers what was written."""

    def __init__(self, *before: kubernetes.NodeCondition) -> None:
        self.said = {one.type: one for one in before}
        self.events: dict[str, kubernetes.NodeEvent] = {}

    def conditions(self):
        return list(self.said.values())

    def write_event(self, told):
        self.events[told.name] = told

    def write_condition(self, told):
        self.said[told.type] = told

    def delete_condition(self, type_):
        del self.said[type_]


def later(seconds: float, **changes):
    made = hoststatus.make_status(**changes)
    wall = made.clock.wall_ns + round(seconds * 1e9)
    return dataclasses.replace(made, clock=clock.Clock(wall, made.clock.monotonic_ns))


def condition(type_: str, status: str = "True") -> kubernetes.NodeCondition:
    return kubernetes.NodeCondition(
        type_, status, "MemoryZombieCgroups", "", "2026-01-01T00:00:00Z"
    )


def test_what_happened_once_is_an_event_and_no_condition():
    node = Node()
    kubernetes.Kubernetes(node, "ip-10-0-0-7").event(hoststatus.make_event())
    (told,) = node.events.values()
    assert (told.reason, told.type, told.count) == ("NetDriverReset", "Warning", 3)
    assert told.first_timestamp == "2023-11-14T22:13:20Z"
    assert told.last_timestamp == "2023-11-14T22:13:26Z"
    assert node.said == {}


def test_every_condition_begins_unknown():
    node = Node()
    kubernetes.Kubernetes(node, "n").tick(later(0, open=()))
    assert {one.status for one in node.said.values()} == {"Unknown"}
    assert set(node.said) == set(npd.CONDITIONS.values())


def test_what_lasts_is_true_while_it_is_seen_and_cleared_after_its_time_to_live():
    node = Node()
    outlet = kubernetes.Kubernetes(node, "n", clear_seconds=300)
    outlet.tick(later(0, open=()))
    outlet.event(hoststatus.make_event("memory.zombie_cgroups"))
    assert node.said["ZombieMemoryCgroups"].status == "True"
    outlet.tick(later(1000))  # still open
    outlet.tick(later(1200, open=()))
    assert node.said["ZombieMemoryCgroups"].status == "True"
    outlet.tick(later(1301, open=()))
    assert node.said["ZombieMemoryCgroups"].status == "False"


def test_a_restart_of_the_agent_keeps_what_the_node_says_until_its_time_to_live():
    node = Node(condition("ZombieMemoryCgroups"))
    outlet = kubernetes.Kubernetes(node, "n", clear_seconds=300)
    outlet.tick(later(0, open=()))
    assert node.said["ZombieMemoryCgroups"].status == "True"
    outlet.tick(later(301, open=()))
    assert node.said["ZombieMemoryCgroups"].status == "False"


def test_the_condition_of_a_rule_that_is_gone_is_deleted():
    node = Node(condition("OldRule"))
    kubernetes.Kubernetes(node, "n").tick(later(0, open=()))
    assert "OldRule" not in node.said
