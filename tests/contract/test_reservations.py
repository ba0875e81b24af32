"""Reservations on a played platform: what is taken, kept and given back, whatever fails."""

from __future__ import annotations

import dataclasses
import threading
from typing import TYPE_CHECKING

import pytest
from reservedhosts import ORDER, World

from overnight import errors, reservations
from overnight.database import database_errors
from overnight.model.reservation import (
    MAX_SECONDS,
    CheckState,
    Held,
    HostState,
    Lease,
    Order,
    ReservationState,
    Workload,
)
from overnight.reservations import context, control, decisions, driver

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator

S = 1_000_000
State = ReservationState
HOUR = 3600


@pytest.fixture
def night(url: str) -> Iterator[World]:
    world = World(url)
    yield world
    world.close()


# reserve


def test_a_reservation_is_held_until_its_end_and_needs_no_process(night: World) -> None:
    made = night.reserve()
    assert made.state is State.ACTIVE
    assert [host.name for host in made.held] == ["a", "b"]
    assert made.until_us == made.cap_us == made.made_us + ORDER.seconds * S
    for name in ("a", "b"):
        host = night.platform.hosts[name]
        assert Lease.parse(host.mark or "") == host.claim == made.lease
    assert night.platform.hosts["c"].claim is None
    assert night.kinds(made.id) == ["created", "held", "held", "active"]
    night.clock.forward(ORDER.seconds - 1)
    assert [cleaned.why for cleaned in night.clean()] == ["", ""]
    night.clock.forward(decisions.GRACE_SECONDS + 2)
    night.clean()
    assert night.platform.marked == []


def test_nothing_is_called_before_the_record_is_written(night: World) -> None:
    recorded: list[HostState] = []

    def look(what: str, host: str) -> None:
        if what == "claim":
            [made] = night.plane.list()
            recorded.append(next(h.state for h in made.hosts if h.name == host))

    night.platform.before = look
    night.reserve()
    assert recorded == [HostState.PLANNED, HostState.PLANNED]


def test_a_host_that_is_taken_meanwhile_is_replaced(night: World) -> None:
    plan = night.plane.preflight(ORDER)
    night.reserve(hosts=("a",), owner="team-b")
    made = night.plane.reserve(plan)
    assert [(h.name, h.state) for h in made.hosts] == [
        ("a", HostState.RELEASED), ("b", HostState.HELD), ("c", HostState.HELD),
    ]  # fmt: skip
    assert "replaced" in night.kinds(made.id)
    claim = night.platform.hosts["a"].claim
    assert claim is not None
    assert claim.owner == "team-b"


def test_a_named_host_that_is_taken_meanwhile_is_an_error_and_releases_the_rest(
    night: World,
) -> None:
    plan = night.plane.preflight(dataclasses.replace(ORDER, hosts=("a", "b")))
    night.reserve(hosts=("b",), owner="team-b")
    with pytest.raises(errors.CannotError, match="could not be made") as caught:
        night.plane.reserve(plan)
    assert "team-b has b" in caught.value.why
    assert night.platform.marked == ["b"]


def test_a_replacement_never_disturbs_without_consent(night: World) -> None:
    plan = night.plane.preflight(dataclasses.replace(ORDER, evict=True))
    night.platform.hosts["c"].workloads.append(Workload("web-1", "pod"))
    night.reserve(hosts=("a",), owner="team-b")
    with pytest.raises(errors.CannotError) as caught:
        night.plane.reserve(plan)
    assert "no other host fits" in caught.value.why
    assert night.platform.hosts["c"].workloads
    assert night.platform.marked == ["a"]


def test_two_reservers_race_for_one_host_and_one_wins(url: str) -> None:
    world = World(url, "a")
    order = dataclasses.replace(ORDER, hosts=("a",))
    planes = [world.another(), world.another()]
    plans = [plane.preflight(order) for plane in planes]
    results: list[str] = []
    barrier = threading.Barrier(2)

    def race(number: int) -> None:
        barrier.wait()
        try:
            results.append(planes[number].reserve(plans[number]).id)
        except errors.CannotError:
            results.append("")

    threads = [threading.Thread(target=race, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(bool, results)) == [False, True]
    claim = world.platform.hosts["a"].claim
    assert claim is not None
    assert claim.id in results
    assert [r.id for r in world.plane.list()] == [claim.id]
    world.close()


def test_workloads_are_evicted_one_by_one_and_a_blocked_one_ends_the_reservation(
    night: World,
) -> None:
    night.platform.hosts["a"].workloads = [Workload("web-1", "pod"), Workload("web-2", "pod")]
    assert night.reserve(hosts=("a", "b"), evict=True).state is State.ACTIVE
    night.platform.hosts["c"].workloads = [Workload("db-1", "pod", blocked="PodDisruptionBudget")]
    with pytest.raises(errors.CannotError) as caught:
        night.reserve(hosts=("c",), evict=True, prepare_seconds=60)
    assert "c: cannot evict pod db-1 from c: PodDisruptionBudget" in caught.value.why
    assert night.platform.marked == ["a", "b"]


def test_the_hosts_that_disturb_others_least_are_emptied(url: str) -> None:
    world = World(url, *"abcdefg")
    pods = [Workload(f"web-{n}", "pod") for n in range(3)]
    stays = Workload("log", "pod", stays="DaemonSet")
    found = {"a": pods, "b": pods[:1], "c": [Workload("db", "pod", blocked="budget")], "d": pods[:2], "e": [*pods[:1], stays]}  # fmt: skip
    for name, workloads in found.items():
        world.platform.hosts[name].workloads = list(workloads)
    orders = {
        1: ["f"],
        2: ["f", "g"],
        4: ["f", "g", "b", "e"],
        6: ["f", "g", "b", "e", "d", "a"],
        7: ["f", "g", "b", "e", "d", "a", "c"],
    }
    for count, expected in orders.items():
        order = dataclasses.replace(ORDER, count=count, evict=True)
        plan = world.plane.preflight(order)
        assert [each.host.name for each in plan.hosts] == expected
        assert {*plan.left_out} == {*"abcdefg"} - {*expected}
    named = world.plane.preflight(dataclasses.replace(ORDER, hosts=("a", "f"), evict=True))
    assert [each.host.name for each in named.hosts] == ["a", "f"]
    world.close()


def test_a_blocked_workload_of_one_host_keeps_those_of_all(night: World) -> None:
    night.platform.hosts["a"].workloads = [Workload("web-1", "pod")]
    night.platform.hosts["b"].workloads = [Workload("db-1", "pod", blocked="PodDisruptionBudget")]
    with pytest.raises(errors.CannotError) as caught:
        night.reserve(hosts=("a", "b"), evict=True, prepare_seconds=60)
    assert "a: cannot evict pod db-1 from b: PodDisruptionBudget" in caught.value.why
    assert [work.name for work in night.platform.hosts["a"].workloads] == ["web-1"]
    assert night.platform.marked == []

    def allow(what: str, host: str) -> None:
        if night.clock() > start + 30 * S:
            night.platform.before = lambda what, host: None
            night.platform.hosts["b"].workloads = [Workload("db-1", "pod")]

    start, night.platform.before = night.clock(), allow
    night.reserve(hosts=("a", "b"), evict=True, prepare_seconds=60)
    assert not night.platform.hosts["a"].workloads


def test_nothing_is_evicted_before_every_host_is_claimed(night: World) -> None:
    night.platform.hosts["a"].workloads = [Workload("web-1", "pod")]
    plan = night.plane.preflight(dataclasses.replace(ORDER, hosts=("a", "b"), evict=True))
    night.reserve(hosts=("b",), owner="team-b")
    with pytest.raises(errors.CannotError):
        night.plane.reserve(plan)
    assert night.platform.hosts["a"].workloads
    # One that cannot be claimed for a while holds up the others, too.
    night.platform.hosts["c"].workloads = [Workload("web-2", "pod")]

    def refuse(what: str, host: str) -> None:
        if (what, host) == ("claim", "c"):
            assert night.platform.hosts["a"].workloads
            if night.clock() < start + 30 * S:
                raise reservations.PlatformError("no answer", why="timed out", todo="wait")

    start, night.platform.before = night.clock(), refuse
    night.reserve(hosts=("a", "c"), evict=True)
    assert not night.platform.hosts["a"].workloads


def test_hosts_with_workloads_are_left_out_without_evict(night: World) -> None:
    night.platform.hosts["a"].workloads = [Workload("web-1", "pod"), Workload("log", "pod", stays="DaemonSet")]  # fmt: skip
    plan = night.plane.preflight(ORDER)
    assert [each.host.name for each in plan.hosts] == ["b", "c"]
    assert plan.left_out == {"a": "runs web-1; --evict would move it away"}


def test_a_host_that_is_not_empty_at_the_deadline_of_its_platform_ends_the_reservation(
    night: World,
) -> None:
    def refuse(what: str, host: str) -> None:
        if (what, host) == ("empty", "b"):
            raise reservations.NotEmptyError("b is not empty", why="web-1 is on it", todo="")

    night.platform.before = refuse
    begin = night.clock()
    with pytest.raises(errors.CannotError) as caught:
        night.reserve()
    assert caught.value.why == "b: b is not empty: web-1 is on it"
    assert night.clock() < begin + 60 * S  # it is not tried until the end of the preparation
    assert night.platform.marked == []


def test_what_kept_hosts_from_being_held_is_said_of_those_that_are_still_wanted(
    night: World,
) -> None:
    plan = night.plane.preflight(dataclasses.replace(ORDER, prepare_seconds=60))
    night.reserve(hosts=("a",), owner="team-b")

    def refuse(what: str, host: str) -> None:
        if (what, host) == ("mark", "c"):
            raise reservations.PlatformError("no answer", why="timed out", todo="wait")

    night.platform.before = refuse
    with pytest.raises(errors.CannotError) as caught:
        night.plane.reserve(plan)
    why = "not every host could be held in time: b: planned; c: no answer: timed out"
    assert caught.value.why == why
    assert night.platform.marked == ["a"]


def test_a_host_that_is_held_has_no_problem_any_more(night: World) -> None:
    night.platform.hosts["a"].workloads = [Workload("web-1", "pod")]
    made = prepare(night, hosts=("a",), evict=True).reservation
    assert (made.held[0].detail, made.hosts) == ("", made.held)


def test_a_replacement_takes_one_host_and_removes_the_marks_of_the_other(url: str) -> None:
    world = World(url, *"abcde")
    plan = world.plane.preflight(ORDER)
    world.reserve(hosts=("a",), owner="team-b")
    made = world.plane.reserve(plan)
    assert [host.name for host in made.held] == ["b", "c"]
    assert world.platform.calls.count(("release", "a")) == 1
    [event] = [e for e in world.plane.events(made.id) if e.kind == "replaced"]
    assert (event.host, event.detail) == ("a", "by c: team-b has a")
    world.close()


def test_a_reservation_is_not_active_before_every_host_has_its_whole_lease(night: World) -> None:
    def refuse(what: str, host: str) -> None:
        if (what, host) == ("renew", "b"):
            night.platform.before = lambda what, host: None
            raise reservations.PlatformError("no answer", why="timed out", todo="wait")

    night.platform.before = refuse
    made = night.plane.create(night.plane.preflight(ORDER))
    driven = driver.take(night.plane.context, made, print)
    assert driven.step().state is State.PREPARING
    assert driven.reservation.attempts == 1
    assert driven.step().state is State.ACTIVE
    marks = {Lease.parse(night.platform.hosts[name].mark or "") for name in "ab"}
    assert marks == {driven.reservation.lease}


def test_ctrl_c_gives_back_what_was_taken(night: World) -> None:
    def interrupt(what: str, host: str) -> None:
        if (what, host) == ("mark", "b"):
            night.platform.before = lambda what, host: None
            raise KeyboardInterrupt

    night.platform.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        night.reserve()
    assert night.platform.marked == []
    assert night.plane.list() == ()


# drivers


def test_of_several_servers_one_checks_a_reservation(night: World) -> None:
    made = night.reserve()
    other = night.another()
    night.platform.calls.clear()
    for _ in range(10):
        night.clock.forward(60)
        assert len([*night.plane.tick(), *other.tick()]) == 1
    assert night.platform.calls.count(("renew", made.held[0].name)) == 10
    night.plane.extend(made.id, 30)  # the end is not missed, however soon it is
    night.clock.forward(30)
    assert [each.state for each in other.tick()] == [State.RELEASED]


def test_only_one_driver_at_a_time(night: World) -> None:
    night.reserve()
    night.clock.forward(60)
    other = night.another()
    inside: list[object] = []

    def tick_too(what: str, host: str) -> None:
        if what == "renew" and not inside:
            inside.append(other.tick())

    night.platform.before = tick_too
    assert len(night.plane.tick()) == 1
    assert inside == [()]


@pytest.mark.parametrize("call", ["claim", "mark", "empty", "renew"])
def test_a_driver_that_lost_its_fence_stops_and_leaves_no_mark(url: str, call: str) -> None:
    """It hangs in a call; meanwhile its lease ends, and an operator releases the hosts."""
    world = World(url)
    operator = world.another()

    def hang(what: str, host: str) -> None:
        if what == call:
            world.platform.before = lambda what, host: None
            world.clock.forward(context.DRIVER_SECONDS + 1)
            [made] = operator.list()
            assert operator.release(made.id).state is State.RELEASED

    world.platform.before = hang
    with pytest.raises(errors.CannotError, match="could not be made"):
        world.reserve()
    # A call that was already on its way changed the host after the release, and was undone.
    assert world.platform.marked == []
    [gone] = world.plane.list(ended=True)
    assert (gone.state, gone.reason) == (State.RELEASED, "released by hand")
    world.close()


def test_a_fence_that_is_lost_while_hosts_are_released_leaves_the_rest_to_the_other_driver(
    night: World,
) -> None:
    made, other = night.reserve(), night.another()
    calls: list[str] = []

    def take_over(what: str, host: str) -> None:
        if what == "release":
            calls.append(host)
            if len(calls) == 1:
                other.release(made.id, "by another person")

    night.platform.before = take_over
    ended = night.plane.release(made.id, "by one person")
    assert calls[:3] == ["a", "a", "b"]  # the first driver does not go on to b
    assert (ended.state, ended.reason) == (State.RELEASED, "by one person")
    assert night.kinds(made.id).count("released") == 3  # each host, and the reservation
    assert night.platform.marked == []


@pytest.mark.parametrize("later", [False, True])
def test_a_driver_whose_reservation_is_given_back_meanwhile_leaves_nothing(
    night: World, later: bool
) -> None:
    other = night.another()
    plan = night.plane.preflight(ORDER)
    made = night.plane.create(plan)

    def give_back(what: str, host: str) -> None:
        if (what, host) == ("claim", "a"):
            night.platform.before = lambda what, host: None
            # With `later` it is only RELEASING: no server has looked yet.
            other.release(made.id, later=later)

    night.platform.before = give_back
    driven = driver.take(night.plane.context, made, print)
    with pytest.raises(driver.FenceLostError):
        driven.step()
    assert night.platform.marked == []
    night.plane.tick()
    assert night.plane.show(made.id).state is State.RELEASED


def test_a_driver_whose_reservation_another_one_still_prepares_keeps_its_marks(
    night: World,
) -> None:
    made = night.plane.create(night.plane.preflight(ORDER))

    def take_over(what: str, host: str) -> None:
        if (what, host) == ("claim", "a"):
            night.platform.before = lambda what, host: None
            driver.take(night.another().context, night.plane.show(made.id), print)

    night.platform.before = take_over
    driven = driver.take(night.plane.context, made, print)
    with pytest.raises(driver.FenceLostError):
        driven.step()
    assert night.platform.marked == ["a"]  # the other driver has it now


def prepare(night: World, **changes: object) -> driver.Driver:
    """Hold every host, and stop before the first watch."""
    order = dataclasses.replace(ORDER, **changes)  # type: ignore[arg-type]
    made = night.plane.create(night.plane.preflight(order))
    driven = driver.take(night.plane.context, made, print)
    while driven.step().state is State.PREPARING:
        night.clock.forward(1)
    assert driven.reservation.state is State.ACTIVE
    assert not any(host.checks for host in driven.reservation.hosts)
    return driven


def test_marks_are_read_on_the_platform_before_the_first_watch(night: World) -> None:
    driven = prepare(night)
    hosts, made = night.platform.hosts, driven.reservation.id
    hosts["a"].mark, hosts["a"].claim = None, None
    checked = night.plane.check(made)
    marks = {h.name: c for h in checked.hosts for c in h.checks if c.name == "marks"}
    assert {name: check.state for name, check in marks.items()} == {"a": CheckState.FAILED, "b": CheckState.PASSED}  # fmt: skip
    assert marks["a"].detail == "the host does not carry the lease"
    # A mark without its claim, and the mark of another lease, are not ours.
    hosts["b"].claim = None
    other = Lease("r-aaaaaaaaaaaa", "team-b", night.clock() + 1, night.clock() + 2)
    hosts["a"].mark, hosts["a"].claim = other.text(), other
    checked = night.plane.check(made)
    states = {c.state for h in checked.hosts for c in h.checks if c.name == "marks"}
    assert states == {CheckState.FAILED}


def test_a_mark_that_is_lost_before_the_reservation_is_active_is_written_again(
    night: World,
) -> None:
    def lose(what: str, host: str) -> None:
        if (what, host) == ("renew", "b"):
            night.platform.before = lambda what, host: None
            night.platform.hosts["b"].mark = None

    night.platform.before = lose
    made = prepare(night).reservation
    assert night.kinds(made.id) == ["created", "held", "held", "mark_lost", "active"]
    for name in ("a", "b"):
        assert Lease.parse(night.platform.hosts[name].mark or "") == made.lease


def test_a_host_that_is_taken_before_the_reservation_is_active_ends_it(night: World) -> None:
    other = Lease("r-aaaaaaaaaaaa", "team-b", night.clock() + HOUR * S, night.clock() + HOUR * S)

    def take(what: str, host: str) -> None:
        if (what, host) == ("renew", "b"):
            night.platform.before = lambda what, host: None
            night.platform.hosts["b"].mark, night.platform.hosts["b"].claim = other.text(), other

    night.platform.before = take
    with pytest.raises(errors.CannotError) as caught:
        night.reserve()
    assert "b: its marks are gone, and team-b has b" in caught.value.why
    assert night.platform.marked == ["b"]
    assert night.platform.hosts["b"].claim == other


def test_a_host_that_does_not_exist_any_more_fails_the_check_and_is_not_claimed(
    night: World,
) -> None:
    made = night.reserve()

    def vanish(what: str, host: str) -> None:
        assert (what, host) not in (("claim", "a"), ("mark", "a"))
        if (what, host) == ("renew", "a"):
            raise reservations.GoneError("a does not exist", why="it was deleted", todo="")

    night.platform.before = vanish
    night.tick_until(180)
    now = night.plane.show(made.id)
    assert now.state is State.ACTIVE
    checks = {(h.name, c.name): (c.state, c.detail) for h in now.hosts for c in h.checks}
    assert checks["a", "marks"] == (CheckState.FAILED, "its marks are gone, and a does not exist")
    assert checks["b", "marks"] == (CheckState.PASSED, "")
    assert night.kinds(made.id).count("mark_lost") == 1  # said once
    night.platform.before = lambda what, host: None
    night.plane.release(made.id)
    assert night.platform.marked == []


def test_a_write_with_an_old_fence_changes_nothing(night: World) -> None:
    made = night.reserve()
    first = driver.take(night.plane.context, night.plane.show(made.id), lambda _: None)
    second = driver.take(night.plane.context, night.plane.show(made.id), lambda _: None)
    before = night.plane.show(made.id)
    calls = len(night.platform.calls)
    with pytest.raises(driver.FenceLostError):
        first.end("an old one")
    with pytest.raises(driver.FenceLostError):
        first.step()
    assert night.plane.show(made.id) == before
    assert len(night.platform.calls) == calls
    assert second.step().state is State.ACTIVE


def test_the_owner_sees_a_reservation_that_another_driver_completed(url: str) -> None:
    world = World(url)
    server = world.another()

    def stall(what: str, host: str) -> None:
        if what == "mark":
            world.platform.before = lambda what, host: None
            world.clock.forward(context.DRIVER_SECONDS + 1)
            assert [r.state for r in server.tick()] == [State.ACTIVE]

    world.platform.before = stall
    assert world.reserve().state is State.ACTIVE
    world.close()


def test_a_reserver_takes_over_again_if_the_other_driver_died(url: str) -> None:
    world = World(url)

    def stall(what: str, host: str) -> None:
        if what == "mark":
            world.platform.before = lambda what, host: None
            world.clock.forward(context.DRIVER_SECONDS + 1)
            [made] = world.plane.list()
            driver.take(world.plane.context, made, lambda _: None)  # and is killed at once

    world.platform.before = stall
    assert world.reserve().state is State.ACTIVE
    world.close()


# faults of the platform


def test_an_api_that_is_away_for_an_hour_gives_back_afterwards(night: World) -> None:
    made = night.reserve()
    night.platform.go_away()
    gone = night.plane.release(made.id)
    assert gone.state is State.RELEASING
    assert all("timed out" in host.detail for host in gone.hosts)
    night.tick_until(HOUR)
    calls = sum(what == "release" for what, _ in night.platform.calls)
    assert calls < 2 * 15  # with a growing pause, not every minute
    night.platform.error = None
    night.tick_until(decisions.MAX_BACKOFF_SECONDS + 60)
    assert night.platform.marked == []
    assert night.plane.show(made.id).state is State.RELEASED
    night.platform.check_others()


def test_an_api_that_is_away_while_the_lease_ends_is_cleaned_by_the_janitor(night: World) -> None:
    night.reserve()
    night.platform.go_away()
    night.tick_until(ORDER.seconds + HOUR)
    with pytest.raises(reservations.PlatformError):
        night.clean()
    night.platform.error = None
    night.clean()
    assert night.platform.marked == []
    night.tick_until(decisions.MAX_BACKOFF_SECONDS + 60)
    assert night.plane.list() == ()


def test_an_api_that_is_away_for_an_hour_does_not_end_a_longer_reservation(night: World) -> None:
    made = night.reserve(seconds=4 * HOUR)
    night.platform.go_away()
    night.tick_until(HOUR)
    [host, _] = night.plane.show(made.id).held
    assert {check.state for check in host.checks} == {CheckState.UNKNOWN, CheckState.FAILED}
    night.platform.error = None
    night.tick_until(decisions.MAX_BACKOFF_SECONDS + 60)
    now = night.plane.show(made.id)
    assert (now.state, now.attempts) == (State.ACTIVE, 0)
    assert [c.state for c in now.held[0].checks if c.name == "marks"] == [CheckState.PASSED]


def test_expired_credentials_end_a_preparation_and_the_release_waits_for_new_ones(
    night: World,
) -> None:
    def expire(what: str, host: str) -> None:
        if (what, host) == ("claim", "b"):
            night.platform.expire_credentials()

    night.platform.before = expire
    with pytest.raises(errors.CannotError) as caught:
        night.reserve()
    assert "the credentials have expired" in caught.value.why
    assert "overnight release" in caught.value.todo
    assert night.platform.marked == ["a"]
    night.tick_until(600)
    assert night.platform.marked == ["a"]
    night.platform.error = None
    night.tick_until(decisions.MAX_BACKOFF_SECONDS + 60)
    assert night.platform.marked == []
    assert night.plane.list() == ()


def test_a_bug_in_a_client_library_does_not_keep_other_hosts_from_being_given_back(
    night: World,
) -> None:
    made = night.reserve()

    def fail(what: str, host: str) -> None:
        if (what, host) == ("release", "a"):
            raise RuntimeError("bad response")

    night.platform.before = fail
    gone = night.plane.release(made.id)
    assert [host.name for host in gone.open] == ["a"]
    assert "RuntimeError: bad response" in gone.open[0].detail
    night.platform.before = lambda what, host: None
    night.tick_until(120)
    assert night.platform.marked == []


def test_a_server_without_the_provider_leaves_a_reservation_to_others(night: World) -> None:
    made = night.reserve()
    night.clock.forward(60)
    database = night.plane.context.database
    without = context.Context(database, {}, clock=night.clock, sleep=night.clock.forward)
    shown: list[str] = []
    assert control.ControlPlane(without).tick(shown.append) == ()
    assert shown == [f"{made.id}: this server has no provider played"]
    assert night.plane.show(made.id) == made
    assert len(night.plane.tick()) == 1


def test_a_machine_that_does_not_reach_a_host_leaves_it_to_others(night: World) -> None:
    made = night.reserve()
    night.clock.forward(60)
    night.platform.reaches = lambda host: host != "b"  # type: ignore[attr-defined]
    shown: list[str] = []
    assert night.plane.tick(shown.append) == ()
    assert shown == [f"{made.id}: this machine does not reach b"]
    assert night.plane.show(made.id) == made


# the record is lost


def test_a_truncated_database_file_leaves_the_janitor(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "pools.db"
    world = World(f"sqlite:///{path}")
    world.reserve()
    world.close()
    for name in ("pools.db-wal", "pools.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(database_errors.DatabaseUnavailableError):
        world.another().list()
    assert world.platform.marked == ["a", "b"]
    world.clock.forward(ORDER.seconds + decisions.GRACE_SECONDS + 1)
    world.clean()
    assert world.platform.marked == []
    world.platform.check_others()


def test_a_mark_that_a_database_does_not_know_is_not_touched_by_its_drivers(night: World) -> None:
    lease = Lease("r-0123456789ab", "team-b", night.clock() + HOUR * S, night.clock() + HOUR * S)
    night.platform.hosts["a"].claim, night.platform.hosts["a"].mark = lease, lease.text()
    night.reserve()
    assert [night.plane.release(each.id) for each in night.plane.list()]
    assert night.platform.marked == ["a"]


# renewal


def test_a_renewed_lease_ends_at_its_cap(night: World) -> None:
    made = night.reserve(seconds=600, max_seconds=2 * HOUR, renew=True)
    assert made.until_us == night.clock() + 600 * S
    seen = []
    for _ in range(2 * 60 - 1):
        night.tick_until(60)
        now = night.plane.show(made.id)
        assert night.clock() < now.until_us <= made.cap_us
        seen.append(now.until_us)
        assert all(
            Lease.parse(h.mark or "") == now.lease
            for n, h in night.platform.hosts.items()
            if n != "c"
        )
        assert all(not cleaned.why for cleaned in night.clean())
    assert len({*seen}) > 10
    assert seen[-1] == made.cap_us == made.made_us + 2 * HOUR * S
    night.tick_until(120)
    assert night.plane.show(made.id).reason == "the lease ended"
    assert night.platform.marked == []


def test_a_renewed_lease_ends_soon_without_a_driver(night: World) -> None:
    night.reserve(seconds=600, renew=True)
    night.clock.forward(600 + decisions.GRACE_SECONDS + 1)
    night.clean()
    assert night.platform.marked == []


def test_a_reservation_is_extended_by_hand_but_not_for_ever(night: World) -> None:
    made = night.reserve()
    longer = night.plane.extend(made.id, 10 * HOUR)
    assert longer.until_us == longer.cap_us == night.clock() + 10 * HOUR * S
    assert Lease.parse(night.platform.hosts["a"].mark or "") == longer.lease
    with pytest.raises(errors.UsageError, match="invalid --for"):
        night.plane.extend(made.id, MAX_SECONDS + 60)
    night.clock.forward(11 * HOUR)
    with pytest.raises(errors.ConflictError, match="cannot extend"):
        night.plane.extend(made.id, HOUR)


# checks


def test_a_foreign_workload_is_an_event_once_and_a_failed_check(night: World) -> None:
    made = night.reserve()
    night.platform.hosts["a"].workloads = [Workload("web-1", "pod"), Workload("log", "pod", stays="DaemonSet")]  # fmt: skip
    night.tick_until(180)
    [host, other] = night.plane.show(made.id).held
    [check] = [check for check in host.checks if check.name == "foreign-workload"]
    assert (check.state, check.detail) == (CheckState.FAILED, "pod web-1")
    assert check.advice
    assert all(c.state is CheckState.PASSED for c in other.checks if c.name == "foreign-workload")
    assert night.kinds(made.id).count("foreign_workload") == 1
    night.platform.hosts["a"].workloads.clear()
    night.tick_until(60)
    assert all(
        c.state is CheckState.PASSED
        for c in night.plane.show(made.id).held[0].checks
        if c.name == "foreign-workload"
    )


def test_a_lost_mark_is_written_again_only_if_the_host_is_still_ours(night: World) -> None:
    made = night.reserve(count=3)
    night.platform.hosts["a"].mark = None
    night.platform.hosts["c"].claim = None
    other = Lease("r-0123456789ab", "team-b", night.clock() + HOUR * S, night.clock() + HOUR * S)
    night.platform.hosts["b"].claim, night.platform.hosts["b"].mark = other, other.text()
    night.tick_until(60)
    assert Lease.parse(night.platform.hosts["a"].mark or "") == made.lease
    assert night.platform.hosts["c"].claim == made.lease
    assert night.platform.hosts["b"].mark == other.text()
    marks = [
        next(c.state for c in h.checks if c.name == "marks") for h in night.plane.show(made.id).held
    ]
    assert marks == [CheckState.PASSED, CheckState.FAILED, CheckState.PASSED]
    night.tick_until(120)
    assert night.kinds(made.id).count("mark_lost") == 3  # one for each host, not one for each tick
    night.plane.release(made.id)
    assert night.platform.marked == ["b"]


def test_a_running_agent_is_used_and_never_stopped(night: World) -> None:
    night.heard["a"] = reservations.Heard(night.clock(), 12_000)
    made = night.reserve(start_agent=True)
    assert [host.agent for host in made.held] == ["found", "started"]
    assert [call for call in night.platform.calls if call[0] == "start_agent"] == [("start_agent", "b")]  # fmt: skip
    checks = {check.name: check.state for check in made.held[0].checks}
    assert checks["agent"] == checks["clock"] == CheckState.PASSED
    night.tick_until(180)
    assert [call for call in night.platform.calls if call[0] == "start_agent"] == [("start_agent", "b")]  # fmt: skip
    assert night.platform.hosts["b"].agent == made.id
    night.plane.release(made.id)
    assert night.platform.hosts["b"].agent == ""


def test_a_silent_agent_and_a_wrong_clock_fail_the_check(night: World) -> None:
    made = night.reserve(count=1)
    night.heard["a"] = reservations.Heard(night.clock(), 90 * S)
    night.clock.forward(300)
    checked = night.plane.check(made.id).held[0].checks
    found = {check.name: (check.state, check.detail) for check in checked}
    assert found["agent"] == (CheckState.FAILED, "silent for 5 min")
    assert found["clock"] == (CheckState.FAILED, "+90.000 s")
    assert found["marks"][0] is CheckState.PASSED
    assert all(c.advice for c in checked if c.state is CheckState.FAILED)


# the janitor


def test_the_janitor_leaves_what_is_valid_young_or_of_others(night: World) -> None:
    hosts = night.platform.hosts
    valid = night.reserve(count=1)
    hosts["b"].mark, hosts["b"].marked_us = "{not a lease", night.clock()
    done = night.clean()
    assert [cleaned.why for cleaned in done] == ["", ""]
    night.clock.forward(86_401)
    assert {c.held.host: c.released for c in night.clean()} == {"a": True, "b": True}
    assert night.platform.marked == []
    assert night.plane.show(valid.id).state is State.ACTIVE  # until a driver looks
    night.plane.tick()
    assert night.plane.show(valid.id).state is State.RELEASED


def test_the_janitor_removes_a_mark_without_its_claim_after_two_looks(night: World) -> None:
    night.reserve(count=2)
    night.platform.hosts["a"].claim = None
    claim = night.platform.hosts["b"].claim
    night.platform.hosts["b"].claim = None

    def return_claim(what: str, host: str) -> None:
        if what == "list_held" and night.platform.calls.count(("list_held", "")) == 2:
            night.platform.hosts["b"].claim = claim  # it was only listed late

    night.platform.before = return_claim
    assert {c.held.host: c.why for c in night.clean()} == {"a": "its claim is gone", "b": ""}
    assert night.platform.marked == ["b"]


def test_the_janitor_removes_the_claim_of_a_host_that_is_gone_after_two_looks(night: World) -> None:
    from overnight.reservations import janitor

    made, listed = night.reserve(count=2), night.platform.list_held
    gone = {"a": 2, "b": 1}  # for so many looks

    def look(order: Order) -> list[Held]:
        held = [
            dataclasses.replace(h, gone="deleted" if gone[h.host] > 0 else "")
            for h in listed(order)
        ]
        gone.update({name: looks - 1 for name, looks in gone.items()})
        return held

    night.platform.list_held = look  # type: ignore[method-assign]
    done = janitor.clean(night.platform, ORDER, clock=night.clock, sleep=night.clock.forward)
    assert {c.held.host: (c.why, c.released) for c in done} == {"a": ("deleted", True), "b": ("", False)}  # fmt: skip
    assert night.platform.marked == ["b"]
    assert made.id


def test_the_janitor_leaves_the_live_one_of_two_leases_on_a_host(night: World) -> None:
    made = night.reserve(count=1)
    ended = Lease("r-aaaaaaaaaaaa", "team-b", night.clock() - HOUR * S, night.clock())
    listed = night.platform.list_held
    night.platform.list_held = lambda order: [Held("a", ended.id, ended), *listed(order)]  # type: ignore[method-assign]
    night.clock.forward(2)
    assert {c.held.id: c.released for c in night.clean()} == {ended.id: True, made.id: False}
    assert night.platform.marked == ["a"]
    claim = night.platform.hosts["a"].claim
    assert claim is not None
    assert claim.id == made.id


def test_a_dry_run_of_the_janitor_changes_nothing(night: World) -> None:
    from overnight.reservations import janitor

    night.reserve()
    night.clock.forward(2 * HOUR)
    [first, _] = janitor.clean(night.platform, ORDER, clock=night.clock, dry_run=True)
    assert (first.released, first.why) == (False, "expired 1 h ago")
    assert night.platform.marked == ["a", "b"]


def test_a_host_that_the_janitor_cannot_release_does_not_stop_it(night: World) -> None:
    night.reserve()
    night.clock.forward(2 * HOUR)

    def fail(what: str, host: str) -> None:
        if (what, host) == ("release", "a"):
            raise reservations.PlatformError("no answer", why="timed out", todo="")

    night.platform.before = fail
    assert [cleaned.problem for cleaned in night.clean()] == ["no answer: timed out", ""]
    assert night.platform.marked == ["a"]
