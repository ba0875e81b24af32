"""The three sizes: their values, that they are the smallest that suffice, and bad input."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from overnight import errors
from overnight.pools import bursts, miss_rates, sizing


@pytest.mark.parametrize(
    ("miss", "named"), [(0.01, (10, 17, 13)), (0.001, (10, 20, 15))], ids=["1 %", "0.1 %"]
)
def test_the_example_of_the_runbook(miss: float, named: tuple[int, int, int]) -> None:
    result = sizing.size(sizing.Demand(4, 90, miss=miss))
    assert result.named == named
    document = result.as_json()
    assert document["miss_at_runbook"] == pytest.approx(0.1535, abs=1e-4)
    assert document["miss_at_runbook_waiting"] == pytest.approx(0.2934, abs=1e-4)


def test_waiting_callers_need_as_many_hosts_or_more() -> None:
    waiting = sizing.Demand(4, 90, miss=0.001, callers=sizing.Callers.WAIT)
    assert sizing.recommend(waiting) == (20, 16)


def test_bursts_need_far_more() -> None:
    result = sizing.size(sizing.Demand(4, 90, burst=bursts.Burst(5)))
    assert result.named == (10, 29, 25)
    assert result.at(29).give_up.miss < 0.01 < result.at(28).give_up.miss


def test_the_quick_approximation_is_near() -> None:
    """S = mu + z * sqrt(mu * E[B^2] / E[B]), mu at the end of the window, z for 1 %."""
    for burst in (bursts.SINGLE, bursts.Burst(5), bursts.Burst(3, 2)):
        demand = sizing.Demand(4, 90, burst=burst)
        mean = demand.mean_demand
        rough = mean + 2.326 * math.sqrt(mean * burst.dispersion)
        assert sizing.recommend(demand)[0] == pytest.approx(rough, rel=0.15)


@settings(max_examples=20)
@given(
    st.floats(0.01, 20),
    st.floats(5, 110),
    st.sampled_from([0.001, 0.01, 0.1, 0.5]),
    st.sampled_from(list(sizing.Callers)),
)
def test_the_recommended_size_is_the_smallest_that_suffices(
    claims: float, warm_up: float, miss: float, callers: sizing.Callers
) -> None:
    demand = sizing.Demand(claims, warm_up, miss=miss, callers=callers)
    ticked, awake = sizing.recommend(demand)
    assert awake <= ticked

    def enough(size: int) -> bool:
        if callers is sizing.Callers.WAIT:
            rates = miss_rates.wait(size, demand.traffic)
            return bool(rates[size] <= miss)
        rate = miss_rates.give_up([size], demand.traffic)[0]
        return rate.at_most <= miss

    assert enough(ticked)
    assert not enough(ticked - 1)


@given(st.floats(0.01, 50), st.floats(1, 600), st.floats(1.01, 3))
def test_more_demand_never_needs_fewer_hosts(claims: float, warm_up: float, more: float) -> None:
    def needs(rate: float, seconds: float, miss: float = 0.01) -> int:
        return sizing.size_for_waiting(sizing.Demand(rate, seconds, miss=miss), 60)

    assert needs(claims, warm_up) <= needs(claims * more, warm_up)
    assert needs(claims, warm_up) <= needs(claims, warm_up * more)
    assert needs(claims, warm_up) <= needs(claims, warm_up, 0.01 / more)


def test_no_claims_need_no_hosts() -> None:
    result = sizing.size(sizing.Demand(0, 90, cost_per_host_hour=1))
    assert result.named == (0, 0, 0)
    document = result.as_json()
    assert document["miss_at_runbook"] == 0
    assert document["idle_cost_per_month"] == 0


def test_idle_hosts_have_a_cost() -> None:
    document = sizing.size(sizing.Demand(4, 90, cost_per_host_hour=0.4)).as_json()
    # 17 minus 8, the mean number of claims in 90 to 150 s; slightly more, since no caller waits.
    assert document["idle_at_recommended"] == pytest.approx(9, abs=0.05)
    assert document["idle_cost_per_month"] == pytest.approx(9 * 0.4 * 730, rel=0.01)
    assert document["warming"] == pytest.approx(6)


def test_the_curve_has_every_named_size_and_falls() -> None:
    for demand in (sizing.Demand(4, 90), sizing.Demand(400, 280), sizing.Demand(0.001, 10)):
        result = sizing.size(demand)
        sizes = [point.size for point in result.curve]
        assert sizes == sorted(set(sizes))
        assert set(result.named) <= set(sizes)
        assert len(sizes) <= sizing.MAX_POINTS
        for less, more in zip(result.curve, result.curve[1:], strict=False):
            assert less.wait >= more.wait
            assert less.give_up.miss >= more.give_up.miss - 1e-12
            assert less.idle <= more.idle


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"claims_per_minute": -1}, "--claims-per-minute"),
        ({"claims_per_minute": math.nan}, "--claims-per-minute"),
        ({"claims_per_minute": math.inf}, "--claims-per-minute"),
        ({"claims_per_minute": 1e5}, "100,000 warm hosts"),
        ({"warm_up_s": 0}, "--warmup"),
        ({"warm_up_s": 0.0009}, "--warmup"),
        ({"warm_up_s": math.nan}, "--warmup"),
        ({"warm_up_s": 1e9}, "--warmup"),
        ({"interval_s": 0}, "--interval"),
        ({"interval_s": -60}, "--interval"),
        ({"miss": 0}, "--miss"),
        ({"miss": 1}, "--miss"),
        ({"miss": -0.5}, "--miss"),
        ({"miss": math.nan}, "--miss"),
        ({"miss": 1e-12}, "--miss"),
        ({"cost_per_host_hour": -0.1}, "--cost"),
        ({"cost_per_host_hour": math.nan}, "--cost"),
    ],
)
def test_an_invalid_demand_is_refused(change: dict[str, float], word: str) -> None:
    with pytest.raises(errors.UsageError) as caught:
        sizing.Demand(**{"claims_per_minute": 4, "warm_up_s": 90, **change})
    assert word in caught.value.what + caught.value.why


@settings(max_examples=25)
@given(
    st.floats(1e-6, 1e4),
    st.floats(0.001, 7 * 86400),
    st.floats(0.001, 86400),
    st.floats(1e-9, 0.999),
    st.floats(1, 1000),
    st.floats(0, 5),
)
@example(1, 1, 1, 0.5, 1 + 2**-52, 1)
def test_every_valid_demand_has_a_size(
    claims: float, warm_up: float, interval: float, miss: float, burst: float, spread: float
) -> None:
    try:
        demand = sizing.Demand(claims, warm_up, interval, miss, bursts.Burst(burst, spread))
    except errors.UsageError:
        return
    ticked = sizing.size_for_waiting(demand, interval)
    awake = sizing.size_for_waiting(demand, 0)
    assert 1 <= awake <= ticked < 20 * sizing.LARGEST_POOL
