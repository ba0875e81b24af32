"""Two rates compared: exact intervals against published values, bursts, and the wait for an answer."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from overnight.queries import rates

HOUR = 3600.0
Outcome = rates.Outcome


def test_intervals_are_those_of_poisson_test_in_r() -> None:
    """The examples of R's `?poisson.test`: 137 events in 24.19893, and 11 in 800 against 21 in 3011."""
    assert rates.bound_rate(137, 24.19893) == pytest.approx((4.753125, 6.692709), abs=1e-6)
    compared = rates.compare((6 + 8 + 7, 1083 + 1050 + 878), (11, 800))
    assert (compared.ratio, compared.low, compared.high) == pytest.approx(
        (1.971488, 0.8584264, 4.2772659), abs=1e-6
    )


def test_intervals_agree_with_the_distributions_that_they_invert() -> None:
    for count, exposure, alpha in [
        (0, 3.0, 0.05),
        (1, 1.0, 0.01),
        (7, 20.0, 0.05),
        (400, 9.0, 0.2),
    ]:
        low, high = rates.bound_rate(count, exposure, alpha=alpha)
        assert stats.poisson.cdf(count, high * exposure) == pytest.approx(alpha / 2)
        if count:
            assert stats.poisson.sf(count - 1, low * exposure) == pytest.approx(alpha / 2)
    for before, after in [((3, 10.0), (5, 2.0)), ((12, 100.0), (1, 300.0)), ((1, 1.0), (1, 1.0))]:
        compared = rates.compare(before, after)
        share = stats.binomtest(after[0], before[0] + after[0]).proportion_ci(0.95, "exact")
        odds = before[1] / after[1]
        assert compared.low == pytest.approx(share.low / (1 - share.low) * odds)
        assert compared.high == pytest.approx(share.high / (1 - share.high) * odds)


# before (events, exposure), after, outcome, whether waiting can show that the rate halved
OUTCOMES = [
    ((10, 100.0), (1, 100.0), Outcome.FELL, True),
    ((1, 100.0), (10, 100.0), Outcome.ROSE, True),
    ((0, 100.0), (9, 100.0), Outcome.ROSE, False),
    ((500, 100.0), (510, 100.0), Outcome.UNCHANGED, True),
    ((3, 100.0), (0, 20.0), Outcome.CANNOT_TELL, True),
    ((0, 100.0), (1, 20.0), Outcome.CANNOT_TELL, False),
    ((0, 100.0), (0, 100.0), Outcome.NO_EVENTS, False),
]


def test_outcomes_and_waits() -> None:
    for before, after, outcome, can_wait in OUTCOMES:
        compared = rates.compare(before, after)
        assert (compared.outcome, compared.wait is not None) == (outcome, can_wait), (before, after)
        if (
            compared.wait is not None
        ):  # so much later, and not sooner, the interval lies below one half
            later = rates.compare(before, (after[0], after[1] + compared.wait))
            assert later.high == pytest.approx(min(rates.HALF, compared.high))


def test_a_burst_counts_as_one_event() -> None:
    hours = [number * 72 * HOUR for number in range(10)]
    quiet = rates.Span(0, 720 * HOUR)
    scattered = rates.Span(0, 720 * HOUR, tuple(at + 60 for at in hours))
    burst = rates.Span(0, 720 * HOUR, tuple(7 * HOUR + second for second in range(10)))
    assert rates.measure_dispersion([[scattered], [quiet]]) == 1.0
    assert rates.measure_dispersion([[burst], [quiet]]) == pytest.approx(10, rel=0.02)
    assert rates.measure_dispersion([[quiet], [quiet]]) == 1.0
    assert rates.compare((10, 720), (0, 720)).outcome is Outcome.FELL
    assert rates.compare((10, 720), (0, 720), dispersion=10).outcome is Outcome.CANNOT_TELL


def test_a_change_of_the_rate_is_not_a_burst() -> None:
    chance = np.random.default_rng(5)
    busy = rates.Span(0, 100 * HOUR, tuple(np.sort(chance.random(5000)) * 100 * HOUR))
    quiet = rates.Span(0, 100 * HOUR, tuple(np.sort(chance.random(50)) * 100 * HOUR))
    assert rates.measure_dispersion([[busy], [quiet]]) < 1.5


def simulate(chance: np.random.Generator, hosts: int, burst: float) -> list[rates.Span]:
    """Return a side of 100 hours a host with 0.03 bursts an hour, which last some minutes."""
    spans = []
    for _ in range(hosts):
        starts = chance.random(chance.poisson(3)) * 100 * HOUR
        events = np.repeat(starts, chance.geometric(1 / burst, len(starts)))
        events = np.minimum(events + chance.exponential(100, len(events)), 100 * HOUR - 1)
        spans.append(rates.Span(0, 100 * HOUR, tuple(events)))
    return spans


def test_without_a_change_at_most_one_in_twenty_is_called_one() -> None:
    """Also with bursts: without their correction a third of these runs would be."""
    chance = np.random.default_rng(3)
    for burst in (1.0, 4.0):
        false = naive = 0
        for _ in range(300):
            sides = [simulate(chance, 8, burst) for _ in range(2)]
            counts = [sum(len(span.events) for span in side) for side in sides]
            both = [(count, 800.0) for count in counts]
            dispersion = rates.measure_dispersion(sides)
            changed = (Outcome.FELL, Outcome.ROSE)
            false += rates.compare(*both, dispersion=dispersion).outcome in changed
            naive += rates.compare(*both).outcome in changed
        assert false <= 0.07 * 300
        assert (naive > 0.2 * 300) == (burst > 1)
