"""Heatmaps, compared with counting sample by sample; sums and rows agree."""

from __future__ import annotations

import collections
import dataclasses
import pathlib

import captures
import numpy as np
import pytest

from overnight import errors
from overnight.model.selection import Selection, Window
from overnight.queries import heatmap
from overnight.store import segments

SECOND_US = 1_000_000


def in_mode(sample: captures.Sample, mode: str) -> bool:
    if mode == "idle":
        return sample.idle
    return (
        not sample.idle
        and {
            "busy": True,
            "kernel": sample.in_kernel,
            "softirq": sample.softirq,
        }[mode]
    )


def cells(heat: heatmap.Heatmap) -> dict[tuple[int, str], int]:
    return {
        (int(x), heat.rows[y]): int(heat.values[x, y])
        for x, y in zip(*np.nonzero(heat.values), strict=True)
    }


def naive(
    night: captures.Night,
    window: Window,
    chosen: Selection,
    mode: str,
    begin_us: int,
    step_us: int,
) -> dict[tuple[int, str], int]:
    counted: collections.Counter[tuple[int, str]] = collections.Counter()
    for host, samples in night.samples.items():
        for s in samples:
            if captures.passes(s, window, chosen) and in_mode(s, mode):
                counted[(s.time_us - begin_us) // step_us, f"{host} {s.cpu}"] += s.count
    return dict(counted)


def whole_seconds(window: Window) -> Window:
    return Window(
        window.begin_us // SECOND_US * SECOND_US, -(-window.end_us // SECOND_US) * SECOND_US
    )


@pytest.mark.parametrize("mode", segments.MODES)
@pytest.mark.parametrize("step_us", [SECOND_US, 7 * SECOND_US])
def test_steps_of_seconds_come_from_the_sums(
    night: captures.Night, mode: str, step_us: int
) -> None:
    for window in night.windows(3):
        heat = heatmap.by_core(night.source, window, step_us=step_us, mode=mode)
        whole = whole_seconds(window)
        assert heat.begin_us == whole.begin_us
        assert len(heat.values) == -(-(whole.end_us - whole.begin_us) // step_us)
        expected = naive(night, whole, Selection(), mode, whole.begin_us, step_us)
        assert cells(heat) == expected
        assert heat.coverage.samples == sum(expected.values())
        assert heat.full == night.frequency * step_us / SECOND_US


@pytest.mark.parametrize("step_us", [100_000, 1_500_000])
def test_finer_steps_and_filters_come_from_the_rows(
    night: captures.Night, chosen: Selection, step_us: int
) -> None:
    for window in night.windows(4, 2):
        for mode in ("busy", "idle"):
            heat = heatmap.by_core(night.source, window, chosen, step_us=step_us, mode=mode)
            assert heat.begin_us == window.begin_us
            assert cells(heat) == naive(night, window, chosen, mode, window.begin_us, step_us)


def test_filtered_seconds_equal_the_naive_count(night: captures.Night, chosen: Selection) -> None:
    for window in night.windows(5, 2):
        heat = heatmap.by_core(night.source, window, chosen)
        summed = not (chosen.by_task or chosen.by_node) and chosen.event in (0, "cpu-clock")
        inside = whole_seconds(window) if summed else window
        assert cells(heat) == naive(night, inside, chosen, "busy", inside.begin_us, SECOND_US)


@pytest.mark.parametrize("mode", segments.MODES)
def test_fine_cells_add_up_to_the_coarse_ones(night: captures.Night, mode: str) -> None:
    window = whole_seconds(night.windows(6)[-1])
    coarse = heatmap.by_core(night.source, window, mode=mode)
    fine = heatmap.by_core(night.source, window, mode=mode, step_us=100_000)
    assert fine.rows == coarse.rows
    added = fine.values.reshape(len(coarse.values), 10, -1).sum(axis=1)
    assert added.tolist() == coarse.values.tolist()


def test_rows_include_idle_cores(night: captures.Night) -> None:
    nothing = Window(night.windows(0)[1].begin_us, night.windows(0)[1].begin_us + 1)
    both = heatmap.by_core(night.source, nothing)
    assert both.rows == ("alpha 0", "alpha 1", "alpha 2", "alpha 3", "beta 0", "beta 1")
    single = heatmap.by_core(night.source, nothing, hosts=("beta",))
    assert single.rows == ("0", "1")
    some = heatmap.by_core(night.source, nothing, Selection(cores=(1, 3)))
    assert some.rows == ("alpha 1", "alpha 3", "beta 1")


@pytest.mark.parametrize("rows", [1, 3, 50, 700, 1000])
def test_offsets_within_a_second(night: captures.Night, rows: int) -> None:
    for window in night.windows(7, 2):
        heat = heatmap.by_offset(night.source, window, rows=rows)
        begin = window.begin_us // SECOND_US * SECOND_US
        counted: collections.Counter[tuple[int, int]] = collections.Counter()
        for s in captures.chosen_samples(night.of(), window, Selection()):
            row = s.time_us % SECOND_US * rows // SECOND_US
            counted[(s.time_us - begin) // SECOND_US, row] += s.count
        expected = np.zeros_like(heat.values)
        for cell, count in counted.items():
            expected[cell] = count
        assert heat.values.tolist() == expected.tolist()
        assert heat.rows[0] == "0 ms"
        assert len(heat.rows) == rows
        if heat.coverage.segments == 6:
            assert heat.full == pytest.approx((4 + 2) * night.frequency / rows)


def test_offsets_with_filters(night: captures.Night, chosen: Selection) -> None:
    window = night.windows(8)[-1]
    heat = heatmap.by_offset(night.source, window, chosen)
    busy = dataclasses.replace(chosen, idle=False)
    expected = sum(s.count for s in captures.chosen_samples(night.of(), window, busy))
    assert int(heat.values.sum()) == heat.coverage.samples == expected


def test_coverage_counts_each_hosts_cores(night: captures.Night) -> None:
    window = captures.window(captures.NIGHT + 150 * 10**9, captures.NIGHT + 160 * 10**9)
    coverage = heatmap.by_core(night.source, window).coverage
    assert (coverage.recorded_seconds, coverage.core_seconds, coverage.capacity) == (20, 60, 6000)
    coverage = heatmap.by_core(night.source, window, Selection(cores=(3,))).coverage
    assert coverage.core_seconds == 10  # beta has no core 3


def test_invalid_steps_modes_and_sizes_are_refused(night: captures.Night) -> None:
    window = night.source.extent()
    with pytest.raises(errors.UsageError, match="got 999"):
        heatmap.by_core(night.source, window, step_us=999)
    with pytest.raises(errors.UsageError, match="is not a mode"):
        heatmap.by_core(night.source, window, mode="lazy")
    with pytest.raises(errors.UsageError, match="rows"):
        heatmap.by_offset(night.source, window, rows=0)
    ages = Window(0, 10**17)
    for query in (
        lambda: heatmap.by_core(night.source, ages, step_us=1000),
        lambda: heatmap.by_offset(night.source, ages),
    ):
        with pytest.raises(errors.UsageError, match="cells"):
            query()


def test_an_empty_window_has_only_zero_cells(night: captures.Night) -> None:
    outside = Window(0, 5 * SECOND_US)
    assert heatmap.by_core(night.source, outside).values.shape == (5, 0)
    assert heatmap.by_offset(night.source, outside).values.sum() == 0


def test_a_second_shared_by_two_segments_is_complete(tmp_path: pathlib.Path) -> None:
    half = captures.NIGHT + 500_000_000
    source = captures.store(
        tmp_path,
        captures.build([captures.Sample(captures.NIGHT)], end=half),
        captures.build([captures.Sample(half + 5)], begin=half, end=half + 10**9),
    )
    second_half = Window(half // 1000 + 100_000, half // 1000 + 200_000)
    assert heatmap.by_core(source, second_half).values.tolist() == [[2, 0]]
