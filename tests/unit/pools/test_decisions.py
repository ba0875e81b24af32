"""Every rule of a pool, on pools that are made up: no clock, no database, no provider."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.pools import decisions, knobs, shape

S = 1_000_000
NOW = 1_000_000 * S
Status, State = shape.PoolStatus, shape.MemberState


def pool(**given: Any) -> shape.Pool:
    tuned = knobs.read(given.pop("tuned", {}))
    target = given.pop("target", 5)
    plain: dict[str, Any] = {
        "id": "p-1", "name": "ci", "template": "t", "target_size": target, "min_size": 0,
        "max_size": target + 10, "knobs": tuned,
    }  # fmt: skip
    return shape.Pool(**{**plain, **given})


def member(name: str, state: State, *, age: float = 60, **given: Any) -> shape.Member:
    began = NOW - int(age * S)
    plain: dict[str, Any] = {
        "id": name, "pool_id": "p-1", "state": state, "machine_id": f"i-{name}",
        "warming_started_us": began, "launched_us": began,
    }  # fmt: skip
    if state is not State.WARMING:
        plain |= {"ready_us": began, "beat_us": NOW - S}
    return shape.Member(**{**plain, **given})


def some(state: State, count: int, **given: Any) -> list[shape.Member]:
    return [member(f"{state}-{n}", state, age=100 - n, **given) for n in range(count)]


def view(held: shape.Pool, *members: shape.Member, **given: Any) -> decisions.View:
    return decisions.View(pool=held, members=members, now_us=NOW, **given)


def claim(name: str = "c-1", member_id: str = "m", **given: Any) -> shape.Claim:
    return shape.Claim(id=name, pool_id="p-1", member_id=member_id, **given)


# replenish


def test_a_new_pool_is_filled_to_its_target() -> None:
    assert decisions.replenish(view(pool())) == decisions.Launch(5)


def test_only_ready_and_warming_are_capacity() -> None:
    members = [*some(State.READY, 2), *some(State.WARMING, 1), *some(State.CLAIMED, 4)]
    assert decisions.replenish(view(pool(), *members)) == decisions.Launch(2)
    members += [*some(State.ERRORED, 2), *some(State.DRAINING, 1)]
    assert decisions.replenish(view(pool(), *members)) == decisions.Launch(2)


def test_a_row_without_a_machine_is_no_capacity() -> None:
    members = some(State.READY, 5, missing_us=NOW - S)
    assert decisions.replenish(view(pool(), *members)) == decisions.Launch(5)
    assert decisions.counts(view(pool(), *members)).deficit == 5


def test_a_cordoned_member_is_replaced_and_left_alone() -> None:
    held = member("m", State.READY, age=10**6, cordoned=True, beat_us=0)
    assert decisions.replenish(view(pool(target=1), held)) == decisions.Launch(1)
    assert decisions.recycle(view(pool(target=1), held)) == ()
    stuck = member("w", State.WARMING, age=10**6, cordoned=True)
    assert decisions.recycle(view(pool(target=1), stuck)) == ()


def test_nothing_exceeds_the_ceiling_whatever_it_is() -> None:
    for state in State:
        members = some(state, 13, cordoned=True)
        assert decisions.replenish(view(pool(), *members)) == decisions.Launch(2)
    assert decisions.replenish(view(pool(), *some(State.ERRORED, 15))) is None


def test_those_who_wait_count_as_demand() -> None:
    assert decisions.replenish(view(pool(), *some(State.WARMING, 5), waiting=3)) == (
        decisions.Launch(3)
    )
    assert decisions.replenish(view(pool(), waiting=99)) == decisions.Launch(15)


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.ACTIVE])
def test_only_an_active_pool_is_refilled(status: Status) -> None:
    assert decisions.replenish(view(pool(status=status), waiting=3)) is None


def test_after_a_failure_it_waits_then_launches_one_at_a_time() -> None:
    failed, opened = decisions.after_failure(pool(), "provider_quota_exceeded", NOW)
    assert opened is None
    assert decisions.replenish(view(failed)) is None
    later = dataclasses.replace(view(failed), now_us=NOW + 10 * S)
    assert decisions.replenish(later) == decisions.Launch(1)
    coming = dataclasses.replace(later, members=some(State.WARMING, 1))
    assert decisions.replenish(coming) is None


def test_the_wait_doubles_up_to_its_cap() -> None:
    held, waits = pool(tuned={"breaker_failures": 100}), []
    for _ in range(8):
        held, _opened = decisions.after_failure(held, "x", NOW)
        waits.append((held.launch_not_before_us - NOW) // S)
    assert waits == [10, 20, 40, 80, 160, 320, 600, 600]


def test_the_breaker_opens_once_and_is_tried_one_at_a_time() -> None:
    held, opened = pool(), []
    for _ in range(7):
        held, said = decisions.after_failure(held, "module_pull_failed", NOW)
        opened.append(said)
    assert opened == [None] * 4 + [decisions.OpenBreaker("module_pull_failed")] + [None] * 2
    assert decisions.replenish(dataclasses.replace(view(held), now_us=NOW + 1799 * S)) is None
    due = dataclasses.replace(view(held), now_us=NOW + 1800 * S)
    assert decisions.replenish(due) == decisions.Launch(1, trial=True)
    trying = dataclasses.replace(due, members=some(State.WARMING, 1))
    assert decisions.replenish(trying) is None


def test_a_breaker_may_be_closed_by_hand_alone() -> None:
    held = pool(tuned={"breaker_retry_seconds": 0}, breaker_opened_us=1, failures=9)
    assert decisions.replenish(view(held)) is None


def test_a_member_that_comes_up_closes_it() -> None:
    held = pool(breaker_opened_us=NOW, failures=5, last_failure="x", launch_not_before_us=NOW + 1)
    closed, said = decisions.after_success(held)
    assert said == decisions.CloseBreaker()
    assert closed == pool()
    assert decisions.after_success(closed) == (closed, None)


# recycle: members


def test_a_pool_that_is_well_is_left_alone() -> None:
    members = [*some(State.READY, 4), *some(State.WARMING, 1), *some(State.CLAIMED, 3)]
    assert decisions.recycle(view(pool(), *members)) == ()


@pytest.mark.parametrize(
    ("given", "reason", "counts"),
    [
        ({"age": 1800}, "never_enrolled", True),
        ({"age": 1800, "beat_us": NOW}, "warming_timeout", True),
        ({"age": 150, "machine_id": None}, "launch_lost", False),
    ],
)
def test_a_member_that_does_not_come_up_fails(
    given: dict[str, Any], reason: str, counts: bool
) -> None:
    stale = member("m", State.WARMING, **given)
    assert decisions.recycle(view(pool(), stale)) == (decisions.Fail("m", reason, counts),)


def test_a_launch_that_is_under_way_is_left_alone() -> None:
    assert (
        decisions.recycle(view(pool(), member("m", State.WARMING, machine_id=None, age=149))) == ()
    )


def test_a_silent_member_is_replaced_but_not_a_new_one() -> None:
    silent = member("m", State.READY, age=200, beat_us=NOW - 180 * S)
    assert decisions.recycle(view(pool(), silent)) == (decisions.Retire("m", "heartbeat_stale"),)
    assert decisions.recycle(view(pool(), member("n", State.READY, age=179, beat_us=None))) == ()


@pytest.mark.parametrize("status", [Status.ACTIVE, Status.PAUSED])
def test_an_old_idle_member_is_replaced_in_a_paused_pool_too(status: Status) -> None:
    old = member("m", State.READY, age=14400)
    assert decisions.recycle(view(pool(status=status), old)) == (
        decisions.Retire("m", "ready_ttl"),
    )


@pytest.mark.parametrize("status", [Status.ACTIVE, Status.PAUSED])
def test_a_paused_pool_fails_what_does_not_come_up(status: Status) -> None:
    stale = member("m", State.WARMING, age=1800)
    assert decisions.recycle(view(pool(status=status), stale)) == (
        decisions.Fail("m", "never_enrolled"),
    )


def test_the_floor_is_kept_while_replacements_come() -> None:
    old = some(State.READY, 3, ready_us=1)
    assert len(decisions.recycle(view(pool(target=3, min_size=2), *old))) == 1
    assert decisions.recycle(view(pool(target=3, min_size=3), *old)) == ()


def test_without_room_one_at_a_time_goes_below_the_floor() -> None:
    tight = pool(target=3, min_size=3, max_size=3)
    old = some(State.READY, 3, ready_us=1)
    assert decisions.recycle(view(tight, *old)) == (decisions.Retire("ready-0", "ready_ttl"),)
    going = [old[1], old[2], member("d", State.DRAINING, next_attempt_us=NOW + S)]
    assert decisions.recycle(view(tight, *going)) == ()
    open_breaker = dataclasses.replace(tight, breaker_opened_us=NOW)
    assert decisions.recycle(view(open_breaker, *old)) == ()


@pytest.mark.parametrize("status", [Status.DRAINING, Status.ARCHIVED])
def test_draining_ends_ready_and_warming_and_spares_the_claimed(status: Status) -> None:
    members = [*some(State.READY, 2), *some(State.WARMING, 2), *some(State.CLAIMED, 2)]
    members += [
        member("held", State.READY, cordoned=True),
        member("intent", State.WARMING, machine_id=None),
    ]
    said = decisions.recycle(view(pool(status=status, min_size=2), *members))
    assert {one.member_id for one in said if isinstance(one, decisions.Retire)} == {
        "ready-0", "ready-1", "warming-0", "warming-1", "held", "intent",
    }  # fmt: skip
    assert {one.reason for one in said if isinstance(one, decisions.Retire)} == {"pool_draining"}


# recycle: shrinking and templates


def test_a_smaller_target_shrinks_oldest_idle_first_then_warming() -> None:
    members = [*some(State.READY, 3), *some(State.WARMING, 2)]
    said = decisions.recycle(view(pool(target=3), *reversed(members)))
    assert said == (
        decisions.Retire("ready-0", "pool_shrunk"),
        decisions.Retire("ready-1", "pool_shrunk"),
    )
    everything = decisions.recycle(view(pool(target=0), *members))
    assert [one.member_id for one in everything] == [m.id for m in members]


def test_those_who_wait_are_not_robbed_by_shrinking() -> None:
    assert decisions.recycle(view(pool(target=1), *some(State.READY, 3), waiting=2)) == ()


def test_a_new_template_replaces_one_for_one() -> None:
    changed = pool(target=2, generation=2)
    old = some(State.READY, 2)
    assert decisions.recycle(view(changed, *old)) == ()
    assert decisions.replenish(view(changed, *old)) == decisions.Launch(2)
    new = [member(f"n{n}", State.READY, age=5, generation=2) for n in range(2)]
    assert decisions.recycle(view(changed, *old, new[0])) == (
        decisions.Retire("ready-0", "template_changed"),
    )
    assert len(decisions.recycle(view(changed, *old, *new))) == 2


def test_a_new_template_ends_warming_members_of_the_old() -> None:
    warming = member("m", State.WARMING)
    assert decisions.recycle(view(pool(generation=2), warming)) == (
        decisions.Retire("m", "template_changed"),
    )
    assert decisions.recycle(view(pool(generation=2, status=Status.PAUSED), warming)) == ()


def test_a_new_template_without_room_replaces_one_at_a_time() -> None:
    changed = pool(target=3, max_size=3, generation=2)
    old = some(State.READY, 3)
    assert decisions.recycle(view(changed, *old)) == (
        decisions.Retire("ready-0", "template_changed"),
    )


# recycle: endings


@pytest.mark.parametrize("state", [State.DRAINING, State.ERRORED])
def test_every_ending_is_tried_again_then_abandoned_once(state: State) -> None:
    going = member("m", state, attempts=4, next_attempt_us=NOW)
    assert decisions.recycle(view(pool(), going)) == (decisions.Terminate("m"),)
    later = dataclasses.replace(going, next_attempt_us=NOW + 1)
    assert decisions.recycle(view(pool(), later)) == ()
    spent = dataclasses.replace(going, attempts=5)
    assert decisions.recycle(view(pool(), spent)) == (decisions.Abandon("m"),)
    told = dataclasses.replace(spent, abandoned_us=NOW)
    assert decisions.recycle(view(pool(), told)) == ()


def test_the_wait_between_attempts_doubles_to_an_hour() -> None:
    assert [decisions.retry_after(pool(), n) for n in range(1, 7)] == [
        300, 600, 1200, 2400, 3600, 3600,
    ]  # fmt: skip


# recycle: claims


def test_an_old_claim_is_flagged_once_and_never_ended_by_default() -> None:
    mine = member("m", State.CLAIMED, age=10**6)
    old = claim(acquired_us=NOW - 86400 * S)
    assert decisions.recycle(view(pool(), mine, claims=[old])) == (
        decisions.FlagClaim("c-1", "claimed_ttl"),
    )
    flagged = dataclasses.replace(old, stale_us=NOW - S)
    assert decisions.recycle(view(pool(), mine, claims=[flagged])) == ()


def test_an_old_claim_is_ended_where_the_pool_says_so() -> None:
    tuned = {"claimed_ttl_action": "terminate"}
    old = claim(acquired_us=NOW - 86400 * S)
    said = decisions.recycle(view(pool(tuned=tuned), member("m", State.CLAIMED), claims=[old]))
    assert said == (decisions.EndClaim("c-1", "m", "claimed_ttl"),)


@pytest.mark.parametrize("status", list(Status))
def test_a_lease_that_ran_out_ends_the_claim(status: Status) -> None:
    mine = member("m", State.CLAIMED)
    over = claim(acquired_us=NOW - 60 * S, lease_until_us=NOW)
    assert decisions.recycle(view(pool(status=status), mine, claims=[over])) == (
        decisions.EndClaim("c-1", "m", "lease_expired"),
    )
    running = dataclasses.replace(over, lease_until_us=NOW + 1, acquired_us=0)
    assert decisions.recycle(view(pool(status=status), mine, claims=[running])) == ()


def test_counts_are_those_of_the_contract() -> None:
    members = [*some(State.READY, 1), *some(State.WARMING, 2), *some(State.CLAIMED, 3)]
    members += [*some(State.ERRORED, 4), *some(State.DRAINING, 1)]
    found = decisions.counts(view(pool(), *members, waiting=7))
    assert (found.ready, found.warming, found.claimed, found.errored) == (1, 2, 3, 4)
    assert (found.deficit, found.waiting, found.members) == (2, 7, 11)


# properties

INSTANTS = st.one_of(st.none(), st.integers(0, NOW + 4000 * S))
MEMBERS = st.lists(
    st.builds(
        shape.Member,
        id=st.uuids().map(str),
        pool_id=st.just("p-1"),
        state=st.sampled_from(State),
        generation=st.integers(1, 2),
        machine_id=st.sampled_from([None, "i-1"]),
        cordoned=st.booleans(),
        warming_started_us=st.integers(0, NOW),
        ready_us=INSTANTS,
        beat_us=INSTANTS,
        missing_us=st.sampled_from([None, None, NOW - S]),
        attempts=st.integers(0, 7),
        next_attempt_us=st.integers(0, NOW + 4000 * S),
        abandoned_us=st.sampled_from([None, None, NOW]),
    ),
    max_size=12,
)


@st.composite
def pools(draw: st.DrawFn) -> shape.Pool:
    low, target, high = sorted(draw(st.lists(st.integers(0, 12), min_size=3, max_size=3)))
    return pool(
        target=target,
        min_size=low,
        max_size=high,
        status=draw(st.sampled_from(Status)),
        generation=draw(st.integers(1, 2)),
        failures=draw(st.integers(0, 6)),
        launch_not_before_us=draw(st.sampled_from([0, NOW + S])),
        breaker_opened_us=draw(st.sampled_from([None, None, NOW - 5000 * S, NOW])),
    )


VIEWS = st.builds(
    decisions.View,
    pool=pools(),
    members=MEMBERS,
    waiting=st.integers(0, 20),
    now_us=st.just(NOW),
)


@given(VIEWS)
def test_a_launch_never_breaks_a_rule(seen: decisions.View) -> None:
    launch = decisions.replenish(seen)
    if launch is None:
        return
    assert launch.count > 0
    assert len(seen.members) + launch.count <= seen.pool.max_size
    assert seen.pool.status is Status.ACTIVE
    assert seen.now_us >= seen.pool.launch_not_before_us
    assert launch.trial is (seen.pool.breaker_opened_us is not None)
    if launch.trial or seen.pool.failures:
        assert launch.count == 1


@given(VIEWS)
def test_recycling_never_touches_a_claimed_member_and_acts_on_each_once(
    seen: decisions.View,
) -> None:
    said = decisions.recycle(seen)
    state = {m.id: m.state for m in seen.members}
    acted = [one.member_id for one in said if hasattr(one, "member_id")]
    assert len(set(acted)) == len(acted)
    assert all(state[name] is not State.CLAIMED for name in acted)
    for one in said:
        match one:
            case decisions.Retire():
                assert state[one.member_id] in shape.CAPACITY
            case decisions.Fail():
                assert state[one.member_id] is State.WARMING
            case decisions.Terminate() | decisions.Abandon():
                assert state[one.member_id] in (State.DRAINING, State.ERRORED)


def _carried_out(seen: decisions.View) -> decisions.View:
    """The view after everything was done and every machine on its way out is gone."""
    gone = {one.member_id for one in decisions.recycle(seen) if hasattr(one, "member_id")}
    kept = [m for m in seen.members if m.id not in gone]
    launch = decisions.replenish(dataclasses.replace(seen, members=kept))
    new = [
        member(f"new-{len(kept)}-{n}-{seen.now_us}", State.READY, generation=seen.pool.generation,
               warming_started_us=seen.now_us, ready_us=seen.now_us, beat_us=seen.now_us)
        for n in range(launch.count if launch else 0)
    ]  # fmt: skip
    return dataclasses.replace(seen, members=[*kept, *new])


@given(VIEWS)
def test_a_healthy_active_pool_comes_to_its_target_and_rests(seen: decisions.View) -> None:
    healthy = dataclasses.replace(
        seen.pool, status=Status.ACTIVE, failures=0, launch_not_before_us=0, breaker_opened_us=None
    )
    members = [
        m for m in seen.members
        if not m.cordoned and m.abandoned_us is None and m.missing_us is None
        and m.next_attempt_us <= NOW and m.state is not State.CLAIMED
    ]  # fmt: skip
    seen = dataclasses.replace(seen, pool=healthy, members=members, waiting=0)
    for _ in range(40):
        # Members that warm come up.
        seen = dataclasses.replace(
            seen,
            members=[
                dataclasses.replace(m, state=State.READY, ready_us=NOW, beat_us=NOW)
                if m.state is State.WARMING and m.machine_id
                and NOW - m.warming_started_us < 1800 * S else m
                for m in _carried_out(seen).members
            ],
        )  # fmt: skip
    assert decisions.recycle(seen) == ()
    assert decisions.replenish(seen) is None
    assert decisions.counts(seen).ready + decisions.counts(seen).warming == healthy.target_size
    assert all(m.generation >= healthy.generation for m in seen.members)


@given(VIEWS, st.sampled_from([Status.DRAINING, Status.ARCHIVED]))
def test_a_draining_pool_keeps_the_claimed_and_the_abandoned_alone(
    seen: decisions.View, status: Status
) -> None:
    seen = dataclasses.replace(seen, pool=dataclasses.replace(seen.pool, status=status))
    left = _carried_out(dataclasses.replace(seen, now_us=NOW + 5000 * S)).members
    assert all(m.state is State.CLAIMED or m.abandoned_us is not None for m in left)
