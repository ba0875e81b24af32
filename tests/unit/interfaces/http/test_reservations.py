"""Reservations of a server: who may do what, what is written down, and what drives them."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
import reservedhosts
import serverworld

from overnight.app import reservation_hooks, reservation_serving
from overnight.database import engine
from overnight.model import times
from overnight.model.reservation import Workload
from overnight.reservations import context, control

if TYPE_CHECKING:
    from overnight import reservations

PATH = "/api/v1/reservations"
ORDER = {"provider": "played", "count": 2}
ENDPOINT = "https://centre"


class Platform(reservedhosts.Platform):
    """Notes the agents that it starts."""

    def __init__(self, *words: Any) -> None:
        super().__init__(*words)
        self.setups: list[reservations.AgentSetup] = []

    def start_agent(self, host: Any, order: Any, lease: Any, setup: Any) -> None:
        super().start_agent(host, order, lease, setup)
        self.setups.append(setup)


class World(serverworld.World):
    def __init__(self, home: pathlib.Path) -> None:
        super().__init__(home)
        database = engine.Database(engine.default_url(home))
        self.platform = Platform(times.now_us, "a", "b", "c")
        self.log: list[str] = []
        self.use = self.server.reservations
        self.use.__dict__["plane"] = control.ControlPlane(
            context.Context(
                database,
                {"played": self.platform},
                hooks=reservation_hooks.make(database, home),
            )
        )
        self.server._endpoint = ENDPOINT
        self.driver = reservation_serving.Driver(self.use, 60.0, self.log.append, keep_days=400)

    def forward(self, seconds: float) -> None:
        """Let time pass for reservations."""
        now = times.now_us() + int(seconds * 1_000_000)
        later = dataclasses.replace(self.use.plane.context, clock=lambda: now)
        self.use.__dict__["plane"] = control.ControlPlane(later)

    def create(
        self,
        role: str = "operator",
        *,
        confirmed: bool = False,
        more: dict[str, Any] | None = None,
        **order: Any,
    ) -> Any:
        body = {"order": ORDER | order, "confirmed": confirmed, **(more or {})}
        return self.ask("POST", PATH, role=role, json=body)

    def reserve(self, role: str = "operator", **order: Any) -> dict[str, Any]:
        """Reserve as a client does: ask, let the server work, look."""
        before = self.platform.marked
        response = self.create(role, **order)
        assert response.status_code == 200, response.text
        made = response.json()["reservation"]
        assert made["state"] == "preparing"
        assert self.platform.marked == before  # the request did not wait for the platform
        while self.driver.tick():
            pass
        return dict(self.get(f"{PATH}/{made['id']}")["reservation"])

    def post(self, made: dict[str, Any], what: str, role: str, **body: Any) -> Any:
        return self.ask(
            "POST",
            f"{PATH}/{made['id']}/{what}",
            role=role,
            json=None if what == "release" else body,
        )


@pytest.fixture
def world(tmp_path: pathlib.Path) -> Iterator[World]:
    opened = World(tmp_path / "home")
    yield opened
    opened.close()


def test_a_request_writes_the_record_and_a_tick_does_the_work(world: World) -> None:
    made = world.reserve(purpose="night 4")
    assert (made["state"], made["order"]["owner"]) == ("active", "operator-name")
    assert all(host["checks"] for host in made["hosts"])
    assert world.platform.marked == ["a", "b"]
    assert world.get(PATH)["items"] == [made]
    asked = world.post(made, "release", "operator").json()["reservation"]
    assert asked["state"] == "releasing"
    assert world.platform.marked == ["a", "b"]
    world.driver.tick()
    assert world.platform.marked == []
    assert world.get(PATH)["items"] == []
    log = [(row.action, row.target, row.why) for row in world.fleet.audit_log().items]
    assert ("reservation.create", made["id"], "night 4") in log
    assert ("reservation.end", made["id"], "") in log


def test_preflight_and_check_leave_no_trace_in_the_audit_log(world: World) -> None:
    plan = world.ask("POST", f"{PATH}/preflight", role="operator", json={"order": ORDER}).json()
    assert [each["host"]["name"] for each in plan["hosts"]] == ["a", "b"]
    assert plan["left_out"] == {"c": "fits, but is not needed"}
    made = world.reserve()
    before = len(world.fleet.audit_log().items)
    assert world.post(made, "check", "operator").status_code == 200
    assert len(world.fleet.audit_log().items) == before


def test_a_viewer_only_reads(world: World) -> None:
    for path in ("", "/preflight", "/r-1/check", "/r-1/extend", "/r-1/release"):
        assert world.ask("POST", PATH + path, role="viewer", json={}).status_code == 403


def test_only_the_owner_and_admins_change_a_reservation(world: World) -> None:
    made = world.reserve("admin")
    for what, body in (("release", {}), ("extend", {"seconds": 7200}), ("check", {"load": True})):
        problem = serverworld.problem(world.post(made, what, "operator", **body))
        assert (problem["status"], problem["kind"]) == (403, "not-allowed")
    assert world.post(made, "check", "operator").status_code == 200
    own = world.reserve(count=1)
    assert world.post(own, "extend", "admin", seconds=7200).status_code == 200
    # A later token of the same name is the same owner.
    world.tokens.pop("operator")
    assert world.post(own, "release", "operator").status_code == 200


def test_an_operator_cannot_reserve_for_somebody_else(world: World) -> None:
    assert world.create(owner="anna").status_code == 403
    assert world.create(owner="operator-name").status_code == 200
    assert world.reserve("admin", owner="anna", count=1)["order"]["owner"] == "anna"


@pytest.mark.parametrize("role", ["operator", "admin"])
def test_nobody_reserves_in_the_name_of_an_investigation(world: World, role: str) -> None:
    """An investigation takes what has its id as its own, and would change hosts that nobody has confirmed for it."""
    refused = world.create(role, purpose="i-0123456789ab")
    assert refused.status_code == 400
    assert serverworld.problem(refused)["title"] == "invalid purpose i-0123456789ab"
    assert world.reserve(role, purpose="for i-0123456789ab")


def test_disturbing_others_needs_a_confirmation(world: World) -> None:
    world.platform.hosts["a"].workloads.append(Workload("web-1", "pod"))
    problem = serverworld.problem(world.create(evict=True, hosts=["a", "b"]))
    assert (problem["status"], problem["kind"]) == (409, "unconfirmed")
    assert "web-1" in problem["detail"]
    assert world.use.list() == ()
    assert world.create(evict=True, hosts=["a", "b"], confirmed=True).status_code == 200


def test_what_is_done_is_what_was_confirmed(world: World) -> None:
    world.platform.hosts["a"].workloads.append(Workload("web-1", "pod"))
    chosen = {"evict": True, "hosts": ["a", "b"]}
    asked = {"order": ORDER | chosen}
    plan = world.ask("POST", f"{PATH}/preflight", role="operator", json=asked).json()
    assert plan["concerns"] == ["evicts pod web-1 from a"]
    agreed = {"agreed": plan["concerns"]}
    world.platform.hosts["a"].workloads.append(Workload("web-2", "pod"))
    problem = serverworld.problem(world.create(**chosen, confirmed=True, more=agreed))
    assert problem["title"] == "the plan has changed since it was confirmed"
    assert "evicts pod web-2 from a" in problem["detail"]
    assert "web-1" not in problem["detail"]
    assert world.use.list() == ()
    world.platform.hosts["a"].workloads.clear()  # less than what was confirmed is fine
    assert world.create(**chosen, confirmed=True, more=agreed).status_code == 200


def test_a_repeated_request_makes_one_reservation(world: World) -> None:
    key = {"idempotency_key": "night-4"}
    first = world.create(more=key).json()["reservation"]
    while world.driver.tick():
        pass
    again = world.create(more=key).json()["reservation"]
    assert (again["id"], again["state"]) == (first["id"], "active")
    other = serverworld.problem(world.create(more=key, count=1))
    assert other["title"] == "the idempotency key 'night-4' was used before"
    assert world.create("admin", more=key, count=1).json()["reservation"]["id"] != first["id"]
    assert len(world.use.list()) == 2


def test_members_have_the_names_of_their_agents(world: World) -> None:
    made = world.reserve(hosts=["a", "b"], count=1)
    world.report(world.enrol("node-a"), labels={"instance": "a"})
    members = world.get(f"{PATH}/{made['id']}/members")["items"]
    assert [(m["name"], m["fleet_host"]) for m in members] == [("a", "node-a"), ("b", "")]
    assert members[0]["agent_us"]


def test_released_reservations_are_deleted_after_the_time_of_events(world: World) -> None:
    gone, kept = world.reserve(count=1), world.reserve(count=1)
    world.post(gone, "release", "operator")
    world.driver.tick()
    assert {each.id for each in world.use.list(ended=True)} == {gone["id"], kept["id"]}
    world.forward(401 * 86400)
    driver = reservation_serving.Driver(world.use, 60.0, world.log.append, keep_days=400)
    world.platform.go_away()  # what is not released stays, however old
    driver.tick()
    assert {each.id for each in world.use.list(ended=True)} == {kept["id"]}
    assert world.use.plane.events(gone["id"]) == ()


def test_agents_report_to_this_server_with_a_token_for_one_use(world: World) -> None:
    refused = world.create(start_agent=True, agent_server="https://elsewhere")
    assert serverworld.problem(refused)["title"] == "agents cannot report to https://elsewhere"
    world.enrol("b")  # known, and silent since
    made = world.reserve(start_agent=True)
    assert [host["agent"] for host in made["hosts"]] == ["started", "started"]
    assert {setup.server for setup in world.platform.setups} == {ENDPOINT}
    # The agent of a enrols, reports, and is found; that of b does not come.
    credential = secrets.token_urlsafe(32)
    sent = {"token": world.platform.setups[0].token, "credential": credential, "host": "a"}
    assert world.ask("POST", "/api/v1/agents/enrol", json=sent).status_code == 200
    assert world.report(credential).status_code == 200
    assert world.use.tick() == ()  # checked a moment ago
    world.forward(60)
    world.driver.tick()
    hosts = world.get(f"{PATH}/{made['id']}")["reservation"]["hosts"]
    agents = [check["state"] for host in hosts for check in host["checks"] if check["name"] == "agent"]  # fmt: skip
    assert agents == ["passed", "failed"]
    tokens = {token.name: token for token in world.fleet.tokens.list() if token.role == "agent"}
    assert tokens["reservation of b"].host == "b"  # enrols a host that is known
    world.post(made, "release", "operator")
    world.driver.tick()
    tokens = {token.name: token for token in world.fleet.tokens.list() if token.role == "agent"}
    assert tokens["reservation of a"].revoked_us is None  # used
    assert tokens["reservation of b"].revoked_us is not None


def test_a_host_is_found_by_its_name_or_by_the_id_of_its_instance(world: World) -> None:
    heard = world.use.plane.context.hooks.heard
    assert heard("i-0abc") is None
    world.report(world.enrol("ip-10-0-0-7"), labels={"instance": "i-0abc"})
    for name in ("i-0abc", "ip-10-0-0-7"):
        found = heard(name)
        assert found is not None
        assert found.agent_us is not None


def test_an_error_is_logged_once_until_all_succeeds(world: World) -> None:
    world.reserve(count=1)
    world.log.clear()
    minutes = 0

    def tick(*, away: bool) -> list[str]:
        """Tick twenty minutes later, and once more before it is tried again; return what was logged of the platform."""
        nonlocal minutes
        minutes += 20
        world.platform.error = None
        if away:
            world.platform.go_away()
        world.forward(minutes * 60)
        world.driver.tick()
        if away:
            world.driver.tick()
        return [line for line in world.log if "no answer" in line]

    assert [len(tick(away=away)) for away in (True, True, True, False, True)] == [1, 1, 1, 1, 2]


def test_what_another_server_drives_is_logged_once(world: World) -> None:
    made = world.reserve(count=1)
    world.reserve(count=1)
    world.forward(60)
    find = context.Context.find_obstacle
    with pytest.MonkeyPatch.context() as patched:
        away = lambda self, r: "away" if r.id == made["id"] else find(self, r)  # noqa: E731
        patched.setattr(context.Context, "find_obstacle", away)
        for _ in range(3):
            world.driver.tick()
    assert world.log.count(f"{made['id']}: away") == 1


def test_a_tick_that_fails_is_logged_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise ValueError("bug")

    monkeypatch.setattr(world.use, "tick", fail)
    assert [world.driver.tick(), world.driver.tick()] == [False, False]
    assert world.log == ["reservations are not driven: ValueError('bug')"]


def test_metrics_say_what_is_held_and_what_cannot_be_given_back(world: World) -> None:
    def read(name: str) -> list[str]:
        found: list[str] = re.findall(rf"^{name}\S* (\S+)$", world.server.metrics(), re.MULTILINE)
        return found

    assert read("overnight_reservation_expiry_seconds") == []
    made = world.reserve(seconds=3600)
    assert read("overnight_reservation_hosts") == ["2"]
    [left] = read("overnight_reservation_expiry_seconds")
    assert 3500 < float(left) <= 3600
    assert read('overnight_reservations{state="active"}') == ["1"]
    world.platform.go_away()
    world.post(made, "release", "operator")
    world.driver.tick()
    assert read("overnight_reservation_failed_releases") == ["1"]
