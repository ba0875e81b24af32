"""Simulations of the statistics; the seeds are fixed, so a failure is reproducible."""

from __future__ import annotations

import numpy as np
import pytest

from overnight.detectors import _rate_ratios as ratios

RUNS = 400


def counts(
    chance: np.random.Generator, items: int, recurrences: int, windows: int, *, bursts: bool
) -> np.ndarray:
    """Draw busy and rare items whose rates vary by hour; with bursts, also by window."""
    shape = (items, recurrences, windows)
    rate = 0.5 * chance.lognormal(0, 2, (items, 1, 1)) * chance.gamma(4, 1 / 4, (*shape[:2], 1))
    rate = np.broadcast_to(rate, shape).copy()
    if bursts:
        rate *= chance.gamma(0.5, 2, shape)
        hit = chance.random(shape) < 0.01
        rate[hit] += chance.lognormal(4, 1, int(hit.sum()))
    return chance.poisson(rate)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("bursts", [False, True])
@pytest.mark.parametrize(
    ("recurrences", "windows"),
    [
        (3, 13),
        *(pytest.param(*shape, marks=pytest.mark.long) for shape in ((1, 40), (2, 25), (8, 7))),
    ],
)
def test_chance_is_called_a_lift_in_at_most_six_of_a_hundred_runs(
    recurrences: int, windows: int, bursts: bool
) -> None:
    chance = np.random.default_rng(7)
    alarms = 0
    for run in range(RUNS):
        table = counts(chance, 60, recurrences, windows, bursts=bursts)
        alarms += bool(ratios.compute_lifts(table, seed=run).passed().any())
    assert alarms / RUNS <= 0.06


GUARD, COMPARED = 6, 8  # windows


def drifting(chance: np.random.Generator, recurrences: int, windows: int) -> np.ndarray:
    """Draw rates that drift over minutes; window 0 is a minute after the others, which are adjacent."""
    shape = (40, recurrences, windows + GUARD - 1)
    keep = np.exp(-10 / 120)
    drift = chance.normal(0, 0.6, shape)
    for n in range(1, shape[2]):
        drift[:, :, n] = keep * drift[:, :, n - 1] + np.sqrt(1 - keep**2) * drift[:, :, n]
    rate = chance.lognormal(2, 1.5, (40, 1, 1)) * np.exp(drift[:, :, ::-1])
    return chance.poisson(np.delete(rate, np.s_[1:GUARD], axis=2))


def alike(recurrences: int, windows: int, labels: int) -> np.ndarray:
    """Compare each of the first windows with windows at the same distance as for window 0."""
    against = np.zeros((recurrences, windows, windows), bool)
    against[:, 0, 1 : 1 + COMPARED] = True
    for label in range(1, labels):
        against[:, label, label + GUARD : label + GUARD + COMPARED] = True
    return against


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("recurrences", "labels", "most"), [(1, 40, 0.08), (3, 13, 0.06)])
def test_a_drifting_load_is_rarely_called_a_lift(
    recurrences: int, labels: int, most: float
) -> None:
    chance = np.random.default_rng(9)
    windows = labels + GUARD + COMPARED
    against = alike(recurrences, windows, labels)
    alarms = {"alike": 0, "all others": 0}
    for run in range(120):
        table = drifting(chance, recurrences, windows)
        alarms["alike"] += bool(ratios.compute_lifts(table, None, against, seed=run).passed().any())
        alarms["all others"] += bool(
            ratios.compute_lifts(table[:, :, :labels], seed=run).passed().any()
        )
    assert alarms["alike"] / 120 <= most
    assert alarms["all others"] > 2 * alarms["alike"], "the drift is strong enough to tell"


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("recurrences", "windows"), [(1, 40), (2, 25), (3, 13), (8, 7)])
def test_a_core_used_before_each_event_is_found(recurrences: int, windows: int) -> None:
    chance = np.random.default_rng(8)
    hits = 0
    for run in range(60):
        table = counts(chance, 60, recurrences, windows, bursts=False)
        table[0, :, 0] += chance.poisson(500, recurrences)
        lifts = ratios.compute_lifts(table, seed=run)
        hits += bool(lifts.passed()[0])
        assert lifts.low[0] < np.log(lifts.lift[0])
    assert hits >= 57


def test_a_burst_before_one_of_many_recurrences_is_not_a_lift() -> None:
    table = np.random.default_rng(1).poisson(3.0, (50, 6, 7))
    table[0, 2, 0] += 900
    assert not ratios.compute_lifts(table).passed()[0]


def test_a_rare_stack_is_tested_and_can_be_found() -> None:
    table = np.zeros((2000, 6, 7), np.int64)
    table[:, :, 1:] = np.random.default_rng(2).poisson(0.05, (2000, 6, 6))
    table[0] = 0
    table[0, :, 0] = 4
    lifts = ratios.compute_lifts(table)
    assert lifts.tested == 2000
    assert np.flatnonzero(lifts.passed()).tolist() == [0]


def test_too_few_windows_find_nothing() -> None:
    table = np.full((3, 1, 5), 2, np.int64)
    table[0, 0, 0] = 5000
    lifts = ratios.compute_lifts(table)
    assert lifts.smallest == pytest.approx(0.2)
    assert not lifts.passed().any()


def test_windows_that_were_not_recorded_are_ignored() -> None:
    table = np.random.default_rng(3).poisson(20.0, (5, 3, 9))
    table[0, :, 0] = 200
    recorded = np.ones((3, 9), bool)
    recorded[:, 5:] = False
    whole, part = (
        ratios.compute_lifts(table[:, :, :5]),
        ratios.compute_lifts(table * recorded, recorded),
    )
    assert part.low == pytest.approx(whole.low)
    assert part.adjusted[0] == pytest.approx(whole.adjusted[0])


@pytest.mark.parametrize("shape", [(0, 3, 5), (4, 3, 1), (4, 0, 5)])
def test_nothing_to_compare_finds_nothing(shape: tuple[int, int, int]) -> None:
    assert not ratios.compute_lifts(np.zeros(shape, np.int64)).passed().any()


def test_the_tail_of_the_normal_distribution() -> None:
    assert ratios.normal_tail(np.array([0.0, 1.645])) == pytest.approx([0.5, 0.05], abs=1e-4)
