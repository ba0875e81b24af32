"""A history gives a claim rate with its interval, significant bursts, and a warm-up time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import poolplay
import pytest

from overnight import errors
from overnight.model.pool import Past
from overnight.pools import bursts, history, sizing

DAY = 86400.0


def past(end_s: float, claims_s: Sequence[float], warm_ups_s: Sequence[float]) -> Past:
    asked, warm_ups = (tuple(round(s * 1e6) for s in times) for times in (claims_s, warm_ups_s))
    return Past(begin_us=0, end_us=round(end_s * 1e6), asked_us=asked, warm_ups_us=warm_ups)


def simulated_history(burst: bursts.Burst, seed: int, *, per_minute: float = 4.0) -> Past:
    random = np.random.default_rng(seed)
    count = round(per_minute * 60 * 24 * 1.2)
    times = poolplay.claims(burst, per_minute / 60, count, random)
    warm_ups = random.gamma(9, 10, 200)
    return past(DAY, times[times < DAY].tolist(), warm_ups.tolist())


def test_single_claims_are_not_bursty() -> None:
    measurements = [history.measure(simulated_history(bursts.SINGLE, seed)) for seed in range(100)]
    assert sum(measured.low <= 4 <= measured.high for measured in measurements) >= 90
    # One day in twenty looks bursty by chance.
    assert sum(measured.bursty for measured in measurements) <= 13
    assert 0.9 < np.mean([measured.dispersion for measured in measurements]) < 1.15


def test_bursts_are_detected_and_widen_the_interval() -> None:
    measurements = [
        history.measure(simulated_history(bursts.Burst(5), seed)) for seed in range(100)
    ]
    assert all(measured.bursty for measured in measurements)
    assert np.mean([measured.dispersion for measured in measurements]) == pytest.approx(5, rel=0.1)
    assert sum(measured.low <= 4 <= measured.high for measured in measurements) >= 90


def demand_of(measured: history.Measurement) -> sizing.Demand:
    """Return the demand `pool size` uses: measured rate, mean warm-up, significant bursts."""
    assert measured.warm_up is not None
    burst = history.burst(measured)
    return sizing.Demand(measured.claims_per_minute, measured.warm_up.mean, burst=burst)


def test_a_size_from_a_history_keeps_the_miss_rate() -> None:
    """The size is tested on other days than those it was measured on."""
    measured = history.measure(simulated_history(bursts.Burst(3), 1))
    demand = demand_of(measured)
    size = sizing.recommend(demand)[0]
    random = np.random.default_rng(99)
    times = poolplay.claims(bursts.Burst(3), 4 / 60, 60_000, random).tolist()
    assert poolplay.play(times, size, warm_up_s=90, interval_s=60).miss < 0.012
    runbook = poolplay.play(times, demand.runbook, warm_up_s=90, interval_s=60)
    assert runbook.miss > 0.15


def test_warm_ups_have_quantiles() -> None:
    warm_up = history.measure(past(100, [], list(range(1, 101)))).warm_up
    assert warm_up is not None
    assert (warm_up.count, warm_up.mean, warm_up.p50) == (100, 50.5, 50.5)
    assert warm_up.p90 == pytest.approx(90.1)
    assert warm_up.p99 == pytest.approx(99.01)


def test_a_short_history_cannot_tell_bursts() -> None:
    measured = history.measure(past(600, [1, 2, 3], []))
    assert (measured.dispersion, measured.bursty) == (1, False)
    assert not measured.can_tell_bursts
    assert measured.warm_up is None
    assert measured.low < measured.claims_per_minute == 0.3 < measured.high


def test_no_claims_give_rate_zero_with_an_upper_bound() -> None:
    measured = history.measure(past(DAY, [], [90.0]))
    assert (measured.claims_per_minute, measured.low) == (0, 0)
    assert measured.high == pytest.approx(60 * -math.log(0.025) / DAY)
    assert sizing.recommend(demand_of(measured)) == (0, 0)


def test_warm_ups_are_positive_although_clocks_differ() -> None:
    measured = history.measure(past(10, [1], [-5.0, 0.0]), interval_s=0)
    assert measured.warm_up is not None
    assert measured.warm_up.mean == pytest.approx(1e-6)


@pytest.mark.parametrize("wrong", [past(0, [], []), past(-1, [], []), past(10, [11], [])])
def test_an_impossible_history_is_refused(wrong: Past) -> None:
    with pytest.raises(errors.CannotError):
        history.measure(wrong)
