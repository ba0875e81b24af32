"""Differences compared with counting sample by sample, and their interval with simulations."""

from __future__ import annotations

import math
import pathlib

import captures
import numpy as np
import pytest

from overnight.model.selection import Coverage, Selection, Window
from overnight.queries import diff

SECOND, NIGHT = captures.SECOND, captures.NIGHT


def counts(samples: list[captures.Sample]) -> dict[captures.Function, tuple[int, int]]:
    sums: dict[captures.Function, tuple[int, int]] = {}
    for sample in samples:
        for frame in set(sample.path):
            own, whole = sums.get(frame, (0, 0))
            own_count = sample.count if frame == sample.path[-1] else 0
            sums[frame] = (own + own_count, whole + sample.count)
    return sums


def test_every_function_of_either_window_with_its_rates(
    night: captures.Night, chosen: Selection
) -> None:
    first, second = night.windows(13)[-2:]
    difference = diff.diff(night.source, first, second, chosen, limit=1000)
    now = counts(captures.chosen_samples(night.of(), first, chosen))
    before = counts(captures.chosen_samples(night.of(), second, chosen))
    assert {
        (c.name, c.module, int(c.kernel)) for c in difference.changes
    } == now.keys() | before.keys()
    assert difference.others == 0
    capacity, base = difference.coverage.capacity, difference.baseline.capacity
    for change in difference.changes:
        frame = (change.name, change.module, int(change.kernel))
        own, whole = now.get(frame, (0, 0))
        base_own, base_whole = before.get(frame, (0, 0))
        assert (change.samples, change.baseline_samples) == (whole, base_whole)
        assert change.rate == pytest.approx(whole / capacity)
        assert change.baseline_rate == pytest.approx(base_whole / base)
        assert change.difference == pytest.approx(whole / capacity - base_whole / base)
        assert change.own_difference == pytest.approx(own / capacity - base_own / base)
        assert change.low <= change.difference <= change.high


def test_the_surest_large_changes_come_first(night: captures.Night) -> None:
    first, second = night.windows(14)[-2:]
    changes = diff.diff(night.source, first, second, limit=1000).changes

    def certain_change(change: diff.Change) -> float:
        inside = change.low <= 0 <= change.high
        return 0.0 if inside else min(abs(change.low), abs(change.high))

    assert [certain_change(c) for c in changes] == sorted(
        map(certain_change, changes), reverse=True
    )
    some = diff.diff(night.source, first, second, limit=2)
    assert (some.changes, some.others) == (changes[:2], len(changes) - 2)


def stored(
    tmp_path: pathlib.Path,
    first: dict[str, int],
    second: dict[str, int],
    *,
    seconds: int = 10,
    cores: int = 1,
    frequency: int = 100,
) -> diff.Difference:
    """Compare functions of 10 s on one core with those of the given seconds and cores."""

    def capture(names: dict[str, int], host: str, length: int, core_count: int):
        samples = [
            captures.Sample(NIGHT + i, (captures.user(name),), count=count)
            for i, (name, count) in enumerate(names.items())
        ]
        return captures.build(
            samples,
            host=host,
            begin=NIGHT,
            end=NIGHT + length * SECOND,
            cores=tuple(range(core_count)),
            frequency=frequency,
        )

    source = captures.store(
        tmp_path, capture(first, "now", 10, 1), capture(second, "before", seconds, cores)
    )
    window = captures.window(NIGHT, NIGHT + 1000 * SECOND)
    return diff.diff(source, window, window, hosts=("now",), baseline_hosts=iter(["before"]))


def test_new_vanished_more_less_and_unclear(tmp_path: pathlib.Path) -> None:
    difference = stored(
        tmp_path,
        {"new": 500, "more": 500, "less": 100, "same": 300, "once": 1},
        {"vanished": 400, "more": 100, "less": 500, "same": 310},
    )
    status = {change.name: change.status for change in difference.changes}
    assert status == {
        "new": "new", "vanished": "vanished", "more": "more", "less": "less", "same": "unclear", "once": "unclear",
    }  # fmt: skip
    assert [c.name for c in difference.changes][-2:] == ["same", "once"]


@pytest.mark.parametrize(("seconds", "cores"), [(60, 1), (10, 8), (60, 8)])
def test_rates_are_by_time_and_by_cores(tmp_path: pathlib.Path, seconds: int, cores: int) -> None:
    times = seconds * cores // 10
    difference = stored(tmp_path, {"f": 50}, {"f": 50 * times}, seconds=seconds, cores=cores)
    (change,) = difference.changes
    assert change.rate == pytest.approx(0.05)
    assert change.difference == pytest.approx(0)
    assert change.status == "unclear"


def test_without_a_rate_shares_of_samples_are_compared(tmp_path: pathlib.Path) -> None:
    difference = stored(tmp_path, {"f": 900, "g": 100}, {"f": 50, "g": 50}, frequency=0)
    by_name = {change.name: change for change in difference.changes}
    assert by_name["f"].rate == 0.9
    assert by_name["f"].difference == pytest.approx(0.4)
    assert by_name["g"].difference == pytest.approx(-0.4)


def test_a_window_without_samples(night: captures.Night) -> None:
    nothing = Window(0, 1_000_000)
    difference = diff.diff(night.source, night.source.extent(), nothing, limit=1000)
    assert difference.baseline.samples == 0
    assert {change.baseline_samples for change in difference.changes} == {0}
    assert diff.diff(night.source, nothing, nothing).changes == ()


# Garwood's exact 95 % bounds, as printed in tables of the Poisson distribution.
EXACT = {
    0: (0.0, 3.689), 1: (0.0253, 5.572), 2: (0.242, 7.225), 3: (0.619, 8.767), 4: (1.090, 10.242),
    5: (1.623, 11.668), 6: (2.202, 13.059), 7: (2.814, 14.423), 8: (3.454, 15.763), 9: (4.115, 17.085),
    10: (4.795, 18.390), 15: (8.395, 24.740), 20: (12.217, 30.888), 25: (16.177, 36.905),
    30: (20.241, 42.827), 50: (37.111, 65.919), 100: (81.364, 121.627),
}  # fmt: skip


@pytest.mark.parametrize("count", EXACT)
def test_bounds_of_a_count(count: int) -> None:
    low, high = diff.poisson_bounds(count)
    exact_low, exact_high = EXACT[count]
    assert low == pytest.approx(
        exact_low, rel=0.01 if count >= 5 else 0, abs=0 if count >= 5 else 0.02
    )
    assert high == pytest.approx(exact_high, rel=0.01)


def test_bounds_of_large_counts_match_the_normal_distribution() -> None:
    for count in (10**6, 10**9):
        low, high = diff.poisson_bounds(count)
        assert count - low == pytest.approx(1.96 * math.sqrt(count), rel=0.01)
        assert high - count == pytest.approx(1.96 * math.sqrt(count), rel=0.01)


@pytest.mark.parametrize(
    ("mean", "base_mean", "ratio"),
    [(3, 8, 1), (10, 10, 1), (40, 400, 10), (5, 600, 100), (200, 150, 1)],
)
def test_the_interval_contains_the_truth_in_95_of_100_windows(
    mean: float, base_mean: float, ratio: int
) -> None:
    chance = np.random.default_rng(7)
    truth = mean - base_mean / ratio
    coverage = _coverage(1000.0)
    base = _coverage(1000.0 * ratio)
    cases = 4000
    now, before = chance.poisson(mean, cases), chance.poisson(base_mean, cases)
    compared = diff._compare([now * 0, now, before * 0, before], coverage, base)
    held = ((compared["low"] <= truth / 1000) & (truth / 1000 <= compared["high"])).sum()
    assert 0.93 <= held / cases <= 0.985


def _coverage(capacity: float) -> Coverage:
    window = Window(0, 1)
    return Coverage((), window, 1.0, 1.0, capacity, 0, 0, 0, 1, ())
