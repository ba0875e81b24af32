"""Slopes with their intervals, and counters read at irregular times."""

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
    slope = trends.slope(_minutes(121), 5 * np.arange(121))
    assert slope is not None
    assert slope.per_hour == pytest.approx(300)
    assert (slope.low, slope.high) == pytest.approx((300, 300))
    assert (slope.hours, slope.points) == (2.0, 121)


def test_outliers_do_not_move_the_slope() -> None:
    values = 5 * np.arange(241)
    values[[7, 50, 51, 130]] += 4000
    slope = trends.slope(_minutes(241), values)
    assert slope is not None
    assert slope.per_hour == pytest.approx(300, rel=0.02)


def test_fewer_than_three_points_have_no_slope() -> None:
    assert trends.slope(_minutes(2), np.array([1, 2])) is None


def test_the_interval_contains_the_truth_for_leaks_and_random_walks() -> None:
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
            slope = trends.slope(_minutes(181), values)
            assert slope is not None
            missed[name] += not slope.low <= truth <= slope.high
    # 1 % of 300 are 3 on average; a binomial with that mean passes 10 once in 4,000 times.
    assert max(missed.values()) <= 10, missed


def _record(home: pathlib.Path, rows: dict[int, dict[str, tuple[int, int]]]) -> reader.Reader:
    ring_writer = rings.open_writer(home, block_seconds=300)
    for second, counters in rows.items():
        ring_writer.numbers("cgroup-births", BIRTHS, rings.at(second), counters)
        ring_writer.tick(rings.at(second))
    ring_writer.close()
    return reader.Reader(home)


def test_counters_are_read_at_both_ends_and_between(tmp_path: pathlib.Path) -> None:
    source = _record(tmp_path, {s: {"/a": (s // 10, s // 20)} for s in range(0, 1810, 10)})
    growth = trends.growth(
        source, rings.HOST, "cgroup-births", _window(-900, 1801), BIRTHS, 600 * 10**6
    )
    assert growth.seconds == 1800
    counter = growth.keys["/a"]
    assert counter.seconds.tolist() == [600.0, 600.0, 600.0]
    assert counter.rises["born"].tolist() == [60.0, 60.0, 60.0]
    assert (counter.total("died"), counter.per_hour("born")) == (90.0, 360.0)


def test_a_new_key_began_at_zero_only_if_the_caller_says_so(tmp_path: pathlib.Path) -> None:
    source = _record(
        tmp_path, {s: ({"/a": (50 + s, 0)} if s >= 300 else {}) for s in range(0, 610, 10)}
    )
    arguments = (source, rings.HOST, "cgroup-births", _window(0, 601), BIRTHS, 10**9)
    assert trends.growth(*arguments, from_zero=True).keys["/a"].total("born") == 650
    assert trends.growth(*arguments).keys["/a"].total("born") == 0


def test_a_counter_that_fell_counts_from_zero(tmp_path: pathlib.Path) -> None:
    source = _record(
        tmp_path, {s: {"/a": (900 + s if s < 300 else s - 300, 0)} for s in range(0, 610, 10)}
    )
    growth = trends.growth(source, rings.HOST, "cgroup-births", _window(0, 601), BIRTHS, 10**9)
    assert growth.keys["/a"].total("born") == 300


def test_a_signal_without_data_has_no_growth(tmp_path: pathlib.Path) -> None:
    source = reader.Reader(tmp_path)
    growth = trends.growth(source, rings.HOST, "cgroup-births", _window(0, 600), BIRTHS, 10**8)
    assert (growth.keys, growth.seconds) == ({}, 0)
    assert not len(
        trends.gauges(source, rings.HOST, "memory-cgroups", _window(0, 9), ("dying",)).time_us
    )
    assert trends.table(source, rings.HOST, "memory-cgroups", _window(0, 9)) == {}


def test_the_table_has_the_last_row_of_the_window(tmp_path: pathlib.Path) -> None:
    source = _record(tmp_path, {0: {"/a": (1, 2), "/b": (3, 4)}, 10: {"/b": (5, 6)}, 20: {}})
    rows = trends.table(source, rings.HOST, "cgroup-births", _window(0, 15))
    assert rows == {"/b": {"born": 5, "died": 6}}


@pytest.mark.parametrize(("burst", "kept"), [(1000.0, 5), (100.0, 6)])
def test_a_burst_is_ten_times_as_fast_as_usual(burst: float, kept: int) -> None:
    ends = np.arange(1, 7)
    rises = np.array([20.0, burst * 2, 20.0, 20.0, 20.0, 20.0])
    growth = trends.Growth("/a", ends - 1, ends, np.full(6, 2.0), {"born": rises})
    calm = growth.without_bursts("born")
    assert (len(calm.seconds), calm.total("born")) == (kept, 100.0 + (kept - 5) * 200.0)
