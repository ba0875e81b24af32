"""Reservations on a played platform, operation by operation: preflight, drive, extend, list, check."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
from reservedhosts import ORDER, World

from overnight import errors, reservations
from overnight.model.reservation import (
    MAX_SECONDS,
    AgentTasks,
    Check,
    CheckState,
    Lease,
    Member,
    Order,
    Reservation,
    ReservationState,
    Workload,
)
from overnight.reservations import context, control, decisions, driver
from overnight.reservations.sql import reservation_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

S = 1_000_000
State = ReservationState
HOUR = 3600


@pytest.fixture
def night(url: str) -> Iterator[World]:
    world = World(url)
    yield world
    world.close()


def test_a_reference_host_is_compared_and_not_taken(night: World) -> None:
    night.platform.hosts["a"].facts = {"kernel": "6.8"}
    plan = night.plane.preflight(dataclasses.replace(ORDER, reference="a"))
    assert {each.host.name: each.differences for each in plan.hosts} == dict.fromkeys(
        ("b", "c"), ("kernel is 6.1, a has 6.8",)
    )
    assert plan.left_out == {"a": "the reference host"}
    with pytest.raises(errors.CannotError, match="no reference host 'x'") as caught:
        night.plane.preflight(dataclasses.replace(ORDER, reference="x"))
    assert caught.value.why == "played lists a, b, c"


@pytest.mark.parametrize(("count", "planned"), [(1, 100), (102, 102)])
def test_a_hundred_busy_hosts_are_compared_or_as_many_as_are_wanted(
    url: str, count: int, planned: int
) -> None:
    world = World(url, *(f"h{number:03}" for number in range(105)))
    for host in world.platform.hosts.values():
        host.workloads = [Workload("web", "pod")]
    plan = world.plane.preflight(dataclasses.replace(ORDER, count=count, evict=True))
    assert len(plan.hosts) == count
    assert len(plan.hosts) + len(plan.left_out) == 105
    assert sum(what == "plan" for what, _ in world.platform.calls) == planned
    world.close()


def test_a_driver_that_works_longer_than_its_lease_keeps_the_reservation(night: World) -> None:
    """Each call renews the lease of the driver, and what is saved afterwards does not shorten it."""
    for name in ("a", "b"):
        night.platform.hosts[name].workloads = [Workload(f"web-{n}", "pod") for n in range(2)]
    other = night.another()

    def take_time(what: str, host: str) -> None:
        if what == "empty":
            assert other.tick() == ()
            night.clock.forward(100)

    def sleep(seconds: float) -> None:
        night.clock.forward(seconds)
        assert other.tick() == ()

    night.platform.before = take_time
    plane = control.ControlPlane(dataclasses.replace(night.plane.context, sleep=sleep))
    order = dataclasses.replace(ORDER, evict=True)
    made = plane.reserve(plane.preflight(order))
    assert made.made_us + context.DRIVER_SECONDS * S < night.clock()
    assert (made.fence, made.driver_until_us) == (1, 0)


def test_a_reservation_that_waits_is_not_driven_before_its_time(night: World) -> None:
    made = night.plane.create(night.plane.preflight(ORDER))
    with night.plane.context.database.write("wait") as connection:
        changed = {"next_us": night.clock() + S, "driver_until_us": 0}
        reservation_rows.change(connection, made, **changed)
    waiting = night.plane.show(made.id)
    assert night.plane.drive(waiting) is None
    assert night.plane.tick() == ()
    night.clock.forward(1)
    assert [each.state for each in night.plane.tick()] == [State.ACTIVE]


def test_a_reservation_that_fails_does_not_keep_others_from_being_driven(night: World) -> None:
    bad, good = night.reserve(hosts=("a",)), night.reserve(hosts=("b",))
    night.clock.forward(60)
    drive, shown = night.plane.drive, list[str]()

    def fail(reservation: Reservation, progress: reservations.Progress) -> Reservation | None:
        if reservation.id == bad.id:
            raise errors.CannotError("no rights", why="they were taken away", todo="")
        return drive(reservation, progress)

    night.plane.drive = fail  # type: ignore[method-assign]
    assert [each.id for each in night.plane.tick(shown.append)] == [good.id]
    assert shown == [f"{bad.id}: no rights: they were taken away"]


def test_an_extension_ends_14_days_after_the_reservation_was_made_at_the_latest(
    night: World,
) -> None:
    made = night.reserve()
    night.clock.forward(1800)
    for seconds in (-1, 0, MAX_SECONDS - 1799):
        with pytest.raises(errors.UsageError, match=f"invalid --for {seconds}s"):
            night.plane.extend(made.id, seconds)
    assert night.plane.show(made.id).until_us == made.until_us
    shorter = night.plane.extend(made.id, 60)
    assert (shorter.until_us, shorter.cap_us) == (night.clock() + 60 * S, made.cap_us)
    longest = night.plane.extend(made.id, MAX_SECONDS - 1800)
    assert longest.until_us == longest.cap_us == made.made_us + MAX_SECONDS * S
    assert Lease.parse(night.platform.hosts["b"].mark or "") == longest.lease


@pytest.mark.parametrize("end", ["expired", "released"])
def test_a_reservation_that_has_ended_is_not_extended(night: World, end: str) -> None:
    made = night.reserve()
    if end == "expired":
        night.clock.forward(ORDER.seconds)  # and no driver has looked yet
    else:
        night.plane.release(made.id)
    with pytest.raises(errors.ConflictError, match="cannot extend"):
        night.plane.extend(made.id, HOUR)
    assert night.plane.show(made.id).until_us == made.until_us


def test_an_extension_while_another_driver_takes_over_says_so(night: World) -> None:
    made = night.reserve()
    other = night.another()

    def take_over(what: str, host: str) -> None:
        if what == "renew":
            night.platform.before = lambda what, host: None
            driver.take(other.context, other.show(made.id), print)

    night.platform.before = take_over
    with pytest.raises(errors.ConflictError) as caught:
        night.plane.extend(made.id, HOUR)
    assert caught.value.why == "another process changes it at this moment"


def test_what_happens_to_a_lease_is_in_the_events(night: World) -> None:
    made = night.reserve(hosts=("a",), seconds=600, max_seconds=1200, renew=True)
    night.tick_until(1260)
    kinds = night.kinds(made.id)
    assert kinds == ["created", "held", "active", "renewed", "renewed", "expired", "released", "released"]  # fmt: skip
    last = night.plane.events(made.id, 3)
    assert [(e.kind, e.host) for e in last] == [("expired", ""), ("released", "a"), ("released", "")]  # fmt: skip


def test_reservations_are_listed_newest_first_and_hosts_as_they_were_planned(night: World) -> None:
    first = night.reserve(hosts=("b", "a"))
    night.clock.forward(1)
    second = night.reserve(hosts=("c",))
    assert [each.id for each in night.plane.list()] == [second.id, first.id]
    assert [host.name for host in night.plane.show(first.id).hosts] == ["b", "a"]
    night.plane.release(second.id)
    assert [each.id for each in night.plane.list()] == [first.id]
    assert [each.id for each in night.plane.list(ended=True)] == [second.id, first.id]


def test_released_reservations_are_forgotten_if_they_were_made_before_a_time(night: World) -> None:
    made, held = night.reserve(hosts=("a",)), night.reserve(hosts=("b",))
    night.plane.release(made.id)
    assert night.plane.forget(made.made_us) == 0
    assert night.plane.forget(made.made_us + 1) == 1
    assert [each.id for each in night.plane.list(ended=True)] == [held.id]


def test_a_release_is_tried_again_at_once_when_somebody_asks_and_keeps_its_reason(
    night: World,
) -> None:
    made = night.reserve()
    night.platform.go_away()
    for reason in ("by one person", "by another"):
        waiting = night.plane.release(made.id, reason)
        assert (waiting.state, waiting.reason, waiting.attempts) == (State.RELEASING, "by one person", 1)  # fmt: skip
        assert waiting.next_us > night.clock()
    night.platform.error = None
    assert night.plane.tick() == ()
    night.plane.release(made.id, later=True)
    [ended] = night.plane.tick()
    assert (ended.state, ended.reason) == (State.RELEASED, "by one person")


def test_members_have_the_names_of_their_agents_in_the_fleet(night: World) -> None:
    night.heard["a"] = reservations.Heard(night.clock(), 0, "ip-10-0-0-7")
    made = night.reserve()
    assert night.plane.members(made.id) == (
        Member(name="a", agent="found", fleet_host="ip-10-0-0-7", agent_us=night.clock()),
        Member(name="b", agent=""),
    )


@pytest.mark.parametrize("server", ["", "https://centre"])
def test_an_agent_that_is_started_gets_its_server_and_tasks_and_is_ended_alone(
    night: World, server: str
) -> None:
    setups, ended, tasks = list[reservations.AgentSetup](), list[str](), AgentTasks(kinds=("load",))
    night.heard["a"] = reservations.Heard(night.clock() - 120 * S)  # it counts as running
    night.heard["b"] = reservations.Heard(night.clock() - 121 * S)
    start = night.platform.start_agent

    def start_agent(host: str, order: Order, lease: Lease, setup: reservations.AgentSetup) -> None:
        start(host, order, lease, setup)
        setups.append(setup)
        night.heard.pop(host)

    night.platform.start_agent = start_agent  # type: ignore[method-assign]
    hooks = dataclasses.replace(night.plane.context.hooks, agent_ended=ended.append)
    plane = control.ControlPlane(dataclasses.replace(night.plane.context, hooks=hooks))
    order = dataclasses.replace(ORDER, start_agent=True, agent_server=server, agent_tasks=tasks)
    made = plane.reserve(plane.preflight(order))
    assert [host.agent for host in made.held] == ["found", "started"]
    [setup] = setups
    assert (setup.server, setup.tasks) == (server, tasks if server else None)
    [check] = [check for check in made.held[1].checks if check.name == "agent"]
    assert (check.state, check.detail) == (CheckState.UNKNOWN, "started, and not heard yet")
    plane.release(made.id)
    assert ended == ["b"]


def test_a_check_runs_a_load_only_if_it_was_asked_for(night: World) -> None:
    made, asked = night.reserve(), list[tuple[str, str]]()

    def run(provider: str, host: str) -> Check:
        asked.append((provider, host))
        return Check("load-constancy", CheckState.PASSED, "CPU 60.0 %")

    hooks = dataclasses.replace(night.plane.context.hooks, load_gate=run)
    plane = control.ControlPlane(dataclasses.replace(night.plane.context, hooks=hooks))
    plane.check(made.id)
    assert asked == []
    night.clock.forward(7)
    checked = plane.check(made.id, load=True)
    assert asked == [("played", "a"), ("played", "b")]
    night.clock.forward(7)
    checked = plane.check(made.id)  # keeps the older one
    times = {check.name: check.at_us for check in checked.held[0].checks}
    assert times.pop("load-constancy") == night.clock() - 7 * S
    assert {*times.values()} == {night.clock()}


def test_a_check_says_of_a_host_that_it_is_gone(night: World) -> None:
    made, listed = night.reserve(), night.platform.list_held
    night.platform.list_held = lambda order: [  # type: ignore[method-assign]
        dataclasses.replace(held, gone="node a does not exist" if held.host == "a" else "")
        for held in listed(order)
    ]
    checked = night.plane.check(made.id)
    marks = [c for host in checked.held for c in host.checks if c.name == "marks"]
    assert [(c.state, c.detail) for c in marks] == [
        (CheckState.FAILED, "node a does not exist"), (CheckState.PASSED, ""),
    ]  # fmt: skip


def test_a_check_that_the_platform_does_not_answer_is_tried_again_less_often(night: World) -> None:
    made = night.reserve()

    def fail(what: str, host: str) -> None:
        if what == "list_workloads":
            raise reservations.PlatformError("no answer", why="timed out", todo="wait")

    night.platform.before = fail
    night.clock.forward(60)
    [ticked] = night.plane.tick()
    assert (ticked.attempts, ticked.next_us) == (1, night.clock() + decisions.BACKOFF_SECONDS * S)
    assert [host.detail for host in ticked.held] == ["no answer: timed out"] * 2
    night.platform.before = lambda what, host: None
    night.clock.forward(60)
    [ticked] = night.plane.tick()
    assert (ticked.attempts, ticked.next_us) == (0, night.clock() + decisions.WATCH_SECONDS * S)
    assert [host.detail for host in ticked.held] == ["", ""]
    assert made.id == ticked.id
