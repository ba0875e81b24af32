"""Each problem of the runbook's table names its cause and the next command."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from overnight.model.pool import (
    Autoscale,
    Claim,
    Member,
    MemberState,
    Past,
    Pool,
    PoolDetails,
    PoolSettings,
    PoolStatus,
    Problem,
)
from overnight.pools import decisions, problems

S = 1_000_000
NOW = 1_000_000 * S
State = MemberState


def details_of(*members: Member, claims: Any = (), waiting: int = 0, **changes: Any) -> PoolDetails:
    plain: dict[str, Any] = {
        "id": "p", "name": "ci", "template": "t", "target_size": 5, "min_size": 0, "max_size": 15,
    }  # fmt: skip
    pool = Pool(**{**plain, **changes})
    view = decisions.View(pool=pool, members=members, claims=claims, waiting=waiting, now_us=NOW)
    return PoolDetails(
        pool=pool, counts=decisions.counts(view), members=members, claims=tuple(claims)
    )


def member(name: str = "m-1", state: State = State.READY, **changes: Any) -> Member:
    plain: dict[str, Any] = {"machine_id": "i-1", "warming_started_us": NOW - 60 * S}
    return Member(id=name, pool_id="p", state=state, **{**plain, **changes})


def past_of(*asked_us: int, days: float = 7, **fields: Any) -> Past:
    """Return what was asked of a pool whose members take 30 s to warm up, so 90 s to be replaced."""
    plain: dict[str, Any] = {"warm_ups_us": (30 * S,), "begin_us": NOW - int(days * 86400 * S)}
    return Past(**{**plain, "end_us": NOW, "asked_us": tuple(sorted(asked_us)), **fields})


def problems_of(details: PoolDetails, **changes: Any) -> dict[str, Problem]:
    plain: dict[str, Any] = {"now_us": NOW, "reaper_us": NOW - S, "past": past_of()}
    return {
        problem.name: problem for problem in problems.find_problems(details, **{**plain, **changes})
    }


def test_a_healthy_pool_has_no_problems() -> None:
    assert problems_of(details_of(member())) == {}


def test_stuck_at_no_members() -> None:
    problems_found = problems_of(
        details_of(breaker_opened_us=NOW, failures=5, last_failure="provider_quota_exceeded")
    )
    assert "provider_quota_exceeded" in problems_found["breaker_open"].why
    assert "--close-breaker" in problems_found["breaker_open"].todo
    assert problems_found["breaker_open"].alert
    # Replenishing would launch nothing.
    assert "--close-breaker" in problems_found["none_ready"].todo
    failing = details_of(
        failures=2, last_failure="module_pull_failed", launch_not_before_us=NOW + 9 * S
    )
    problems_found = problems_of(failing)
    assert problems_found["launches_fail"].why == "module_pull_failed"
    assert "in 9 s" in problems_found["launches_fail"].todo
    assert "module_pull_failed" in problems_found["none_ready"].why
    assert "replenish" not in problems_found["none_ready"].todo


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"beat_us": None}, "has not enrolled"),
        ({"beat_us": NOW - 700 * S}, "last reported 700 s ago"),
        ({"machine_id": None}, "has not answered"),
    ],
)
def test_stuck_warming(changes: dict[str, Any], why: str) -> None:
    slow = member(state=State.WARMING, **{"warming_started_us": NOW - 900 * S, **changes})
    problems_found = problems_of(details_of(slow, member("m-2")))
    assert "15 min" in problems_found["slow_warming"].what
    assert why in problems_found["slow_warming"].why


def test_members_of_a_host_without_a_reaper() -> None:
    plain = {"state": State.DRAINING, "host": "alpha", "next_attempt_us": NOW - 181 * S}
    cases: list[tuple[dict[str, Any], bool]] = [
        ({}, True),
        ({"attempts": 1}, True),  # the reaper stopped after its first attempt
        ({"host": None}, False),
        ({"state": State.CLAIMED}, False),
        ({"next_attempt_us": NOW - 180 * S}, False),
        ({"cordoned": True}, False),
        ({"abandoned_us": NOW}, False),
    ]
    for changes, reported in cases:
        found = problems_of(details_of(*(member(f"m-{n}", **plain | changes) for n in range(2))))
        assert ("host_not_served" in found) is reported, changes
    found = problems_of(details_of(member(**plain), member("m-2", **plain)))
    assert found["host_not_served"].what == "2 members wait to be terminated on alpha"


def test_none_ready_despite_members() -> None:
    problem = problems_of(details_of(*(member(f"m-{n}", State.WARMING) for n in range(5))))[
        "none_ready"
    ]
    assert "all 5 members are still warming" in problem.why
    full = problems_of(details_of(member(state=State.CLAIMED), max_size=1, target_size=1))[
        "none_ready"
    ]
    assert "the maximum is 1" in full.why
    assert "--max" in full.todo
    missing = problems_of(details_of(member(missing_us=NOW)))["none_ready"]
    assert "replenish" in missing.todo


@pytest.mark.parametrize(
    ("since_us", "what", "alert"),
    [
        (None, "no member is ready (target 5)", False),
        (NOW - 299 * S, "no member is ready for 4 min 59 s (target 5)", False),
        (NOW - 300 * S, "no member is ready for 5 min (target 5)", True),
    ],
)
def test_an_empty_pool_is_an_alert_only_when_it_lasts(
    since_us: int | None, what: str, alert: bool
) -> None:
    empty = details_of(member(state=State.WARMING), empty_since_us=since_us)
    problem = problems_of(empty)["none_ready"]
    assert problem.what == f"{what}: claims fail"
    assert problem.alert is alert
    patient = details_of(empty_since_us=since_us, settings=PoolSettings(empty_alert_seconds=9999))
    assert not problems_of(patient)["none_ready"].alert


def test_stuck_draining() -> None:
    claim = Claim(id="c-1", pool_id="p", member_id="m-1", acquired_by="job-7")
    draining = details_of(
        member(state=State.CLAIMED),
        member("m-2", State.DRAINING, attempts=2),
        member("m-3", State.DRAINING, attempts=5, abandoned_us=NOW),
        claims=[claim],
        status=PoolStatus.DRAINING,
    )
    problems_found = problems_of(draining)
    assert "c-1" in problems_found["claims_remain"].why
    assert problems_found["claims_remain"].host_text == "job-7"
    assert "attempt 2 of 5" in problems_found["ending"].why
    assert problems_found["abandoned"].alert
    assert "terminate m-3" in problems_found["abandoned"].todo
    assert "none_ready" not in problems_found


def test_a_cordoned_member_is_reported() -> None:
    cordoned = member(state=State.DRAINING, reason="lease_expired", cordoned=True)
    problem = problems_of(details_of(cordoned, member("m-2")))["kept_to_look_at"]
    assert "lease_expired" in problem.why
    assert "overnight pool uncordon m-1" in problem.todo
    assert "kept_to_look_at" not in problems_of(details_of(cordoned, status=PoolStatus.DRAINING))


@pytest.mark.parametrize(
    ("reaper_us", "why"), [(None, "has never run"), (NOW - 999 * S, "999 s ago")]
)
def test_the_reaper_does_not_run(reaper_us: int | None, why: str) -> None:
    problem = problems_of(details_of(member()), reaper_us=reaper_us)["reaper_not_running"]
    assert why in problem.why
    assert problem.todo.startswith("`overnight pool serve`")
    assert problem.alert


def test_an_empty_pool_without_a_reaper_needs_one_whatever_else() -> None:
    for details in (details_of(), details_of(failures=2), details_of(breaker_opened_us=NOW)):
        found = problems_of(details, reaper_us=None)
        assert found["none_ready"].why == "no reaper is running, which launches members"
        assert found["none_ready"].todo == "overnight pool serve"
        # `pool replenish` is refused where no reaper has served.
        assert found["reaper_not_running"].todo == "`overnight pool serve`"
    found = problems_of(details_of(), reaper_us=NOW - 300 * S)
    assert found["reaper_not_running"].todo.endswith("(or once: `overnight pool replenish ci`)")
    full = details_of(*(member(f"m-{n}", State.CLAIMED) for n in range(15)))
    assert "maximum is 15" in problems_of(full, reaper_us=None)["none_ready"].why


@pytest.mark.parametrize(
    "details",
    [
        details_of(breaker_opened_us=NOW),
        details_of(failures=2),
        details_of(member(state=State.WARMING)),
    ],
)
def test_a_command_within_a_sentence_stands_in_backticks(details: PoolDetails) -> None:
    todo = problems_of(details)["none_ready"].todo
    assert re.search(r": `overnight pool update ci --[a-z]", todo), todo


def test_without_a_reaper_demand_is_not_blamed() -> None:
    minutes = [NOW - n * 60 * S for n in range(1, 8)]
    missed = past_of(*minutes, missed_us=tuple(minutes[:5]))
    assert "too_small" in problems_of(details_of(member()), past=missed)
    stopped = problems_of(details_of(member()), past=missed, reaper_us=NOW - 181 * S)
    assert stopped.keys() == {"reaper_not_running"}
    assert "too_small" in problems_of(details_of(member()), past=missed, reaper_us=NOW - 180 * S)


def test_claims_that_missed_or_waited_mean_the_pool_is_too_small() -> None:
    minutes = [NOW - n * 60 * S for n in range(1, 8)]
    missed = past_of(*minutes, missed_us=tuple(minutes[:5]))
    problem = problems_of(details_of(member()), past=missed)["too_small"]
    assert problem.what == "of 7 claims in the last hour 5 missed and 0 had to wait"
    # Too few for `pool size`: at most two claims came within the 90 s that a member takes.
    assert problem.todo == "overnight pool update ci --target 6 --max 16"
    policy = dataclasses.replace(details_of(member()), autoscale=Autoscale())
    assert problems_of(policy, past=missed)["too_small"].todo == (
        "overnight pool autoscale ci --min 6"
    )
    many = past_of(*minutes * 3, waited_us=tuple(minutes))
    problem = problems_of(details_of(member()), past=many)["too_small"]
    assert "0 missed and 7 had to wait" in problem.what
    assert problem.todo == "overnight pool size --pool ci"


def test_old_or_few_misses_do_not_mean_the_pool_is_too_small() -> None:
    few = past_of(*[NOW - S] * 6, missed_us=(NOW - S,))
    assert "too_small" not in problems_of(details_of(member()), past=few)
    old = past_of(NOW - 3600 * S, NOW - S, missed_us=(NOW - 3600 * S,))
    assert "too_small" not in problems_of(details_of(member()), past=old)
    paused = details_of(member(), status=PoolStatus.PAUSED)
    assert "too_small" not in problems_of(paused, past=past_of(NOW - S, missed_us=(NOW - S,)))


def test_a_forgotten_claim_and_orphans_are_alerts() -> None:
    claim = Claim(id="c-1", pool_id="p", member_id="m-1", stale_us=NOW)
    problems_found = problems_of(details_of(member(), claims=[claim]), orphans=2)
    assert problems_found["claim_stale"].alert
    assert "return c-1" in problems_found["claim_stale"].todo
    assert problems_found["orphans"].alert
    assert "2 machines" in problems_found["orphans"].what


def test_a_paused_pool_with_waiting_callers_is_reported() -> None:
    problems_found = problems_of(details_of(member(), waiting=2, status=PoolStatus.PAUSED))
    assert "--resume" in problems_found["not_active"].todo


def test_alerts_come_first() -> None:
    slow = member(state=State.WARMING, warming_started_us=NOW - 900 * S)
    problems_found = problems.find_problems(
        details_of(slow, empty_since_us=1), now_us=NOW, reaper_us=NOW, past=past_of()
    )
    assert [problem.alert for problem in problems_found] == sorted(
        (problem.alert for problem in problems_found), reverse=True
    )
    assert {problem.name for problem in problems_found} == {"none_ready", "slow_warming"}


def test_a_wanted_size_above_the_maximum_is_reported() -> None:
    wants = Autoscale(wanted_size=19, decided_us=NOW, reason="stays at 5: cut to max 5")
    limited = dataclasses.replace(
        details_of(member()), autoscale=dataclasses.replace(wants, max_size=5)
    )
    assert problems_of(limited)["held_at_max"].todo == (
        "`overnight pool update ci --max 38`, then: `overnight pool autoscale ci --max 19`"
    )
    fits = dataclasses.replace(limited, autoscale=dataclasses.replace(wants, max_size=9))
    assert problems_of(fits) == {}
    less = dataclasses.replace(wants, wanted_size=12, max_size=5)
    assert problems_of(dataclasses.replace(limited, autoscale=less))["held_at_max"].todo == (
        "`overnight pool autoscale ci --max 12`"
    )


def idle_past(*asked_us: int, idle: float = 0.95, days: float = 7, **fields: Any) -> Past:
    """Return a history whose members were idle for a share of their time."""
    plain = {"member_us": 10**12, "ready_us": int(idle * 10**12)}
    return past_of(*asked_us, days=days, **{"unchanged_us": 0, **plain, **fields})


def test_an_idle_pool_gets_a_smaller_target_and_the_saving() -> None:
    hours = [NOW - n * 3600 * S for n in range(1, 100)]
    pair = hours[50] + 60 * S  # two within 90 s
    idle = details_of(member(), target_size=10)
    problem = problems_of(idle, past=idle_past(*hours, pair))["too_large"]
    assert problem.what == "members were idle for 95 % of the last 7 d"
    assert (
        problem.why
        == "at most 2 claims came while a member is replaced (1 min 30 s); the target is 10"
    )
    assert problem.todo == (
        "`overnight pool update ci --target 3` (saves 7 hosts, 5,110 host-hours a month)"
    )
    unused = problems_of(details_of(member(), target_size=2), past=idle_past())["too_large"]
    assert "--target 1` (saves 1 host, 730 host-hours a month)" in unused.todo


@pytest.mark.parametrize(
    ("fields", "past"),
    [
        ({}, idle_past(NOW - S, idle=0.9)),  # not more than 90 %
        ({"min_size": 10}, idle_past(NOW - S)),
        ({}, idle_past(*[NOW - S] * 9)),  # a burst needed all of them
        ({}, idle_past(NOW - S, days=0.9)),  # not yet a day
        ({}, idle_past(NOW - S, unchanged_us=NOW - 3600 * S)),  # changed an hour ago
        ({}, idle_past(NOW - S, member_us=0, ready_us=0)),
        ({"status": PoolStatus.PAUSED}, idle_past(NOW - S)),
    ],
)
def test_a_pool_that_needs_its_target_keeps_it(fields: dict[str, Any], past: Past) -> None:
    pool = details_of(member(), **{"target_size": 10, **fields})
    assert "too_large" not in problems_of(pool, past=past)
    policy = dataclasses.replace(details_of(member(), target_size=10), autoscale=Autoscale())
    assert "too_large" not in problems_of(policy, past=idle_past(NOW - S))


def bursts_of(size: int, count: int) -> list[int]:
    """Return bursts in the last day, one each 10 minutes; a claim each 200 ms."""
    return [
        NOW - (n * 600 + 60) * S + place * S // 5 for n in range(count) for place in range(size)
    ]


def test_bursts_that_miss_get_twice_the_largest_as_headroom() -> None:
    asked = bursts_of(6, 40)
    past = past_of(*asked, missed_us=tuple(sorted(asked)[::6]), unchanged_us=0)
    problem = problems_of(details_of(member()), past=past)["claims_oscillate"]
    assert problem.what == "claims come in bursts of up to 6; 17 % of them missed or waited"
    assert problem.todo == "overnight pool update ci --target 17 --max 27"
    policy = dataclasses.replace(details_of(member()), autoscale=Autoscale())
    assert problems_of(policy, past=past)["claims_oscillate"].todo == (
        "overnight pool autoscale ci --burst 6"
    )


def test_other_claims_do_not_oscillate() -> None:
    steady = [NOW - n * 100 * S for n in range(1, 800)]
    bursts = bursts_of(6, 40)
    for past in (
        past_of(*steady, missed_us=tuple(steady[::-1]), unchanged_us=0),
        past_of(*bursts, unchanged_us=0),  # all were served
        past_of(*bursts, missed_us=tuple(sorted(bursts)), unchanged_us=NOW - 600 * S),
        past_of(*[at - 86400 * S for at in bursts], missed_us=(1,) * 99, unchanged_us=0),
    ):
        assert "claims_oscillate" not in problems_of(details_of(member()), past=past)
