"""Demand without numpy, for problems and for `history`."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from overnight.model.pool import Past
from overnight.pools import demand, history

S = 1_000_000


@pytest.mark.parametrize("bins", [20, 50, 1000, 100_000])
def test_the_limit_is_that_of_chi_squared(bins: int) -> None:
    exact = float(special.gammaincinv((bins - 1) / 2, 0.95)) * 2 / (bins - 1)
    assert demand.dispersion_limit(bins) == pytest.approx(exact, rel=2e-3)


@pytest.mark.parametrize("together", [1, 2, 5])
def test_bursts_are_found_as_in_the_history(together: int) -> None:
    random = np.random.default_rng(together)
    agreed = 0
    for _ in range(100):
        times = np.repeat(np.sort(random.uniform(1, 86400, 400)), together)
        instants = [round(at * S) for at in times]
        past = Past(begin_us=0, end_us=86400 * S, asked_us=tuple(instants), warm_ups_us=(30 * S,))
        measured = history.measure(past)
        agreed += measured.bursty is demand.is_bursty(instants, 0, 86400 * S, 90 * S)
        if together == 5:
            assert measured.bursty
    assert agreed == 100


def test_the_dispersion_is_the_variance_of_the_counts_by_their_mean() -> None:
    instants = sorted(np.random.default_rng(3).integers(1, 1000, 200).tolist())
    counts = np.bincount([(1000 - at) // 30 for at in instants if at > 10], minlength=33)
    expected = float(np.var(counts, ddof=1) / counts.mean())
    assert demand.dispersion(instants, 1000, 30, 33) == pytest.approx(expected)
    assert demand.dispersion([], 1000, 30, 33) == 0


def test_the_most_claims_within_a_time() -> None:
    instants = [0, 10, 20, 21, 22, 40]
    assert [demand.most_within(instants, span) for span in (0, 1, 2, 12, 22, 99)] == [
        1,
        2,
        3,
        4,
        5,
        6,
    ]
    assert demand.most_within([], 5) == 0
    assert demand.most_within([7, 7, 7], 0) == 3


def test_a_member_is_replaced_after_its_warm_up_and_a_tick() -> None:
    past = Past(begin_us=0, end_us=9, asked_us=(), warm_ups_us=(20 * S, 40 * S))
    assert demand.refill_us(past) == 90 * S


def test_a_short_or_empty_history_shows_no_bursts() -> None:
    assert not demand.is_bursty([5] * 50, 0, 19 * 90, 90)
    assert demand.is_bursty([5] * 50, 0, 20 * 90, 90)
    assert not demand.is_bursty([], 0, 20 * 90, 90)
