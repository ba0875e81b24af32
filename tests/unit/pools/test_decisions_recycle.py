"""Which members and claims are ended, flagged or retried, on synthetic pools."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from poolviews import NOW, S, State, Status, claim, member, pool, some, view

from overnight.pools import decisions

# recycle: members


def test_a_healthy_pool_is_left_alone() -> None:
    members = [*some(State.READY, 4), *some(State.WARMING, 1), *some(State.CLAIMED, 3)]
    assert decisions.recycle(view(pool(), *members)) == ()


@pytest.mark.parametrize(
    ("changes", "reason", "counts"),
    [
        ({"age": 1800}, "never_enrolled", True),
        ({"age": 1800, "beat_us": NOW}, "warming_timeout", True),
        ({"age": 150, "machine_id": None}, "launch_lost", False),
    ],
)
def test_a_member_that_does_not_come_up_fails(
    changes: dict[str, Any], reason: str, counts: bool
) -> None:
    stale = member("m", State.WARMING, **changes)
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
def test_a_paused_pool_fails_members_that_do_not_come_up(status: Status) -> None:
    stale = member("m", State.WARMING, age=1800)
    assert decisions.recycle(view(pool(status=status), stale)) == (
        decisions.Fail("m", "never_enrolled"),
    )


def test_the_floor_is_kept_while_replacements_come() -> None:
    old = some(State.READY, 3, ready_us=1)
    assert len(decisions.recycle(view(pool(target=3, min_size=2), *old))) == 1
    assert decisions.recycle(view(pool(target=3, min_size=3), *old)) == ()


def test_at_the_maximum_one_member_at_a_time_goes_below_the_floor() -> None:
    tight = pool(target=3, min_size=3, max_size=3)
    old = some(State.READY, 3, ready_us=1)
    assert decisions.recycle(view(tight, *old)) == (decisions.Retire("ready-0", "ready_ttl"),)
    going = [old[1], old[2], member("d", State.DRAINING, next_attempt_us=NOW + S)]
    assert decisions.recycle(view(tight, *going)) == ()
    open_breaker = dataclasses.replace(tight, breaker_opened_us=NOW)
    assert decisions.recycle(view(open_breaker, *old)) == ()


@pytest.mark.parametrize("status", [Status.DRAINING, Status.ARCHIVED])
def test_draining_ends_ready_and_warming_but_not_claimed_members(status: Status) -> None:
    members = [*some(State.READY, 2), *some(State.WARMING, 2), *some(State.CLAIMED, 2)]
    members += [
        member("held", State.READY, cordoned=True),
        member("intent", State.WARMING, machine_id=None),
    ]
    actions = decisions.recycle(view(pool(status=status, min_size=2), *members))
    assert {action.member_id for action in actions if isinstance(action, decisions.Retire)} == {
        "ready-0", "ready-1", "warming-0", "warming-1", "held", "intent",
    }  # fmt: skip
    assert {action.reason for action in actions if isinstance(action, decisions.Retire)} == {
        "pool_draining"
    }


# recycle: shrinking and templates


def test_a_smaller_target_shrinks_oldest_idle_first_then_warming() -> None:
    members = [*some(State.READY, 3), *some(State.WARMING, 2)]
    actions = decisions.recycle(view(pool(target=3), *reversed(members)))
    assert actions == (
        decisions.Retire("ready-0", "pool_shrunk"),
        decisions.Retire("ready-1", "pool_shrunk"),
    )
    everything = decisions.recycle(view(pool(target=0), *members))
    assert [action.member_id for action in everything] == [m.id for m in members]


def test_shrinking_keeps_hosts_for_waiting_callers() -> None:
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


def test_a_new_template_at_the_maximum_replaces_one_at_a_time() -> None:
    changed = pool(target=3, max_size=3, generation=2)
    old = some(State.READY, 3)
    assert decisions.recycle(view(changed, *old)) == (
        decisions.Retire("ready-0", "template_changed"),
    )


# recycle: endings


@pytest.mark.parametrize("state", [State.DRAINING, State.ERRORED])
def test_every_termination_is_retried_then_abandoned_once(state: State) -> None:
    going = member("m", state, attempts=4, next_attempt_us=NOW)
    assert list(decisions.endings(view(pool(), going))) == [going]
    assert decisions.recycle(view(pool(), going)) == ()
    later = dataclasses.replace(going, next_attempt_us=NOW + 1)
    assert list(decisions.endings(view(pool(), later))) == []
    spent = dataclasses.replace(going, attempts=5)
    assert decisions.recycle(view(pool(), spent)) == (decisions.Abandon("m"),)
    abandoned = dataclasses.replace(spent, abandoned_us=NOW)
    assert decisions.recycle(view(pool(), abandoned)) == ()
    assert list(decisions.endings(view(pool(), abandoned))) == []


def test_the_wait_between_attempts_doubles_to_an_hour() -> None:
    assert [decisions.retry_after(pool(), n) for n in range(1, 7)] == [
        300, 600, 1200, 2400, 3600, 3600,
    ]  # fmt: skip


# recycle: claims


def test_an_old_claim_is_flagged_once_and_never_ended_by_default() -> None:
    claimed = member("m", State.CLAIMED, age=10**6)
    old = claim(acquired_us=NOW - 86400 * S)
    assert decisions.recycle(view(pool(), claimed, claims=[old])) == (
        decisions.FlagClaim("c-1", "claimed_ttl"),
    )
    flagged = dataclasses.replace(old, stale_us=NOW - S)
    assert decisions.recycle(view(pool(), claimed, claims=[flagged])) == ()


def test_an_old_claim_is_ended_if_the_pool_is_set_to_terminate() -> None:
    tuned = {"claimed_ttl_action": "terminate"}
    old = claim(acquired_us=NOW - 86400 * S)
    actions = decisions.recycle(view(pool(tuned=tuned), member("m", State.CLAIMED), claims=[old]))
    assert actions == (decisions.EndClaim("c-1", "m", "claimed_ttl"),)


@pytest.mark.parametrize("status", list(Status))
def test_an_expired_lease_ends_the_claim(status: Status) -> None:
    claimed = member("m", State.CLAIMED)
    over = claim(acquired_us=NOW - 60 * S, lease_until_us=NOW)
    assert decisions.recycle(view(pool(status=status), claimed, claims=[over])) == (
        decisions.EndClaim("c-1", "m", "lease_expired"),
    )
    running = dataclasses.replace(over, lease_until_us=NOW + 1, acquired_us=0)
    assert decisions.recycle(view(pool(status=status), claimed, claims=[running])) == ()
