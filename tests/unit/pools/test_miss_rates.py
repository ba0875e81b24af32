"""The figures of the sizing theory, by formula and by simulated pools."""

from __future__ import annotations

import math

import numpy as np
import poolplay
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special

from overnight.pools import bursts, miss_rates

RATE, WARM_UP, TICK = 4 / 60, 90.0, 60.0
FIVE = bursts.Burst(5)
USUAL = bursts.Traffic(bursts.SINGLE, RATE, WARM_UP, TICK)

# size -> miss rate: (tick, give up), (tick, wait), (woken, give up); None where not measured
FACTS = {
    10: (0.154, 0.293, 0.043),
    15: (0.0183, 0.0257, 0.0009),
    17: (0.0054, 0.0069, 0.0001),
    20: (0.0006, 0.00069, None),
}
# Half of the last published digit, plus three standard errors of two million clustered claims.
TOLERANCE = {0.154: 1.5e-3, 0.293: 1.5e-3, 0.043: 6e-4, 0.0183: 3e-4, 0.0257: 5e-4, 0.0009: 5e-5,
        0.0054: 2e-4, 0.0069: 2e-4, 0.0001: 5e-5, 0.0006: 6e-5, 0.00069: 5e-5}  # fmt: skip


@pytest.mark.parametrize("size", FACTS)
def test_the_formulas_give_the_known_figures(size: int) -> None:
    give_up, wait, woken = FACTS[size]
    rate = miss_rates.give_up([size], USUAL)[0]
    assert (rate.method, rate.error) == ("chain", 0)
    assert rate.miss == pytest.approx(give_up, abs=TOLERANCE[give_up])
    waiting = miss_rates.wait(size, USUAL)[size]
    assert waiting == pytest.approx(wait, abs=TOLERANCE[wait])
    if woken is not None:
        awake = miss_rates.woken([size], USUAL)[0]
        assert awake.miss == pytest.approx(woken, abs=TOLERANCE[woken])


@pytest.mark.parametrize("size", [1, 10, 15, 17, 20, 40])
def test_waiting_is_the_integral_of_the_theory(size: int) -> None:
    whole, _ = integrate.quad(
        lambda x: special.gammainc(size, RATE * x), WARM_UP, WARM_UP + TICK, epsabs=1e-14
    )
    miss = miss_rates.wait(size, USUAL)[size]
    assert miss == pytest.approx(whole / TICK, rel=1e-6, abs=1e-11)


def test_bursts_of_five_have_the_measured_miss_rates() -> None:
    rates = miss_rates.wait(30, bursts.Traffic(FIVE, RATE, WARM_UP, TICK))
    assert rates[17] == pytest.approx(0.16, abs=0.005)
    assert rates[30] == pytest.approx(0.007, abs=0.0005)


def check(count: int, size: int, burst: bursts.Burst, warm_up: float, tick: float) -> None:
    """Compare a simulated pool with the formulas, within five standard errors."""
    runs = 20
    random = np.random.default_rng(7)
    rate = RATE
    played: dict[str, list[float]] = {"give_up": [], "wait": [], "woken": []}
    for _ in range(runs):
        times = poolplay.claims(burst, rate, count // runs, random).tolist()
        for name, rates in played.items():
            done = poolplay.play(
                times, size, warm_up_s=warm_up, interval_s=tick,
                waiting=name == "wait", woken=name == "woken",
            )  # fmt: skip
            rates.append(done.miss)
    traffic = bursts.Traffic(burst, rate, warm_up, tick)
    formula = {
        "give_up": miss_rates.give_up([size], traffic)[0],
        "wait": miss_rates.Rate(float(miss_rates.wait(size, traffic)[size]), 0.0, "formula"),
        "woken": miss_rates.woken([size], traffic)[0],
    }
    for name, rates in played.items():
        error = float(np.std(rates, ddof=1)) / math.sqrt(runs)
        # A few misses give no usable spread: the error is then one miss more or less.
        error = max(math.hypot(error, formula[name].error), 2 / count)
        assert abs(np.mean(rates) - formula[name].miss) < 5 * error, (name, formula[name])


@pytest.mark.parametrize("size", FACTS)
def test_a_simulated_pool_agrees(size: int) -> None:
    check(60_000, size, bursts.SINGLE, WARM_UP, TICK)


@pytest.mark.parametrize(
    ("size", "burst", "warm_up", "tick"),
    [
        (17, FIVE, 90, 60),
        (30, FIVE, 90, 60),
        (12, bursts.Burst(3, 4), 90, 60),
        (5, bursts.SINGLE, 45, 60),  # a warm-up shorter than the tick
        (10, bursts.SINGLE, 60, 60),  # a warm-up as long as the tick
        (14, bursts.SINGLE, 120, 60),
        (26, bursts.SINGLE, 290, 60),  # too many orders in transit for the chain
        (3, bursts.SINGLE, 90, 60),  # far too small
    ],
)
def test_other_pools_agree_too(size: int, burst: bursts.Burst, warm_up: float, tick: float) -> None:
    check(60_000, size, burst, warm_up, tick)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("size", FACTS)
def test_two_million_claims_agree(size: int) -> None:
    check(2_000_000, size, bursts.SINGLE, WARM_UP, TICK)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("size", [17, 30])
def test_two_million_claims_in_bursts_agree(size: int) -> None:
    check(2_000_000, size, FIVE, WARM_UP, TICK)


POOLS = {
    "burst": st.sampled_from([bursts.SINGLE, FIVE, bursts.Burst(2, 3)]),
    "rate": st.floats(0.001, 0.3),
    "warm_up": st.floats(1, 115),
}


@settings(max_examples=30)
@given(**POOLS)
def test_more_hosts_miss_less_and_the_three_rates_are_ordered(
    burst: bursts.Burst, rate: float, warm_up: float
) -> None:
    sizes = list(range(0, 30, 3))
    traffic = bursts.Traffic(burst, rate, warm_up, TICK)
    wait = miss_rates.wait(30, traffic)
    give_up = [rate_at.miss for rate_at in miss_rates.give_up(sizes, traffic)]
    assert (np.diff(wait) <= 1e-12).all()
    assert (np.diff(give_up) <= 1e-9).all()
    assert give_up[0] == wait[0] == 1
    for size, miss in zip(sizes, give_up, strict=True):
        assert miss <= wait[size] + 1e-9
    if burst.mean == 1:
        awake = miss_rates.woken(sizes, traffic)
        for woken, ticked in zip(awake, give_up, strict=True):
            assert woken.miss <= ticked + 1e-9


def test_a_pool_too_large_to_simulate_gives_its_bound() -> None:
    traffic = bursts.Traffic(bursts.SINGLE, 400 / 60, 300, 60)
    rate = miss_rates.give_up([2400], traffic)[0]
    assert rate.method == "bound"
    assert rate.miss == miss_rates.wait(2400, traffic)[2400]


def test_where_simulation_saw_nothing_the_proved_bound_is_the_error() -> None:
    traffic = bursts.Traffic(bursts.SINGLE, RATE, 300, 60)
    rate = miss_rates.give_up([60], traffic)[0]
    assert rate.method == "simulation"
    assert rate.miss <= rate.at_most <= miss_rates.wait(60, traffic)[60] * 1.001


def test_idle_hosts_agree_with_a_simulated_pool() -> None:
    random = np.random.default_rng(3)
    times = poolplay.claims(bursts.SINGLE, RATE, 60_000, random).tolist()
    done = poolplay.play(times, 17, warm_up_s=90, interval_s=60, waiting=True)
    want = miss_rates.idle(17, bursts.Traffic(bursts.SINGLE, RATE, 90, 60))[17]
    assert done.ready_s / times[-1] == pytest.approx(want, rel=0.01)
    assert done.warming_s / times[-1] == pytest.approx(RATE * 90, rel=0.02)
