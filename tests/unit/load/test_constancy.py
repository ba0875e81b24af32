"""The gate, calibrated on synthetic runs: few false alarms, and no large change missed."""

from __future__ import annotations

import json

import loadseconds
import numpy as np
import pytest
import scipy.stats

from overnight import load
from overnight.load import constancy
from overnight.model.load import Constancy

State = constancy.State


def judge(values, *, target: float | None = None, **more) -> constancy.Verdict:
    metric = load.Metric("cpu", "cores", "cpu", target=target)
    return loadseconds.judge({metric: values}, **more)


def noise(seed: int, n: int, cv: float, drift_per_hour: float = 0.0, alike: float = 0.0):
    chance = np.random.default_rng(seed)
    fresh = chance.standard_normal(n) * np.sqrt(1 - alike**2)
    values = np.empty(n)
    last = chance.standard_normal()
    for k in range(n):
        last = values[k] = alike * last + fresh[k]
    return 0.6 * (1 + cv * values) * (1 + drift_per_hour * np.arange(n) / 3600)


def share_of(status: str, runs: int = 100, **options) -> float:
    return sum(judge(noise(seed, **options)).status == status for seed in range(runs)) / runs


@pytest.mark.parametrize(
    "options",
    [
        {"n": 55, "cv": 0.01},
        {"n": 55, "cv": 0.002},
        {"n": 1200, "cv": 0.01},
        {"n": 600, "cv": 0.005, "drift_per_hour": 0.005},
        {"n": 240, "cv": 0.01, "alike": 0.5},
    ],
    ids=str,
)
def test_constant_runs_are_rarely_rejected(options: dict[str, float]) -> None:
    assert share_of(Constancy.NOT_CONSTANT, **options) <= 0.03


@pytest.mark.parametrize(
    "options",
    [
        {"n": 55, "cv": 0.03},
        {"n": 55, "cv": 0.002, "drift_per_hour": 0.5},
        {"n": 3600, "cv": 0.01, "drift_per_hour": 0.03},
    ],
    ids=str,
)
def test_runs_that_are_not_constant_are_detected(options: dict[str, float]) -> None:
    assert share_of(Constancy.NOT_CONSTANT, runs=40, **options) >= 0.95


def test_a_minute_cannot_show_a_drift_of_a_percent_an_hour() -> None:
    verdict = judge(noise(1, 55, 0.01))
    assert verdict.status == Constancy.UNKNOWN
    (drift,) = [check for check in verdict.checks if check.name == "cpu drift"]
    assert drift.state is State.UNKNOWN
    assert drift.high - drift.low > 0.02
    assert "decided after about" in drift.says
    assert 300 < verdict.needs_s < 2400


@pytest.mark.parametrize("cv", [0.002, 0.005, 0.01])
def test_a_run_of_the_suggested_length_decides(cv: float) -> None:
    """Most of the time: the estimate is from a short run, and the slope lies somewhere in its interval."""
    needed = [judge(noise(seed, 60, cv)).needs_s for seed in range(20)]
    longer = [judge(noise(n + 100, int(1.5 * s), cv)).status for n, s in enumerate(needed) if s]
    assert len(longer) >= 18
    assert longer.count(Constancy.CONSTANT) >= 0.8 * len(longer)


def test_the_slope_and_its_interval_are_those_of_scipy() -> None:
    values, at = noise(3, 120, 0.01), np.arange(120.0)
    slope = constancy.slope(at, values)
    other = scipy.stats.theilslopes(values, at, alpha=0.99)
    assert slope[0] == pytest.approx(other.slope)
    # Ours is as wide where neighbours are not correlated, or wider.
    assert slope[1] <= other.low_slope + 1e-6
    assert slope[2] >= other.high_slope - 1e-6
    assert slope[2] - slope[1] < 1.5 * (other.high_slope - other.low_slope)


def test_a_night_is_judged_from_means_of_intervals() -> None:
    verdict = judge(noise(5, 43_200, 0.01))
    assert verdict.status == Constancy.CONSTANT
    assert verdict.seconds == 43_200


def test_a_flat_line_is_constant() -> None:
    assert judge([256e6] * 30).status == Constancy.CONSTANT


def test_no_work_is_not_constant() -> None:
    assert judge([0.0] * 30).crossed[0].says == "cpu: no work was done"


def test_few_seconds_give_no_verdict() -> None:
    assert judge(noise(1, 9, 0.5)).status == Constancy.UNKNOWN
    assert judge([]).status == Constancy.UNKNOWN


def test_less_than_the_target_is_reported() -> None:
    verdict = judge([0.41] * 30, target=0.6)
    assert verdict.status == Constancy.NOT_CONSTANT
    assert verdict.crossed[0].says == "cpu 0.410 cores, target 0.600 cores"
    assert judge([0.59] * 30, target=0.6).status == Constancy.CONSTANT


def test_a_figure_without_a_limit_does_not_close_the_gate() -> None:
    cpu = load.Metric("cpu", "cores", "cpu")
    steps = load.Metric("steps", "/s", "0", gated=False)
    verdict = loadseconds.judge({cpu: [0.6] * 20, steps: range(20)})
    assert verdict.status == Constancy.CONSTANT
    assert "steps: mean 10/s, 0/s to 19/s" in verdict.figures


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"losses": [0.5, 0.5, 0.6], "trials": [1.0, 1.0, 1.0]}, "2 different losses"),
        ({"losses": [0.5] * 6, "trials": [1.0, 1.3, 0.8, 1.0, 1.4, 1.0]}, "6 trials of 1.08 s, CV 21 %"),
        ({"steal": [0.03] * 30}, "steal 3 %"),
        ({"sys": {1: [0.01] * 30, 2: [0.01, 0.4] * 15}}, "core 2 kernel time 21 % ± 19.8 points"),
        ({"deaths": ("trial-1 ended with -9: it did not say why",)}, "trial-1 ended with -9"),
    ],
)  # fmt: skip
def test_each_limit_that_is_crossed_is_named(more, message: str) -> None:
    verdict = judge([0.6] * 30, **more)
    assert verdict.status == Constancy.NOT_CONSTANT
    assert message in verdict.as_json()["crossed"][0]
    assert verdict.says.startswith(verdict.crossed[0].says)


def test_few_trials_give_no_verdict() -> None:
    verdict = judge([0.6] * 30, trials=[4.0, 4.0], losses=[0.5, 0.5])
    assert verdict.status == Constancy.UNKNOWN
    assert verdict.needs_s == pytest.approx(28)


def test_pressure_and_waits_are_reported_and_do_not_close_the_gate() -> None:
    verdict = judge([0.6] * 30, pressure={"cpu": [0.5] * 30}, waits=[0.2] * 30)
    assert verdict.status == Constancy.CONSTANT
    assert "pressure cpu 50 % of the time" in verdict.figures
    assert "workers waited for their cores 20 %" in verdict.figures


def judge_replay(errors, *, cpu: float = 0.5, wanted: float = 0.5) -> constancy.Verdict:
    n = len(errors)
    return loadseconds.judge(
        {
            load.Metric("cpu", "cores", "cpu", gated=False): [cpu] * n,
            load.Metric("wanted", "cores", "wanted", gated=False): [wanted] * n,
            load.Metric("error", "cores", "error"): errors,
        }
    )


def test_a_replay_is_judged_by_its_distance_from_the_profile() -> None:
    assert judge_replay([0.01] * 30).status is Constancy.REPLAYED
    assert judge_replay([0.0] * 9).status is Constancy.UNKNOWN
    for verdict, name in (
        (judge_replay([0.03] * 30), "profile error"),
        (judge_replay([0.0] * 27 + [0.06] * 3), "profile seconds"),
        (judge_replay([0.01] * 30, cpu=0.4), "profile total"),
    ):
        assert verdict.status is Constancy.NOT_CONSTANT
        assert [check.name for check in verdict.crossed] == [name]


def test_a_verdict_survives_its_json() -> None:
    verdict = judge(noise(1, 40, 0.03), target=0.6)
    copy = constancy.Verdict.from_json(json.loads(json.dumps(verdict.as_json())))
    assert copy.as_json() == verdict.as_json()
    assert (copy.status, copy.crossed[0].state) == (Constancy.NOT_CONSTANT, State.CROSSED)
