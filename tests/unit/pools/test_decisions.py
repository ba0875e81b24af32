"""Every rule of a pool, on synthetic pools: no clock, no database, no provider."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from poolviews import NOW, S, State, Status, member, pool, some, view

from overnight.model.pool import CAPACITY, Member, Pool
from overnight.pools import decisions

# replenish


def test_a_new_pool_is_filled_to_its_target() -> None:
    assert decisions.replenish(view(pool())) == decisions.Launch(5)


def test_only_ready_and_warming_are_capacity() -> None:
    members = [*some(State.READY, 2), *some(State.WARMING, 1), *some(State.CLAIMED, 4)]
    assert decisions.replenish(view(pool(), *members)) == decisions.Launch(2)
    members += [*some(State.ERRORED, 2), *some(State.DRAINING, 1)]
    assert decisions.replenish(view(pool(), *members)) == decisions.Launch(2)


def test_a_row_without_a_machine_is_not_capacity() -> None:
    members = some(State.READY, 5, missing_us=NOW - S)
    assert decisions.replenish(view(pool(), *members)) == decisions.Launch(5)
    assert decisions.counts(view(pool(), *members)).deficit == 5


def test_a_cordoned_member_is_replaced_and_left_alone() -> None:
    cordoned = member("m", State.READY, age=10**6, cordoned=True, beat_us=0)
    assert decisions.replenish(view(pool(target=1), cordoned)) == decisions.Launch(1)
    assert decisions.recycle(view(pool(target=1), cordoned)) == ()
    stuck = member("w", State.WARMING, age=10**6, cordoned=True)
    assert decisions.recycle(view(pool(target=1), stuck)) == ()


def test_members_in_any_state_count_towards_the_maximum() -> None:
    for state in State:
        members = some(state, 13, cordoned=True)
        assert decisions.replenish(view(pool(), *members)) == decisions.Launch(2)
    assert decisions.replenish(view(pool(), *some(State.ERRORED, 15))) is None


def test_waiting_callers_count_as_demand() -> None:
    assert decisions.replenish(view(pool(), *some(State.WARMING, 5), waiting=3)) == (
        decisions.Launch(3)
    )
    assert decisions.replenish(view(pool(), waiting=99)) == decisions.Launch(15)


@pytest.mark.parametrize(
    ("changes", "members", "reason"),
    [
        ({"max_size": 5}, some(State.CLAIMED, 5), decisions.SkipReason.AT_MAXIMUM),
        ({"failures": 1, "launch_not_before_us": NOW + S}, [], decisions.SkipReason.BACKOFF),
        ({"failures": 1}, some(State.WARMING, 1), decisions.SkipReason.ONE_AT_A_TIME),
        ({"failures": 5, "breaker_opened_us": NOW - S}, [], decisions.SkipReason.BREAKER_OPEN),
        ({"failures": 5, "breaker_opened_us": NOW - S, "launch_not_before_us": NOW + S}, [], decisions.SkipReason.BREAKER_OPEN),
        ({"failures": 5, "breaker_opened_us": 0}, some(State.WARMING, 1), decisions.SkipReason.BREAKER_OPEN),
    ],
)  # fmt: skip
def test_why_nothing_is_launched(
    changes: dict[str, int], members: list[Member], reason: decisions.SkipReason
) -> None:
    decision = decisions.plan_launch(view(pool(**changes), *members))
    assert decision == decisions.Skip(reason)
    assert decision.why.startswith(f"{sum(m.serves for m in members)} usable of target 5")


def test_nothing_is_skipped_where_nothing_is_wanted() -> None:
    broken = {"failures": 5, "breaker_opened_us": NOW - S}
    assert decisions.plan_launch(view(pool(**broken), *some(State.READY, 5))) is None
    assert decisions.plan_launch(view(pool(status=Status.DRAINING))) is None


def test_a_paused_pool_launches_for_its_cluster_alone() -> None:
    paused = pool(status=Status.PAUSED)
    assembling = dataclasses.replace(paused, assemble_until_us=NOW + S)
    assert decisions.plan_launch(view(paused)) is None
    assert decisions.replenish(view(assembling)) == decisions.Launch(5)
    assert not decisions.is_empty(view(assembling))
    archived = dataclasses.replace(assembling, status=Status.ARCHIVED)
    assert decisions.plan_launch(view(archived)) is None


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.ACTIVE])
def test_only_an_active_pool_is_refilled(status: Status) -> None:
    assert decisions.replenish(view(pool(status=status), waiting=3)) is None


def test_after_a_failure_it_waits_then_launches_one_at_a_time() -> None:
    failed = decisions.after_failure(pool(), "provider_quota_exceeded", NOW)
    assert failed.breaker_opened_us is None
    assert decisions.replenish(view(failed)) is None
    later = dataclasses.replace(view(failed), now_us=NOW + 10 * S)
    assert decisions.replenish(later) == decisions.Launch(1)
    coming = dataclasses.replace(later, members=some(State.WARMING, 1))
    assert decisions.replenish(coming) is None


def test_the_wait_doubles_up_to_its_cap() -> None:
    failing, waits = pool(tuned={"breaker_failures": 100}), []
    for _ in range(8):
        failing = decisions.after_failure(failing, "x", NOW)
        waits.append((failing.launch_not_before_us - NOW) // S)
    assert waits == [10, 20, 40, 80, 160, 320, 600, 600]


def test_the_breaker_opens_and_is_tried_one_at_a_time() -> None:
    failing, opened = pool(), []
    for _ in range(7):
        failing = decisions.after_failure(failing, "module_pull_failed", NOW)
        opened.append(failing.breaker_opened_us)
    assert opened == [None] * 4 + [NOW] * 3
    assert failing.last_failure == "module_pull_failed"
    assert decisions.replenish(dataclasses.replace(view(failing), now_us=NOW + 1799 * S)) is None
    due = dataclasses.replace(view(failing), now_us=NOW + 1800 * S)
    assert decisions.replenish(due) == decisions.Launch(1, trial=True)
    trying = dataclasses.replace(due, members=some(State.WARMING, 1))
    assert decisions.replenish(trying) is None


def test_without_a_retry_time_only_an_operator_closes_the_breaker() -> None:
    tripped = pool(tuned={"breaker_retry_seconds": 0}, breaker_opened_us=1, failures=9)
    assert decisions.replenish(view(tripped)) is None


def test_a_member_that_comes_up_closes_the_breaker() -> None:
    tripped = pool(
        breaker_opened_us=NOW, failures=5, last_failure="x", launch_not_before_us=NOW + 1
    )
    closed = decisions.after_success(tripped)
    assert closed == pool()
    assert decisions.after_success(closed) == closed


def test_counts_are_those_of_the_contract() -> None:
    members = [*some(State.READY, 1), *some(State.WARMING, 2), *some(State.CLAIMED, 3)]
    members += [*some(State.ERRORED, 4), *some(State.DRAINING, 1)]
    counts = decisions.counts(view(pool(), *members, waiting=7))
    assert (counts.ready, counts.warming, counts.claimed, counts.errored) == (1, 2, 3, 4)
    assert (counts.deficit, counts.waiting, counts.members) == (2, 7, 11)


def test_held_back_members_are_not_counted_as_ready() -> None:
    held_back = [*some(State.READY, 2, cordoned=True), *some(State.WARMING, 1, missing_us=NOW)]
    counts = decisions.counts(view(pool(), *some(State.READY, 1), *held_back))
    assert (counts.ready, counts.warming, counts.held_back, counts.members) == (1, 0, 3, 4)


def test_a_clock_that_is_set_back_does_not_stop_a_pool() -> None:
    ahead = 10 * 86_400 * S
    failed = pool(failures=1, launch_not_before_us=NOW + ahead)
    assert decisions.replenish(view(failed)) == decisions.Launch(1)
    tripped = pool(failures=5, breaker_opened_us=NOW + ahead)
    assert decisions.replenish(view(tripped)) == decisions.Launch(1, trial=True)
    ending = member("m", State.DRAINING, next_attempt_us=NOW + ahead)
    assert list(decisions.endings(view(pool(), ending))) == [ending]
    # Control planes whose clocks differ slightly respect each other's times.
    most = failed.settings.launch_backoff_max_seconds
    assert (
        decisions.replenish(view(pool(failures=9, launch_not_before_us=NOW + (most + 30) * S)))
        is None
    )


# properties

INSTANTS = st.one_of(st.none(), st.integers(0, NOW + 4000 * S))
MEMBERS = st.lists(
    st.builds(
        Member,
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


@pytest.mark.parametrize(
    ("ageing", "waited", "first"),
    [(60, 299, "high"), (60, 301, "low"), (0, 86400, "high")],
)
def test_a_step_of_priority_is_worth_a_time_in_the_queue(
    ageing: int, waited: int, first: str
) -> None:
    held = pool(tuned={"priority_ageing_seconds": ageing})
    low = decisions.queue_key(held, 0, NOW)
    high = decisions.queue_key(held, 5, NOW + waited * S)
    assert ("low" if low < high else "high") == first


@st.composite
def pools(draw: st.DrawFn) -> Pool:
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
def test_a_launch_never_breaks_a_rule(pool_view: decisions.View) -> None:
    launch = decisions.replenish(pool_view)
    if launch is None:
        return
    assert launch.count > 0
    assert len(pool_view.members) + launch.count <= pool_view.pool.max_size
    assert pool_view.pool.status is Status.ACTIVE
    assert pool_view.now_us >= pool_view.pool.launch_not_before_us
    assert launch.trial is (pool_view.pool.breaker_opened_us is not None)
    if launch.trial or pool_view.pool.failures:
        assert launch.count == 1


@given(VIEWS)
def test_recycling_never_touches_a_claimed_member_and_acts_on_each_once(
    pool_view: decisions.View,
) -> None:
    actions = decisions.recycle(pool_view)
    state = {m.id: m.state for m in pool_view.members}
    acted = [action.member_id for action in actions if hasattr(action, "member_id")]
    assert len(set(acted)) == len(acted)
    assert all(state[name] is not State.CLAIMED for name in acted)
    for action in actions:
        match action:
            case decisions.Retire():
                assert state[action.member_id] in CAPACITY
            case decisions.Fail():
                assert state[action.member_id] is State.WARMING
            case decisions.Abandon():
                assert state[action.member_id] in (State.DRAINING, State.ERRORED)


def _carry_out(pool_view: decisions.View) -> decisions.View:
    """Return the view after all actions are done and all ending machines are gone."""
    gone = {
        action.member_id for action in decisions.recycle(pool_view) if hasattr(action, "member_id")
    }
    gone |= {ending.id for ending in decisions.endings(pool_view)}
    kept = [m for m in pool_view.members if m.id not in gone]
    launch = decisions.replenish(dataclasses.replace(pool_view, members=kept))
    new = [
        member(f"new-{len(kept)}-{n}-{pool_view.now_us}", State.READY, generation=pool_view.pool.generation,
               warming_started_us=pool_view.now_us, ready_us=pool_view.now_us, beat_us=pool_view.now_us)
        for n in range(launch.count if launch else 0)
    ]  # fmt: skip
    return dataclasses.replace(pool_view, members=[*kept, *new])


@given(VIEWS)
def test_a_healthy_active_pool_reaches_its_target_and_stays(pool_view: decisions.View) -> None:
    healthy = dataclasses.replace(
        pool_view.pool,
        status=Status.ACTIVE,
        failures=0,
        launch_not_before_us=0,
        breaker_opened_us=None,
    )
    members = [
        m for m in pool_view.members
        if not m.cordoned and m.abandoned_us is None and m.missing_us is None
        and m.next_attempt_us <= NOW and m.state is not State.CLAIMED
    ]  # fmt: skip
    pool_view = dataclasses.replace(pool_view, pool=healthy, members=members, waiting=0)
    for _ in range(40):
        # Members that warm come up.
        pool_view = dataclasses.replace(
            pool_view,
            members=[
                dataclasses.replace(m, state=State.READY, ready_us=NOW, beat_us=NOW)
                if m.state is State.WARMING and m.machine_id
                and NOW - m.warming_started_us < 1800 * S else m
                for m in _carry_out(pool_view).members
            ],
        )  # fmt: skip
    assert decisions.recycle(pool_view) == ()
    assert decisions.replenish(pool_view) is None
    assert (
        decisions.counts(pool_view).ready + decisions.counts(pool_view).warming
        == healthy.target_size
    )
    assert all(m.generation >= healthy.generation for m in pool_view.members)


@given(VIEWS, st.sampled_from([Status.DRAINING, Status.ARCHIVED]))
def test_a_draining_pool_keeps_only_claimed_and_abandoned_members(
    pool_view: decisions.View, status: Status
) -> None:
    pool_view = dataclasses.replace(
        pool_view, pool=dataclasses.replace(pool_view.pool, status=status)
    )
    left = _carry_out(dataclasses.replace(pool_view, now_us=NOW + 5000 * S)).members
    assert all(m.state is State.CLAIMED or m.abandoned_us is not None for m in left)
