"""Each row of the runbook's table: the cause is named, and the next command."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from overnight.model.pool import (
    Autoscale,
    Claim,
    Member,
    MemberState,
    Pool,
    PoolDetails,
    PoolStatus,
    Problem,
)
from overnight.pools import decisions, problems

S = 1_000_000
NOW = 1_000_000 * S
State = MemberState


def shown(*members: Member, claims: Any = (), waiting: int = 0, **given: Any) -> PoolDetails:
    plain: dict[str, Any] = {
        "id": "p", "name": "ci", "template": "t", "target_size": 5, "min_size": 0, "max_size": 15,
    }  # fmt: skip
    pool = Pool(**{**plain, **given})
    view = decisions.View(pool=pool, members=members, claims=claims, waiting=waiting, now_us=NOW)
    return PoolDetails(
        pool=pool, counts=decisions.counts(view), members=members, claims=tuple(claims)
    )


def member(name: str = "m-1", state: State = State.READY, **given: Any) -> Member:
    plain: dict[str, Any] = {"machine_id": "i-1", "warming_started_us": NOW - 60 * S}
    return Member(id=name, pool_id="p", state=state, **{**plain, **given})


def look(details: PoolDetails, **given: Any) -> dict[str, Problem]:
    plain: dict[str, Any] = {"now_us": NOW, "reaper_us": NOW - S}
    return {one.name: one for one in problems.find_problems(details, **{**plain, **given})}


def test_a_pool_that_is_well_has_none() -> None:
    assert look(shown(member())) == {}


def test_stuck_at_no_members() -> None:
    said = look(shown(breaker_opened_us=NOW, failures=5, last_failure="provider_quota_exceeded"))
    assert "provider_quota_exceeded" in said["breaker_open"].why
    assert "--close-breaker" in said["breaker_open"].todo
    assert said["breaker_open"].alert
    assert said["none_ready"].alert
    assert "--close-breaker" in said["none_ready"].todo  # to replenish would launch nothing
    failing = shown(failures=2, last_failure="module_pull_failed", launch_not_before_us=NOW + 9 * S)
    said = look(failing)
    assert said["launches_fail"].why == "module_pull_failed"
    assert "in 9 s" in said["launches_fail"].todo
    assert "module_pull_failed" in said["none_ready"].why
    assert "replenish" not in said["none_ready"].todo


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"beat_us": None}, "has not enrolled"),
        ({"beat_us": NOW - 700 * S}, "last reported 700 s ago"),
        ({"machine_id": None}, "has not answered"),
    ],
)
def test_stuck_warming(given: dict[str, Any], why: str) -> None:
    slow = member(state=State.WARMING, **{"warming_started_us": NOW - 900 * S, **given})
    said = look(shown(slow, member("m-2")))
    assert "15 min" in said["slow_warming"].what
    assert why in said["slow_warming"].why


def test_none_ready_despite_members() -> None:
    said = look(shown(*(member(f"m-{n}", State.WARMING) for n in range(5))))["none_ready"]
    assert said.alert
    assert "all 5 members are still warming" in said.why
    full = look(shown(member(state=State.CLAIMED), max_size=1, target_size=1))["none_ready"]
    assert "the maximum is 1" in full.why
    assert "--max" in full.todo
    missing = look(shown(member(missing_us=NOW)))["none_ready"]
    assert "replenish" in missing.todo


def test_stuck_draining() -> None:
    claim = Claim(id="c-1", pool_id="p", member_id="m-1", acquired_by="job-7")
    draining = shown(
        member(state=State.CLAIMED),
        member("m-2", State.DRAINING, attempts=2),
        member("m-3", State.DRAINING, attempts=5, abandoned_us=NOW),
        claims=[claim],
        status=PoolStatus.DRAINING,
    )
    said = look(draining)
    assert "job-7" in said["claims_remain"].why
    assert "attempt 2 of 5" in said["ending"].why
    assert said["abandoned"].alert
    assert "terminate m-3" in said["abandoned"].todo
    assert "none_ready" not in said


def test_one_that_somebody_looks_at_is_told() -> None:
    held = member(state=State.DRAINING, reason="lease_expired", cordoned=True)
    said = look(shown(held, member("m-2")))["kept_to_look_at"]
    assert "lease_expired" in said.why
    assert "overnight pool uncordon m-1" in said.todo
    assert "kept_to_look_at" not in look(shown(held, status=PoolStatus.DRAINING))


@pytest.mark.parametrize(("seen", "why"), [(None, "has never run"), (NOW - 999 * S, "999 s ago")])
def test_the_reaper_does_not_run(seen: int | None, why: str) -> None:
    said = look(shown(member()), reaper_us=seen)["reaper_not_running"]
    assert why in said.why
    assert said.todo.startswith("overnight pool serve")
    assert said.alert


def test_claimed_faster_than_they_come_up() -> None:
    claims = [
        Claim(id=f"c-{n}", pool_id="p", member_id=f"m-{n}", acquired_us=NOW - S, waited_us=n)
        for n in range(4)
    ]
    said = look(shown(member(), claims=claims))["too_small"]
    assert "3 of the last 4" in said.what
    assert said.todo == "overnight pool size --pool ci"


def test_a_forgotten_claim_and_orphans_are_alerts() -> None:
    claim = Claim(id="c-1", pool_id="p", member_id="m-1", stale_us=NOW)
    said = look(shown(member(), claims=[claim]), orphans=2)
    assert said["claim_stale"].alert
    assert "return c-1" in said["claim_stale"].todo
    assert said["orphans"].alert
    assert "2 machines" in said["orphans"].what


def test_who_waits_in_a_paused_pool_is_told() -> None:
    said = look(shown(member(), waiting=2, status=PoolStatus.PAUSED))
    assert "--resume" in said["not_active"].todo


def test_alerts_come_first() -> None:
    slow = member(state=State.WARMING, warming_started_us=NOW - 900 * S)
    said = problems.find_problems(shown(slow), now_us=NOW, reaper_us=NOW)
    assert [one.alert for one in said] == sorted((one.alert for one in said), reverse=True)
    assert len(said) == 2


def test_a_size_that_may_not_follow_any_further() -> None:
    wants = Autoscale(wanted_size=19, decided_us=NOW, reason="stays at 5: cut to max 5")
    held = dataclasses.replace(shown(member()), autoscale=dataclasses.replace(wants, max_size=5))
    assert look(held)["held_at_max"].todo == (
        "overnight pool update ci --max 38, then: overnight pool autoscale ci --max 19"
    )
    fits = dataclasses.replace(held, autoscale=dataclasses.replace(wants, max_size=9))
    assert look(fits) == {}
    less = dataclasses.replace(wants, wanted_size=12, max_size=5)
    assert look(dataclasses.replace(held, autoscale=less))["held_at_max"].todo == (
        "overnight pool autoscale ci --max 12"
    )
