"""The autoscale policy: bounds, reasons, no flapping, and simulated days against fixed sizes."""

from __future__ import annotations

import math
import pathlib
import re

import numpy as np
import pooldays
import poolplay
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overnight import errors
from overnight.pools import autoscale, schedules, sizing

NOW = pooldays.MONDAY + 12 * 3600
DOCUMENT = pathlib.Path(__file__).parents[3] / "docs/sizing.md"
DAYS = 20


def demand(claims: list[float], size: int, now: float = NOW) -> autoscale.Seen:
    """Return the demand of claims given as seconds ago."""
    times = sorted(now - ago for ago in claims)
    return pooldays.count_claims(pooldays.policy(), now, size, times, NOW - 86400)


def every(seconds: float, over: float = 1200) -> list[float]:
    return [seconds * number for number in range(math.floor(over / seconds))]


def test_demand_grows_the_pool_with_a_reason() -> None:
    decision = autoscale.decide(pooldays.policy(), demand(every(15), 2))
    assert decision.size == 13  # 4 a minute, 90 s, woken: the same as `overnight pool size`
    assert decision.reason == "up to 13: 80 claims in 20 min want 13 for 1 % misses"


def test_a_jump_is_seen_in_the_last_minutes() -> None:
    decision = autoscale.decide(pooldays.policy(), demand(every(3, 120), 3))
    assert decision.reason == "up to 28: 40 claims in the last 2 min 30 s want 28 for 1 % misses"


def test_the_schedule_begins_early_enough_to_be_warm() -> None:
    policy = pooldays.policy(openings=(schedules.parse("mon 12:02-13:00 = 20"),))
    assert autoscale.decide(policy, demand([], 1, NOW - 60)).size == 1
    soon = autoscale.decide(policy, demand([], 1))
    assert (soon.size, soon.reason) == (20, "up to 20: schedule 'mon 12:02-13:00 = 20' begins soon")
    assert autoscale.decide(policy, demand([], 20, NOW + 1800)).size == 20


def test_it_shrinks_when_the_cooldown_is_over_and_not_before() -> None:
    policy = pooldays.policy()
    decision = autoscale.decide(policy, demand(every(5), 2))
    high = decision.size
    sizes = []
    for minute in range(1, 60):
        now = NOW + 60 * minute
        past = [ago + 60 * minute for ago in every(5)]
        decision = autoscale.decide(policy, demand(past, decision.size, now), decision.memory)
        sizes.append(decision.size)
    assert sizes[:14] == [high] * 14
    assert sizes[-1] < high / 3
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize(
    ("size", "wanted", "memory", "after"),
    [
        (20, 10, [(899, 20)], 20),
        (20, 10, [(900, 20)], 10),
        (20, 10, [(-1, 20)], 10),  # the clock was set back
        (20, 10, [(1, 15)], 15),
        (20, 10, [(800, 20), (100, 15)], 20),
        (10, 9, [], 10),
        (12, 10, [], 10),
        (30, 27, [], 27),
        (31, 28, [], 31),
    ],
    ids=[
        "needed just within the cooldown", "needed a cooldown ago", "needed in the future",
        "needed a part lately", "the most that was needed", "one fewer", "two fewer",
        "a tenth fewer", "less than a tenth fewer",
    ],
)  # fmt: skip
def test_a_fall_waits_for_the_cooldown_and_is_worth_it(
    size: int, wanted: int, memory: list[tuple[float, int]], after: int
) -> None:
    policy = pooldays.policy(min_size=wanted, cooldown_s=900)
    needed = tuple((NOW - ago, number) for ago, number in memory)
    assert autoscale.decide(policy, demand([], size), needed).size == after


def test_a_size_that_may_be_needed_is_kept() -> None:
    """80 claims want 13, but by chance only: the rate may be higher."""
    decisions = {
        size: autoscale.decide(pooldays.policy(), demand(every(15), size)) for size in (14, 20)
    }
    assert (
        decisions[14].reason
        == "stays at 14: 80 claims in 20 min want 13 for 1 % misses, and may want 15"
    )
    assert (decisions[20].size, decisions[20].memory) == (15, ((NOW, 15),))


def test_zero_only_with_zero_after_and_the_first_claim_ends_it() -> None:
    policy = pooldays.policy(zero_after_s=1800)
    assert autoscale.decide(pooldays.policy(), demand([7200], 1)).size == 1
    decision = autoscale.decide(policy, demand([1801], 1))
    assert (decision.size, decision.reason) == (0, "down to 0: no claim for 30 min 1 s")
    assert autoscale.decide(policy, demand([1799], 1)).size == 1
    assert autoscale.decide(policy, demand([5], 0)).size >= 1


def test_the_size_stays_within_the_bounds() -> None:
    policy = pooldays.policy(min_size=2, max_size=5)
    assert autoscale.decide(policy, demand([], 0)).size == 2
    decision = autoscale.decide(policy, demand(every(5), 2))
    assert (decision.size, "cut to max 5" in decision.reason) == (5, True)
    # A lowered maximum applies at once, whatever was wanted before.
    memory = ((NOW - 1, 30),)
    assert autoscale.decide(policy, demand([], 30), memory).size == 5


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"min_size": 41}, "min must be at most max"),
        ({"min_size": -1}, "min must be at most max"),
        ({"max_size": 10**7}, "min must be at most max"),
        ({"miss": 0}, "between 0 and 1"),
        ({"warm_up_s": 0}, "0.001"),
        ({"window_s": 0}, "from 1s to 7d"),
        ({"cooldown_s": math.nan}, "from 1s to 7d"),
        ({"zero_after_s": 0}, "from 1s to 30d"),
        ({"zero_after_s": 60, "min_size": 1}, "never goes to zero"),
        ({"openings": (schedules.parse("* 01:00-02:00 = 99"),)}, "the maximum is 40"),
    ],
)
def test_a_policy_that_contradicts_itself_is_refused(wrong: dict[str, object], word: str) -> None:
    with pytest.raises(errors.UsageError) as caught:
        pooldays.policy(**wrong)
    assert word in f"{caught.value.what}; {caught.value.why}"


@settings(max_examples=25)
@given(
    st.lists(st.floats(0, 7200), max_size=300).map(sorted),
    st.integers(0, 3),
    st.integers(3, 30),
    st.integers(0, 60),
    st.sampled_from([120.0, 600.0]),
)
def test_it_keeps_its_bounds_and_does_not_flap(
    claims: list[float], least: int, most: int, size: int, cooldown: float
) -> None:
    policy = pooldays.policy(min_size=least, max_size=most, cooldown_s=cooldown)
    memory, risen = (), -math.inf
    for now in range(0, 7200, 30):
        known = [NOW + when for when in claims if when <= now]
        demand_seen = pooldays.count_claims(policy, NOW + now, size, known, NOW - 86400)
        decision = autoscale.decide(policy, demand_seen, memory)
        assert max(1, least) <= decision.size <= most or (decision.size == size == 0)
        assert str(decision.size) in decision.reason
        if decision.size > size:
            risen = now
        elif decision.size < size <= most:
            assert now - risen >= cooldown
        # The memory keeps only what a decrease needs.
        sizes_kept = [wanted for _, wanted in decision.memory]
        assert sizes_kept == sorted(sizes_kept, reverse=True)
        size, memory = decision.size, decision.memory


def test_a_day_with_a_peak_and_a_burst() -> None:
    """One day of those in docs/sizing.md."""
    played = {name: pooldays.play(rule, 0) for name, rule in pooldays.rules().items()}
    fixed, mean = (
        played[f"fixed, {which}"]
        for which in ("1 % at the peak", "the runbook's for the mean of the day")
    )
    plain, scheduled = played["by demand"], played["by demand and schedule"]
    hours = {name: day.ready_s + day.warming_s for name, day in played.items()}
    assert scheduled.missed < plain.missed < mean.missed / 5
    assert hours["by demand and schedule"] < 0.35 * hours["fixed, 1 % at the peak"]
    assert fixed.miss < 0.01
    assert scheduled.miss < 0.03
    assert hours["the same, to zero after 30 min"] < hours["by demand and schedule"]


@pytest.mark.long
@pytest.mark.timeout(120)
def test_the_days_of_the_document() -> None:
    """The table has the results of twenty simulated days, digit by digit."""
    rows = dict(re.findall(r"^\| ([^|]+?) \| \d* \| (.+) \|$", DOCUMENT.read_text(), re.MULTILINE))
    for name in pooldays.rules():
        claims = missed = 0
        hours = 0.0
        for seed in range(DAYS):
            done = pooldays.play(pooldays.rules()[name], seed)
            claims, missed = claims + done.claims, missed + done.missed
            hours += (done.ready_s + done.warming_s) / 3600
        assert rows[name] == f"{100 * missed / claims:.1f} % | {hours / DAYS:.0f}"


@pytest.mark.parametrize(("per_minute", "miss"), [(4, 0.01), (1, 0.05), (0.3, 0.02)])
def test_a_steady_demand_stays_within_the_wanted_miss_rate(per_minute: float, miss: float) -> None:
    """Simulated for days, starting with one host; and not by keeping far too many hosts ready."""
    random = np.random.default_rng(5)
    days = 2 if per_minute > 1 else 4
    count = random.poisson(per_minute * 1440 * days)
    claims = sorted(random.uniform(0, days * pooldays.DAY_S, count).tolist())
    rule = pooldays.Ruled(pooldays.policy(miss=miss))
    played = poolplay.play(
        claims, rule, warm_up_s=90, interval_s=60, woken=True, until_s=days * pooldays.DAY_S
    )
    assert played.claims == count
    assert played.miss <= miss
    enough = sizing.size_for_waiting(sizing.Demand(per_minute, 90, miss=miss), 0)
    sizes = [decision.size for _, decision in rule.decisions]
    assert np.mean(sizes) <= 1.6 * enough + 1


def test_a_young_pool_is_not_judged_by_its_first_second() -> None:
    policy = pooldays.policy()
    demand_seen = pooldays.count_claims(policy, NOW, 1, [NOW - 0.5], NOW - 1)
    decision = autoscale.decide(policy, demand_seen)
    assert decision.reason == "up to 4: 1 claim in 2 min 30 s wants 4 for 1 % misses"
