"""A history becomes a rate with its interval, bursts that are no chance, and a warm-up."""

from __future__ import annotations

import math

import numpy as np
import poolplay
import pytest

from overnight import errors
from overnight.pools import bursts, history, sizing

DAY = 86400.0


def simulated_history(
    burst: bursts.Burst, seed: int, *, per_minute: float = 4.0
) -> history.History:
    random = np.random.default_rng(seed)
    count = round(per_minute * 60 * 24 * 1.2)
    times = poolplay.claims(burst, per_minute / 60, count, random)
    warm_ups = random.gamma(9, 10, 200)
    return history.History(0, DAY, times[times < DAY].tolist(), warm_ups.tolist())


def test_single_claims_are_seen_as_such() -> None:
    found = [history.measure(simulated_history(bursts.SINGLE, seed)) for seed in range(100)]
    assert sum(one.low <= 4 <= one.high for one in found) >= 90
    # One day in twenty looks bursty by chance.
    assert sum(one.bursty for one in found) <= 13
    assert 0.9 < np.mean([one.dispersion for one in found]) < 1.15


def test_bursts_are_seen_and_widen_the_interval() -> None:
    found = [history.measure(simulated_history(bursts.Burst(5), seed)) for seed in range(100)]
    assert all(one.bursty for one in found)
    assert np.mean([one.dispersion for one in found]) == pytest.approx(5, rel=0.1)
    assert sum(one.low <= 4 <= one.high for one in found) >= 90


def demand_of(measured: history.Measurement) -> sizing.Demand:
    """What `pool size` sizes for: measured rate, mean warm-up, and bursts where significant."""
    assert measured.warm_up is not None
    burst = history.burst(measured)
    return sizing.Demand(measured.claims_per_minute, measured.warm_up.mean, burst=burst)


def test_a_history_sizes_a_pool() -> None:
    """From claims to a size that keeps what was wanted, played on other days than it was measured."""
    measured = history.measure(simulated_history(bursts.Burst(3), 1))
    demand = demand_of(measured)
    size = sizing.recommend(demand)[0]
    random = np.random.default_rng(99)
    times = poolplay.claims(bursts.Burst(3), 4 / 60, 60_000, random).tolist()
    assert poolplay.play(times, size, warm_up_s=90, interval_s=60).miss < 0.012
    runbook = poolplay.play(times, demand.runbook, warm_up_s=90, interval_s=60)
    assert runbook.miss > 0.15


def test_warm_ups_have_quantiles() -> None:
    found = history.measure(history.History(0, 100, [], list(range(1, 101)))).warm_up
    assert found is not None
    assert (found.count, found.mean, found.p50) == (100, 50.5, 50.5)
    assert found.p90 == pytest.approx(90.1)
    assert found.p99 == pytest.approx(99.01)


def test_a_short_history_says_what_it_cannot_tell() -> None:
    found = history.measure(history.History(0, 600, [1, 2, 3], []))
    assert (found.dispersion, found.bursty) == (1, False)
    assert not found.can_tell_bursts
    assert found.warm_up is None
    assert found.low < found.claims_per_minute == 0.3 < found.high


def test_no_claim_is_a_rate_of_nought_with_an_upper_end() -> None:
    found = history.measure(history.History(0, DAY, [], [90.0]))
    assert (found.claims_per_minute, found.low) == (0, 0)
    assert found.high == pytest.approx(60 * -math.log(0.025) / DAY)
    assert sizing.recommend(demand_of(found)) == (0, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        history.History(5, 5, [], []),
        history.History(0, math.inf, [], []),
        history.History(0, 10, [11], []),
        history.History(0, 10, [math.nan], []),
        history.History(0, 10, [1], [0.0]),
        history.History(0, 10, [1], [math.inf]),
    ],
)
def test_a_history_that_cannot_be_is_refused(wrong: history.History) -> None:
    with pytest.raises(errors.CannotError):
        history.measure(wrong)
