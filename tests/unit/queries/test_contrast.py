"""Arms compared: rates, permutations of hosts, dose and response, each against known values."""

from __future__ import annotations

import itertools

import hypothesis
import hypothesis.strategies as st
import nightreports
import numpy as np
import pytest

from overnight.queries import contrast, rates

KIND = nightreports.KIND
Outcome = rates.Outcome


def arm(name: str, *hosts: tuple[str, float, int], cores: int = 4, doses: tuple[float, ...] = ()) -> contrast.Arm:  # fmt: skip
    """Return an arm of hosts, each with its hours and evenly spread events."""
    observed = []
    for number, (host, hours, events) in enumerate(hosts):
        times = tuple((n + 0.5) * hours / events for n in range(events))
        recorded = nightreports.make_host(host, nightreports.BEGIN, hours, times)
        dose = {"zombies": doses[number]} if doses else {}
        observed.append(contrast.Observed(recorded, cores, dose))
    return contrast.Arm(name, tuple(observed))


def test_rates_are_per_core_hour_with_the_exact_interval() -> None:
    compared = contrast.contrast([arm("hot", ("a", 10.0, 4), ("b", 15.0, 1))], (KIND,))
    (row,) = compared.arms
    assert compared.unit == "core-hours"
    assert (row.hosts, row.host_hours, row.cores, row.core_hours) == (2, 25.0, 8, 100.0)
    assert row.rate is not None
    assert (row.rate.events, row.rate.rate) == (5, 0.05)
    assert (row.rate.low, row.rate.high) == pytest.approx((0.016235, 0.116683), abs=1e-6)  # Garwood


def test_one_host_without_cores_makes_all_rates_those_of_hosts() -> None:
    arms = [arm("hot", ("a", 10.0, 4)), arm("cold", ("b", 10.0, 0), cores=0)]
    compared = contrast.contrast(arms, (KIND,))
    assert compared.unit == "host-hours"
    assert [row.rate.rate for row in compared.arms if row.rate] == [0.4, 0.0]


def test_an_arm_that_was_not_observed_has_no_rate_and_is_not_compared() -> None:
    compared = contrast.contrast([arm("hot", ("a", 10.0, 4)), contrast.Arm("cold", ())], (KIND,))
    assert [row.rate is None for row in compared.arms] == [False, True]
    assert compared.pairs == ()


def test_the_same_host_in_two_arms_is_compared_with_itself() -> None:
    compared = contrast.contrast([arm("cold", ("a", 8.0, 1)), arm("hot", ("a", 8.0, 16))], (KIND,))
    (pair,) = compared.pairs
    assert (pair.arm, pair.base, pair.same_hosts, pair.is_confounded) == (
        "hot",
        "cold",
        True,
        False,
    )
    expected = rates.compare([1, 16], [32.0, 32.0])
    assert pair.compared.ratio == pytest.approx(expected.ratio)
    assert pair.compared.ratio_low == pytest.approx(expected.ratio_low)
    assert pair.compared.outcome is Outcome.ROSE


def test_one_host_in_each_arm_cannot_tell_the_arm_from_the_host() -> None:
    compared = contrast.contrast([arm("cold", ("a", 8.0, 0)), arm("hot", ("b", 8.0, 16))], (KIND,))
    (pair,) = compared.pairs
    assert pair.compared.is_change
    assert (pair.is_confounded, pair.compared.p_hosts) == (True, 0.5)
    assert pair.compared.outcome is Outcome.CANNOT_TELL


@pytest.mark.parametrize("hosts", [2, 3, 4])
def test_bad_hosts_are_rarely_taken_for_an_arm(hosts: int) -> None:
    """No difference between arms, but a tenth of the hosts has half of the events."""
    chance = np.random.default_rng(5)
    wrong = 0
    for _ in range(100):
        arms = [
            arm(name, *((f"{name}{n}", 8.0, int(chance.poisson(6 * chance.gamma(0.5, 2)))) for n in range(hosts)))
            for name in ("cold", "hot")
        ]  # fmt: skip
        (pair,) = contrast.contrast(arms, (KIND,)).pairs
        wrong += pair.compared.outcome in (Outcome.ROSE, Outcome.FELL)
    assert wrong <= 5


def test_one_bad_host_among_many_is_not_the_arm() -> None:
    cold = arm("cold", *((f"c{n}", 8.0, 0) for n in range(4)))
    bad = arm("hot", ("h0", 8.0, 16), *((f"h{n}", 8.0, 0) for n in range(1, 4)))
    (pair,) = contrast.contrast([cold, bad], (KIND,)).pairs
    assert pair.compared.is_change
    assert (pair.compared.outcome, pair.is_confounded) == (Outcome.CANNOT_TELL, False)
    every = arm("hot", *((f"h{n}", 8.0, 4) for n in range(4)))
    (pair,) = contrast.contrast([cold, every], (KIND,)).pairs
    assert pair.compared.outcome is Outcome.ROSE
    assert pair.compared.p_hosts == pytest.approx(1 / 70, abs=0.005)  # of sampled permutations


def test_fewer_events_than_expected_are_tested_on_both_sides() -> None:
    events, hours, one = np.array([3.0, 3, 3, 0, 0, 0]), np.ones(6), np.zeros(6, int)
    member = (np.arange(6) >= 3).astype(float)
    for expected, p in ((-1, 1 / 20), (1, 2 / 20), (0, 2 / 20)):
        found, _ = contrast.permute_doses(member, events, hours, one, expected=expected)
        assert found == pytest.approx(p)


def test_many_hosts_are_drawn() -> None:
    events, one = np.array([2.0] * 10 + [0.0] * 10), np.zeros(20, int)
    member = (np.arange(20) < 10).astype(float)
    p, smallest = contrast.permute_doses(member, events, np.ones(20), one, expected=1)
    assert p == smallest == pytest.approx(1 / (1 + contrast.DRAWS))


# --- dose and response


def trend(doses: tuple[float, ...], events: tuple[int, ...], hours: float = 8.0) -> contrast.Trend:
    hosts = [(f"h{n}", hours, count) for n, count in enumerate(events)]
    return contrast.find_trend("zombies", KIND, [arm("hot", *hosts, doses=doses)])


def test_two_doses_are_the_ratio_of_two_rates() -> None:
    """With two doses the regression is the comparison of two rates."""
    one = np.zeros(2, int)
    ratio, low, high = contrast.fit_trend(np.array([0.0, 5.0]), np.array([4.0, 12.0]), np.array([10.0, 15.0]), one)  # fmt: skip
    assert ratio == pytest.approx((12 / 15) / (4 / 10), rel=1e-4)
    exact = rates.compare([4, 12], [10.0, 15.0])
    assert high is not None
    assert exact.ratio_high is not None
    # The profile interval is narrower than the exact one, and within it.
    assert exact.ratio_low < low < ratio < high < exact.ratio_high


def test_the_fit_is_that_of_a_poisson_regression() -> None:
    """Doses 0 to 3, ten hours each, 2, 3, 6 and 7 events.

    The slope is where the weighted sum of the doses is what was seen (the score equation).
    """
    doses, events, hours = np.arange(4.0), np.array([2.0, 3, 6, 7]), np.full(4, 10.0)
    ratio, low, high = contrast.fit_trend(doses, events, hours, np.zeros(4, int))
    assert ratio is not None
    assert high is not None
    slope = np.log(ratio) / 3
    weights = np.exp(slope * doses) / np.exp(slope * doses).sum()
    assert events.sum() * weights @ doses == pytest.approx(events @ doses, rel=1e-4)
    for bound in (low, high):
        other = np.log(bound) / 3
        lost = [s * (events @ doses) - events.sum() * np.log(np.exp(s * doses).sum()) for s in (slope, other)]  # fmt: skip
        assert 2 * (lost[0] - lost[1]) == pytest.approx(3.841459, rel=1e-3)  # chi-squared, 95 %


def test_events_at_the_highest_dose_only_have_no_upper_bound() -> None:
    found = trend((1.0, 2.0, 3.0, 4.0, 5.0), (0, 0, 0, 0, 9))
    assert (found.ratio, found.high) == (None, None)
    assert found.low is not None
    assert found.low > 1


def test_a_clear_trend_rises_and_few_hosts_cannot_tell() -> None:
    found = trend((0.0, 1e4, 2e4, 3e4, 4e4, 5e4), (0, 2, 5, 7, 11, 16))
    assert (found.outcome, found.p) == (Outcome.ROSE, found.smallest_p)
    assert trend((0.0, 1e4, 2e4, 3e4, 4e4, 5e4), (16, 11, 7, 5, 2, 0)).outcome is Outcome.FELL
    few = trend((0.0, 1e4, 2e4), (0, 20, 60))
    assert (few.outcome, few.why.partition(":")[0]) == (Outcome.CANNOT_TELL, "too few hosts")
    assert few.smallest_p == pytest.approx(2 / 6)  # of two orders, up and down


def test_one_bad_host_is_not_a_trend() -> None:
    found = trend((1.0, 2.0, 3.0, 4.0, 5.0, 6.0), (0, 0, 0, 0, 40, 0))
    assert found.outcome is Outcome.CANNOT_TELL
    assert found.p is not None
    assert found.p > rates.ALPHA


def test_many_events_without_a_trend_are_no_large_effect() -> None:
    assert trend((1.0, 2.0, 3.0, 4.0, 5.0), (60, 58, 61, 60, 59)).outcome is Outcome.UNCHANGED


def test_a_dose_that_does_not_vary_and_a_single_host_cannot_tell() -> None:
    assert trend((2.0, 2.0, 2.0), (1, 2, 3)).why == "the dose is the same everywhere"
    assert trend((2.0,), (3,)).why == "only one host has it"
    assert trend((1.0, 2.0), (0, 0)).outcome is Outcome.NO_EVENTS


def test_hosts_in_several_arms_are_compared_with_themselves_only() -> None:
    """A bad host with a high dose in both arms says nothing about the dose."""
    doses = ((100.0, 1.0, 1.0, 1.0), (101.0, 2.0, 2.0, 2.0))
    events = ((30, 1, 1, 1), (30, 1, 1, 1))
    arms = [
        arm(name, *((f"h{n}", 8.0, count) for n, count in enumerate(counts)), doses=given)
        for name, given, counts in zip(("cold", "hot"), doses, events, strict=True)
    ]
    found = contrast.find_trend("zombies", KIND, arms)
    assert found.outcome in (Outcome.CANNOT_TELL, Outcome.UNCHANGED)
    assert found.smallest_p == pytest.approx(1.0)  # nothing differs within a host


def test_a_fix_is_not_part_of_the_dose() -> None:
    cold = arm("cold", *((f"c{n}", 8.0, 0) for n in range(3)), doses=(1.0, 2.0, 3.0))
    hot = arm("hot", ("h0", 8.0, 4), ("h1", 8.0, 5), ("h2", 8.0, 9), doses=(90.0, 95.0, 99.0))
    fixed = arm("fixed", *((f"h{n}", 8.0, 0) for n in range(3)), doses=(90.0, 95.0, 99.0))
    (found,) = contrast.contrast([cold, hot, fixed], (KIND,)).trends
    assert len(found.points) == 6
    assert found.outcome is Outcome.ROSE


def test_all_permutations_are_the_exact_test() -> None:
    doses, events, hours = np.array([0.0, 1, 4, 9]), np.array([0.0, 2, 1, 6]), np.ones(4)
    p, smallest = contrast.permute_doses(doses, events, hours, np.zeros(4, int))
    excess = events - events.mean()
    sums = [abs(excess @ np.array(order)) for order in itertools.permutations(doses)]
    assert p == np.mean(np.array(sums) >= abs(excess @ doses) - 1e-9)
    assert smallest <= p


@hypothesis.given(
    st.lists(st.integers(0, 6), min_size=5, max_size=7), st.integers(0, 4), st.integers(1, 20)
)
def test_more_events_at_the_highest_dose_never_lower_the_ratio(
    counts: list[int], extra: int, more: int
) -> None:
    doses, hours, one = np.arange(len(counts), dtype=float), np.full(len(counts), 9.0), np.zeros(len(counts), int)  # fmt: skip
    events = np.array(counts, float)
    events[0] += 1 + extra
    before = contrast.fit_trend(doses, events, hours, one)
    events[-1] += more
    after = contrast.fit_trend(doses, events, hours, one)
    assert after[1] >= before[1] * (1 - 1e-3)
    if before[0] is not None and after[0] is not None:
        assert after[0] >= before[0] * (1 - 1e-3)


@hypothesis.given(st.lists(st.integers(0, 9), min_size=2, max_size=6), st.lists(st.integers(0, 9), min_size=2, max_size=6))  # fmt: skip
def test_arms_never_raise_and_their_bounds_contain_the_rate(cold: list[int], hot: list[int]) -> None:  # fmt: skip
    arms = [
        arm(name, *((f"{name}{n}", 5.0, count) for n, count in enumerate(counts)), doses=tuple(map(float, range(len(counts)))))
        for name, counts in (("cold", cold), ("hot", hot))
    ]  # fmt: skip
    compared = contrast.contrast(arms, (KIND,))
    for row in compared.arms:
        assert row.rate is not None
        assert row.rate.low <= row.rate.rate <= row.rate.high
    for pair in compared.pairs:
        if pair.compared.ratio is not None:
            high = np.inf if pair.compared.ratio_high is None else pair.compared.ratio_high
            assert pair.compared.ratio_low - 1e-9 <= pair.compared.ratio <= high + 1e-9
