"""The gate is calibrated on made-up runs: it seldom cries without reason, and never misses what is large."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from overnight.load import constancy
from overnight.model.load import Constancy

State = constancy.State


def judged(values, *, target: float | None = None, **more) -> constancy.Verdict:
    series = constancy.Series("cpu", "cores", list(values), target=target)
    return constancy.judge(constancy.Seconds(range(len(values)), [series], **more))


def noise(seed: int, n: int, cv: float, drift_per_hour: float = 0.0, alike: float = 0.0):
    chance = np.random.default_rng(seed)
    fresh = chance.standard_normal(n) * np.sqrt(1 - alike**2)
    made = np.empty(n)
    last = chance.standard_normal()
    for k in range(n):
        last = made[k] = alike * last + fresh[k]
    return 0.6 * (1 + cv * made) * (1 + drift_per_hour * np.arange(n) / 3600)


def share_of(status: str, runs: int = 100, **made) -> float:
    return sum(judged(noise(seed, **made)).status == status for seed in range(runs)) / runs


@pytest.mark.parametrize(
    "made",
    [
        {"n": 55, "cv": 0.01},
        {"n": 55, "cv": 0.002},
        {"n": 1200, "cv": 0.01},
        {"n": 600, "cv": 0.005, "drift_per_hour": 0.005},
        {"n": 240, "cv": 0.01, "alike": 0.5},
    ],
    ids=str,
)
def test_what_is_constant_is_seldom_called_otherwise(made: dict[str, float]) -> None:
    assert share_of(Constancy.NOT_CONSTANT, **made) <= 0.03


@pytest.mark.parametrize(
    "made",
    [
        {"n": 55, "cv": 0.03},
        {"n": 55, "cv": 0.002, "drift_per_hour": 0.5},
        {"n": 3600, "cv": 0.01, "drift_per_hour": 0.03},
    ],
    ids=str,
)
def test_what_is_not_constant_is_seen(made: dict[str, float]) -> None:
    assert share_of(Constancy.NOT_CONSTANT, runs=40, **made) >= 0.95


def test_a_minute_cannot_show_a_drift_of_a_percent_an_hour() -> None:
    said = judged(noise(1, 55, 0.01))
    assert said.status == Constancy.UNKNOWN
    (drift,) = [one for one in said.checks if one.name == "cpu drift"]
    assert drift.state is State.UNKNOWN
    assert drift.high - drift.low > 0.02
    assert "decided after about" in drift.says
    assert 300 < said.needs_s < 2400


@pytest.mark.parametrize("cv", [0.002, 0.005, 0.01])
def test_a_run_of_the_length_it_names_tells(cv: float) -> None:
    """Most of the time: the estimate is from a short run, and the slope lies somewhere in its interval."""
    needed = [judged(noise(seed, 60, cv)).needs_s for seed in range(20)]
    again = [judged(noise(n + 100, int(1.5 * s), cv)).status for n, s in enumerate(needed) if s]
    assert len(again) >= 18
    assert again.count(Constancy.CONSTANT) >= 0.8 * len(again)


def test_the_slope_and_its_interval_are_those_of_scipy() -> None:
    values, at = noise(3, 120, 0.01), np.arange(120.0)
    found = constancy.slope(at, values)
    other = scipy.stats.theilslopes(values, at, alpha=0.99)
    assert found[0] == pytest.approx(other.slope)
    # Ours is as wide where neighbours are not alike, or wider.
    assert found[1] <= other.low_slope + 1e-6
    assert found[2] >= other.high_slope - 1e-6
    assert found[2] - found[1] < 1.5 * (other.high_slope - other.low_slope)


def test_a_night_is_judged_from_means_of_stretches() -> None:
    said = judged(noise(5, 43_200, 0.01))
    assert said.status == Constancy.CONSTANT
    assert said.seconds == 43_200


def test_a_flat_line_is_constant() -> None:
    assert judged([256e6] * 30).status == Constancy.CONSTANT


def test_nothing_done_is_not_constant() -> None:
    assert judged([0.0] * 30).crossed[0].says == "cpu: no work was done"


def test_few_seconds_tell_nothing() -> None:
    assert judged(noise(1, 9, 0.5)).status == Constancy.UNKNOWN
    assert judged([]).status == Constancy.UNKNOWN


def test_less_than_asked_for_is_said() -> None:
    said = judged([0.41] * 30, target=0.6)
    assert said.status == Constancy.NOT_CONSTANT
    assert said.crossed[0].says == "cpu 0.410 cores, target 0.600 cores"
    assert judged([0.59] * 30, target=0.6).status == Constancy.CONSTANT


def test_a_figure_that_is_told_alone_closes_nothing() -> None:
    series = [
        constancy.Series("cpu", "cores", [0.6] * 20),
        constancy.Series("steps", "/s", list(range(20)), gated=False),
    ]
    said = constancy.judge(constancy.Seconds(range(20), series))
    assert said.status == Constancy.CONSTANT
    assert "steps: mean 10/s, 0/s to 19/s" in said.figures


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"losses": [0.5, 0.5, 0.6], "trials": [1.0, 1.0, 1.0]}, "2 different losses"),
        ({"losses": [0.5] * 6, "trials": [1.0, 1.3, 0.8, 1.0, 1.4, 1.0]}, "6 trials of 1.08 s, CV 21 %"),
        ({"steal": [0.03] * 30}, "steal 3 %"),
        ({"sys": {1: [0.01] * 30, 2: [0.01, 0.4] * 15}}, "core 2 kernel time 21 % ± 19.8 points"),
        ({"deaths": ("trial-1 ended with -9: it did not say why",)}, "trial-1 ended with -9"),
    ],
)  # fmt: skip
def test_each_limit_that_is_crossed_is_named(more, says: str) -> None:
    said = judged([0.6] * 30, **more)
    assert said.status == Constancy.NOT_CONSTANT
    assert says in said.as_json()["crossed"][0]
    assert said.says.startswith(said.crossed[0].says)


def test_few_trials_tell_nothing_and_say_so() -> None:
    said = judged([0.6] * 30, trials=[4.0, 4.0], losses=[0.5, 0.5])
    assert said.status == Constancy.UNKNOWN
    assert said.needs_s == pytest.approx(28)


def test_pressure_and_waits_are_told_and_close_nothing() -> None:
    said = judged([0.6] * 30, pressure={"cpu": [0.5] * 30}, waits=[0.2] * 30)
    assert said.status == Constancy.CONSTANT
    assert "pressure cpu 50 % of the time" in said.figures
    assert "workers waited for their cores 20 %" in said.figures
