"""Slopes with honest intervals, counters met now and then."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest
import rings

from overnight.model.selection import Window
from overnight.queries import trends
from overnight.store.ring import reader

MINUTE_US = 60_000_000
BIRTHS = ("born", "died")


def _window(begin: float, end: float) -> Window:
    return Window(rings.us(begin), rings.us(end))


def _minutes(count: int) -> np.ndarray:
    return rings.BEGIN_US + MINUTE_US * np.arange(count, dtype=np.int64)


def test_a_steady_leak_has_its_slope() -> None:
    found = trends.slope(_minutes(121), 5 * np.arange(121))
    assert found is not None
    assert found.per_hour == pytest.approx(300)
    assert (found.low, found.high) == pytest.approx((300, 300))
    assert (found.hours, found.points) == (2.0, 121)


def test_outliers_do_not_move_it() -> None:
    values = 5 * np.arange(241)
    values[[7, 50, 51, 130]] += 4000
    found = trends.slope(_minutes(241), values)
    assert found is not None
    assert found.per_hour == pytest.approx(300, rel=0.02)


def test_fewer_than_three_looks_have_none() -> None:
    assert trends.slope(_minutes(2), np.array([1, 2])) is None


def test_the_interval_holds_the_truth_for_leaks_and_for_random_walks() -> None:
    """A regression's own interval would miss the slope of a random walk most of the time."""
    missed = {"leak": 0, "walk": 0, "level": 0}
    for seed in range(300):
        chance = np.random.default_rng(seed)
        series = {
            "leak": (300.0, np.cumsum(chance.poisson(5, 181))),
            "walk": (0.0, np.cumsum(chance.normal(0, 9, 181)).round().astype(np.int64)),
            "level": (0.0, chance.poisson(400, 181)),
        }
        for name, (truth, values) in series.items():
            found = trends.slope(_minutes(181), values)
            assert found is not None
            missed[name] += not found.low <= truth <= found.high
    # 1 % of 300 are 3 on average; a binomial with that mean passes 10 once in 4,000 times.
    assert max(missed.values()) <= 10, missed


def _record(home: pathlib.Path, rows: dict[int, dict[str, tuple[int, int]]]) -> reader.Reader:
    made = rings.open_writer(home, block_seconds=300)
    for second, looked in rows.items():
        made.numbers("cgroup-births", BIRTHS, rings.at(second), looked)
        made.tick(rings.at(second))
    made.close()
    return reader.Reader(home)


def test_counters_are_met_at_both_ends_and_between(tmp_path: pathlib.Path) -> None:
    source = _record(tmp_path, {s: {"/a": (s // 10, s // 20)} for s in range(0, 1810, 10)})
    met = trends.growth(
        source, rings.HOST, "cgroup-births", _window(-900, 1801), BIRTHS, 600 * 10**6
    )
    assert met.seconds == 1800
    found = met.keys["/a"]
    assert found.seconds.tolist() == [600.0, 600.0, 600.0]
    assert found.rises["born"].tolist() == [60.0, 60.0, 60.0]
    assert (found.total("died"), found.per_hour("born")) == (90.0, 360.0)


def test_a_key_that_comes_anew_began_at_zero_or_nobody_knows(tmp_path: pathlib.Path) -> None:
    source = _record(
        tmp_path, {s: ({"/a": (50 + s, 0)} if s >= 300 else {}) for s in range(0, 610, 10)}
    )
    asked = (source, rings.HOST, "cgroup-births", _window(0, 601), BIRTHS, 10**9)
    assert trends.growth(*asked, from_zero=True).keys["/a"].total("born") == 650
    assert trends.growth(*asked).keys["/a"].total("born") == 0


def test_a_counter_that_fell_counts_from_zero(tmp_path: pathlib.Path) -> None:
    source = _record(
        tmp_path, {s: {"/a": (900 + s if s < 300 else s - 300, 0)} for s in range(0, 610, 10)}
    )
    met = trends.growth(source, rings.HOST, "cgroup-births", _window(0, 601), BIRTHS, 10**9)
    assert met.keys["/a"].total("born") == 300


def test_nothing_was_recorded(tmp_path: pathlib.Path) -> None:
    source = reader.Reader(tmp_path)
    met = trends.growth(source, rings.HOST, "cgroup-births", _window(0, 600), BIRTHS, 10**8)
    assert (met.keys, met.seconds) == ({}, 0)
    assert not len(
        trends.gauges(source, rings.HOST, "memory-cgroups", _window(0, 9), ("dying",)).time_us
    )
    assert trends.table(source, rings.HOST, "memory-cgroups", _window(0, 9)) == {}


def test_the_last_look_of_a_window(tmp_path: pathlib.Path) -> None:
    source = _record(tmp_path, {0: {"/a": (1, 2), "/b": (3, 4)}, 10: {"/b": (5, 6)}, 20: {}})
    rows = trends.table(source, rings.HOST, "cgroup-births", _window(0, 15))
    assert rows == {"/b": {"born": 5, "died": 6}}
