"""Investigations of a server: who may do what, what is written down, and what drives them."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
import reservedhosts
import serverworld

from overnight.app import investigation_serving, reservation_hooks, reservation_serving
from overnight.database import engine
from overnight.investigations import plan_file
from overnight.model import times
from overnight.model.control_plane import Role
from overnight.reservations import context, control

PATH = "/api/v1/investigations"
PLAN: dict[str, Any] = {
    "name": "night",
    "hosts": {"provider": "played", "count": 2},
    "arms": [{"kind": "hot", "age": {"memory-cgroups": 500}}],
    "wait": {"seconds": 3600, "events": ["net.driver_reset"]},
    "budget": {"hours": 2, "disk": 40_000_000_000},
}


class World(serverworld.World):
    def __init__(self, home: pathlib.Path) -> None:
        super().__init__(home)
        database = engine.Database(engine.default_url(home))
        self.platform = reservedhosts.Platform(times.now_us, "a", "b", "c")
        self.log: list[str] = []
        use = self.server.reservations
        hooks = reservation_hooks.make(database, home)
        use.__dict__["plane"] = control.ControlPlane(
            context.Context(database, {"played": self.platform}, hooks=hooks)
        )
        self.reserver = reservation_serving.Driver(use, 60.0, self.log.append, 90)
        self.loop = investigation_serving.make_loop(
            self.server.investigations, 60.0, self.log.append
        )
        self.credentials = {name: self.enrol(name) for name in ("a", "b")}

    def create(self, role: str = "operator", **plan: Any) -> Any:
        body = {"plan": PLAN | plan, "confirmed": False}
        return self.ask("POST", PATH, role=role, json=body)

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            self.loop.tick()
            self.reserver.tick()

    def report_hosts(self, **parts: Any) -> list[dict[str, Any]]:
        """Let each agent report; return the tasks that they got."""
        answers = [self.report(each, **parts) for each in self.credentials.values()]
        assert all(answer.status_code == 200 for answer in answers), answers[0].text
        return [task for answer in answers for task in answer.json()["tasks"]]

    def finish(self, tasks: list[dict[str, Any]]) -> None:
        """Report the task of each host as done."""
        for credential, task in zip(self.credentials.values(), tasks, strict=True):
            done = {"state": "done", "detail": "", "result": {}}
            path = f"/api/v1/agents/tasks/{task['id']}"
            answer = self.ask("POST", path, bearer=credential, json=done)
            assert answer.status_code == 200, answer.text

    def show(self, made: dict[str, Any]) -> dict[str, Any]:
        return dict(self.get(f"{PATH}/{made['id']}")["investigation"])


@pytest.fixture
def world(tmp_path: pathlib.Path) -> Iterator[World]:
    opened = World(tmp_path / "home")
    yield opened
    opened.close()


def test_a_server_carries_a_plan_out_by_tasks_of_agents(world: World) -> None:
    world.report_hosts()
    response = world.create()
    assert response.status_code == 200, response.text
    made = response.json()["investigation"]
    assert (made["phase"], made["owner"]) == ("reserve", "operator-name")
    assert made["plan"]["budget"]["disk"] == 40_000_000_000
    world.tick(6)
    assert world.platform.marked == ["a", "b"]
    assert world.show(made)["phase"] == "arms"
    tasks = world.report_hosts()
    assert [(t["kind"], t["arguments"]) for t in tasks] == [
        ("age", {"state": "memory-cgroups", "arm": "hot", "number": 500})
    ] * 2
    world.finish(tasks)
    world.tick(3)
    kinds = [t["kind"] for t in world.report_hosts()]
    assert kinds == ["record", "record"]
    assert world.show(made)["arms"][0]["state"] == "running"
    stopped = world.ask("POST", f"{PATH}/{made['id']}/stop", role="operator")
    assert stopped.json()["investigation"]["stop"] is True
    world.tick(2)
    assert world.show(made)["arms"][0]["state"] == "ending"
    world.tick(2)
    measured = world.report_hosts()
    assert [t["arguments"]["state"] for t in measured] == ["uptime", "uptime"]
    world.finish(measured)
    world.tick(2)
    assert [t["kind"] for t in world.report_hosts()] == ["stop", "stop"]
    log = [(row.action, row.target) for row in world.fleet.audit_log().items]
    assert ("investigation.create", made["id"]) in log
    assert ("investigation.stop", made["id"]) in log
    assert world.get(PATH)["items"][0]["id"] == made["id"]


def test_only_the_owner_and_admins_stop_an_investigation(world: World) -> None:
    made = world.create("admin").json()["investigation"]
    path = f"{PATH}/{made['id']}/stop"
    refused = world.ask("POST", path, role="operator")
    assert refused.status_code == 403
    assert "belongs to admin-name" in refused.text
    assert world.ask("POST", path, role="viewer").status_code == 403
    assert world.ask("POST", path, role="admin").status_code == 200
    assert world.ask("POST", f"{PATH}/i-none/stop", role="admin").status_code == 404


def test_plans_that_a_server_does_not_carry_out_are_refused(world: World) -> None:
    local = world.create(hosts={"provider": "local"})
    assert (local.status_code, "its own machine" in local.text) == (400, True)
    assert world.create(wait={"secs": 5}).status_code in (400, 422)
    many = world.create(hosts={"provider": "played", "count": 9})
    assert many.status_code == 409
    assert world.get(PATH)["items"] == []


def test_arms_of_the_shipped_plan_get_hosts_of_their_age(world: World) -> None:
    """The cold arm was empty: `up_at_least: 5d` held for all hosts."""
    example = plan_file.parse(plan_file.examples()["driver-resets"].encode())
    now_us, hour = times.now_us(), 3600 * 1_000_000
    ages = dict(zip("abcdefgh", (200, 1, 5, 130, 60, 900, 300, 2), strict=True))  # hours
    for name, age in ages.items():
        world.platform.hosts[name] = reservedhosts.Host(booted_us=now_us - age * hour)
    arms = [{"kind": str(arm.kind), "hosts": arm.hosts, "up_at_least": arm.up_at_least, "up_at_most": arm.up_at_most} for arm in example.arms]  # fmt: skip
    plan = PLAN | {"hosts": {"provider": "played"}, "arms": arms}
    answer = world.ask("POST", f"{PATH}/preflight", role="operator", json={"plan": plan})
    document = answer.json()
    chosen = [each["host"]["name"] for each in document["hosts"]["hosts"]]
    assert chosen == ["a", "d", "f", "b", "c", "h"]
    assert set(document["hosts"]["left_out"]) == {"e", "g"}
    assert document["hosts"]["left_out"]["e"].startswith("up for 2 d 12 h")
    assert document["steps"][0] == (
        "reserve 3 hosts that have been up for at least 5 d and 3 hosts that have been up for at most 12 h"
        " from played for at most 2 h"
    )
    made = world.ask("POST", PATH, role="operator", json={"plan": plan, "confirmed": True}).json()
    world.tick(8)
    shown = world.show(made["investigation"])
    assert len(shown["reservations"]) == 2
    held = {r: {h for h, host in world.platform.hosts.items() if host.claim and host.claim.id == r} for r in shown["reservations"]}  # fmt: skip
    assert [*held.values()] == [{"a", "d", "f"}, {"b", "c", "h"}]


def test_hosts_of_investigations_count_before_they_are_reserved(world: World) -> None:
    """Three plans of 12 hosts each, one after the other, were all direct: each saw none of the others."""
    for number in range(40):
        world.platform.hosts[f"h-{number}"] = reservedhosts.Host()
    expires_us = world.now_us() + serverworld.YEAR_US
    made = world.fleet.tokens.create(
        Role.OPERATOR, name="claude", expires_us=expires_us, assistant=True
    )
    plan = PLAN | {"hosts": {"provider": "played", "count": 12}, "arms": [{"kind": "hot"}]}

    def start() -> Any:
        return world.ask("POST", PATH, bearer=made.text, json={"plan": plan, "confirmed": False})

    started = start()
    assert started.status_code == 200, started.text
    for ticks in (0, 4):
        world.tick(ticks)
        refused = serverworld.problem(start())
        assert refused["kind"] == "confirmation-needed"
        assert "the caller would have more than 20 hosts" in refused["title"]
    path = f"{PATH}/{started.json()['investigation']['id']}/stop"
    assert world.ask("POST", path, role="admin").status_code == 200
    world.tick(8)
    assert start().status_code == 200


def test_a_preflight_names_steps_and_hosts(world: World) -> None:
    answer = world.ask("POST", f"{PATH}/preflight", role="operator", json={"plan": PLAN})
    document = answer.json()
    assert [each["host"]["name"] for each in document["hosts"]["hosts"]] == ["a", "b"]
    assert document["steps"][0] == "reserve 2 hosts from played for at most 2 h"
    assert document["seconds"] == pytest.approx(3600)
    assert "age memory-cgroups 500" in json.dumps(document["steps"])
    assert world.platform.marked == []
