"""Claims in bursts: the distribution has the given mean and spread, and the counts are exact."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from overnight import errors
from overnight.pools import bursts


@given(st.floats(1.01, 50), st.floats(0, 3))
@example(2.00001, 0.5)  # hardly more than a Poisson
def test_the_distribution_has_the_given_mean_and_spread(mean: float, relative: float) -> None:
    burst = bursts.Burst(mean, relative * mean)
    sizes = np.arange(len(burst.probabilities))
    assert burst.probabilities.sum() == pytest.approx(1)
    assert burst.probabilities[0] == 0
    assert burst.probabilities @ sizes == pytest.approx(mean, rel=1e-6)
    part = mean - math.floor(mean)
    variance = max(burst.spread**2, part * (1 - part))
    assert burst.probabilities @ sizes**2 - mean**2 == pytest.approx(variance, rel=1e-5, abs=1e-6)


def test_a_burst_of_five_without_spread_is_always_five() -> None:
    assert bursts.Burst(5).probabilities[5] == 1
    assert bursts.Burst(5).dispersion == 5
    assert bursts.SINGLE.dispersion == 1
    np.testing.assert_allclose(bursts.ahead(bursts.Burst(5))[:5], 0.2)


@given(st.floats(1, 100))
def test_a_burst_has_the_dispersion_it_was_made_from(dispersion: float) -> None:
    assert bursts.Burst.of_dispersion(dispersion).dispersion == pytest.approx(dispersion, rel=1e-6)


def panjer(law: np.ndarray, mean: float, length: int) -> np.ndarray:
    """Return compound Poisson probabilities by Panjer's recursion, an independent method."""
    probabilities = np.zeros(length)
    probabilities[0] = math.exp(-mean)
    for total in range(1, length):
        part = np.arange(1, min(total, len(law) - 1) + 1)
        probabilities[total] = mean / total * (part * law[part] * probabilities[total - part]).sum()
    return probabilities


@pytest.mark.parametrize("burst", [bursts.SINGLE, bursts.Burst(5), bursts.Burst(2.5, 3)], ids=str)
def test_counts_are_those_of_panjer(burst: bursts.Burst) -> None:
    counts = bursts.arrivals(bursts.Traffic(burst, 4 / 60, 150, 0))
    want = panjer(burst.probabilities, 10 / burst.mean, 60)
    np.testing.assert_allclose(counts[:60], want, atol=1e-14)
    assert counts.sum() == pytest.approx(1)


def test_the_length_of_the_interval_is_averaged() -> None:
    counts = bursts.arrivals(bursts.Traffic(bursts.SINGLE, 4 / 60, 90, 60))
    lengths = (np.arange(4000) + 0.5) / 4000 * 60 + 90
    want = [stats.poisson.pmf(k, lengths * 4 / 60).mean() for k in range(30)]
    np.testing.assert_allclose(counts[:30], want, atol=1e-9)


@pytest.mark.parametrize(
    ("mean", "spread"),
    [(0.5, 0), (math.nan, 0), (math.inf, 0), (1001, 0), (5, -1), (5, math.nan), (5, 26), (1, 0.1)],
)
def test_an_invalid_burst_is_refused(mean: float, spread: float) -> None:
    with pytest.raises(errors.UsageError):
        bursts.Burst(mean, spread)
