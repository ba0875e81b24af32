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
    compared = rates.compare((6 + 8 + 7, 11), (1083 + 1050 + 878, 800))
    assert (compared.ratio, compared.ratio_low, compared.ratio_high) == pytest.approx(
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
    for events, exposure in [
        ((3, 5), (10.0, 2.0)),
        ((12, 1), (100.0, 300.0)),
        ((1, 1), (1.0, 1.0)),
    ]:
        compared = rates.compare(events, exposure)
        share = stats.binomtest(events[1], sum(events)).proportion_ci(0.95, "exact")
        odds = exposure[0] / exposure[1]
        assert compared.ratio_low == pytest.approx(share.low / (1 - share.low) * odds)
        assert compared.ratio_high == pytest.approx(share.high / (1 - share.high) * odds)


# Rows of (events before, after, exposure before, after), and what one row has the same ratio and interval.
HOSTS = [
    # A bad host that was on for a tenth of the time after, and one without events: all hosts together fell to a tenth.
    ([(100, 10, 100, 10), (0, 0, 100, 190)], (100, 10, 100, 10)),
    # A bad host that was off after, and a new one that takes its place.
    ([(100, 0, 100, 0), (5, 5, 100, 100)], (5, 5, 100, 100)),
    ([(100, 0, 100, 0), (0, 50, 0, 50)], (100, 50, 100, 50)),
    ([(4, 1, 100, 50), (8, 2, 100, 50)], (12, 3, 200, 100)),
]


def test_each_host_is_compared_with_itself() -> None:
    for rows, same in HOSTS:
        table = np.array(rows)
        compared = rates.compare(table[:, :2], table[:, 2:])
        expected = rates.compare(same[:2], same[2:])
        for name in ("ratio", "ratio_low", "ratio_high"):
            assert getattr(compared, name) == pytest.approx(getattr(expected, name)), (rows, name)
        assert compared.before.events == table[:, 0].sum()
        assert compared.after.exposure == table[:, 3].sum()
    nobody = rates.compare([(100, 0), (0, 0)], [(100, 0), (100, 190)])
    assert (nobody.ratio, nobody.wait, nobody.outcome) == (None, None, Outcome.CANNOT_TELL)


def test_the_interval_covers_the_ratio_also_of_unequal_hosts() -> None:
    chance = np.random.default_rng(8)
    hours = np.array([(100, 10), (50, 200), (100, 100), (20, 300)])
    means = np.array([2.0, 0.02, 0.1, 0.05])[:, None] * hours * (1, 0.5)
    covered = 0
    for _ in range(300):
        compared = rates.compare(chance.poisson(means), hours)
        covered += compared.ratio_low <= 0.5 <= (compared.ratio_high or np.inf)
    assert covered >= 0.93 * 300


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
        events, exposure = zip(before, after, strict=True)
        compared = rates.compare(events, exposure)
        assert (compared.outcome, compared.wait is not None) == (outcome, can_wait), (before, after)
        if (
            compared.wait is not None and compared.ratio_high is not None
        ):  # then, and not sooner, the interval lies below one half
            later = rates.compare(events, (exposure[0], exposure[1] + compared.wait))
            assert later.ratio_high == pytest.approx(min(rates.HALF, compared.ratio_high))


def test_a_burst_counts_as_one_event() -> None:
    quiet: rates.Span = (720 * HOUR, ())
    scattered = (720 * HOUR, [number * 72 * HOUR + 60 for number in range(10)])
    burst = (720 * HOUR, [7 * HOUR + second for second in range(10)])
    assert rates.measure_dispersion([[scattered], [quiet]]) == 1.0
    assert rates.measure_dispersion([[burst], [quiet]]) == pytest.approx(10, rel=0.02)
    assert rates.measure_dispersion([[quiet], []]) == 1.0
    assert rates.compare((10, 0), (720, 720)).outcome is Outcome.FELL
    assert rates.compare((10, 0), (720, 720), dispersion=10).outcome is Outcome.CANNOT_TELL


def test_a_change_of_the_rate_is_not_a_burst() -> None:
    chance = np.random.default_rng(5)
    busy, quiet = ((100 * HOUR, list(chance.random(many) * 100 * HOUR)) for many in (5000, 50))
    assert rates.measure_dispersion([[busy], [quiet]]) < 1.5


def simulate(chance: np.random.Generator, hosts: int, burst: float) -> list[rates.Span]:
    """Return a side of 100 hours a host with 0.03 bursts an hour, which last some minutes."""
    spans: list[rates.Span] = []
    for _ in range(hosts):
        starts = chance.random(chance.poisson(3)) * 100 * HOUR
        events = np.repeat(starts, chance.geometric(1 / burst, len(starts)))
        events = np.minimum(events + chance.exponential(100, len(events)), 100 * HOUR - 1)
        spans.append((100 * HOUR, events.tolist()))
    return spans


def test_without_a_change_at_most_one_in_twenty_is_called_one() -> None:
    """Also with bursts: without their correction a third of these runs would be."""
    chance = np.random.default_rng(3)
    for burst in (1.0, 4.0):
        false = naive = 0
        for _ in range(300):
            sides = [simulate(chance, 8, burst) for _ in range(2)]
            both = [sum(len(events) for _, events in side) for side in sides], (800.0, 800.0)
            dispersion = rates.measure_dispersion(sides)
            changed = (Outcome.FELL, Outcome.ROSE)
            false += rates.compare(*both, dispersion=dispersion).outcome in changed
            naive += rates.compare(*both).outcome in changed
        assert false <= 0.07 * 300
        assert (naive > 0.2 * 300) == (burst > 1)
