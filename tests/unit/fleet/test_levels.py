"""Levels of rollups: maxima survive, intervals count once."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from overnight.fleet import levels
from overnight.model.uplink import Rollup

S = 1_000_000
percents = st.integers(0, 100)


@st.composite
def intervals(draw: st.DrawFn) -> Rollup:
    cores = tuple(sorted(draw(st.sets(st.integers(0, 4_095), min_size=1, max_size=3))))
    lists = [tuple(draw(percents) for _ in cores) for _ in range(3)]
    worst = tuple(draw(st.integers(0, 29)) * 1_000 for _ in cores)
    return Rollup(draw(st.integers(0, 200)) * 30 * S, 30, cores, *lists, worst)


several = st.lists(intervals(), min_size=1, max_size=12, unique_by=lambda rollup: rollup.begin_us)


def test_a_slot_lasts_as_long_as_was_observed_of_it_and_never_longer() -> None:
    """Intervals of two boots may overlap; a core may have come late."""
    twice = [Rollup(15 * n * S, 30, (0,), (5,), (9,), (1,), (0,)) for n in range(39)]
    late = Rollup(570 * S, 30, (0, 1), (5, 5), (9, 9), (1, 1), (0, 0))
    merged = levels.merge(levels.empty(), levels.from_rollups([*twice[:38], late]))
    slots = levels.take(merged, merged["level"] == 1)
    assert dict(zip(slots["core"].tolist(), slots["seconds"].tolist(), strict=True)) == {
        0: 600,
        1: 30,
    }
    (slot,) = levels.to_rollups(slots)
    assert (slot.seconds, slot.cores) == (600, (0, 1))
    first = levels.take(slots, np.array([1, 0]))
    first["core"] = np.array([0, 1], first["core"].dtype)  # now the first core is the late one
    assert levels.to_rollups(first)[0].seconds == 600


@given(several)
def test_columns_are_the_rollups(sent: list[Rollup]) -> None:
    columns = levels.from_rollups(sent)
    assert levels.to_rollups(columns) == tuple(sorted(sent, key=lambda rollup: rollup.begin_us))


@given(several)
def test_every_level_has_the_maximum_of_each_core_and_its_time(sent: list[Rollup]) -> None:
    merged = levels.merge(levels.empty(), levels.from_rollups(sent))
    for level in range(3):
        slot = max(30, levels.SLOTS[level]) * S
        by_slot: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
        for r in sent:
            for core, top, kernel, worst in zip(r.cores, r.max, r.kernel_max, r.worst_ms, strict=True):  # fmt: skip
                values = (top, kernel, r.begin_us + worst * 1_000)
                by_slot.setdefault((r.begin_us // slot, core), []).append(values)
        here = levels.take(merged, merged["level"] == level)
        found = {
            (begin // slot, core): values
            for begin, core, *values in zip(
                *(here[name].tolist() for name in ("begin_us", "core", "max", "kernel_max", "worst_us")),
                strict=True,
            )
        }  # fmt: skip
        assert found.keys() == by_slot.keys()
        for key, (top, kernel, worst) in found.items():
            assert top == max(given_top for given_top, _, _ in by_slot[key])
            assert kernel == max(given_kernel for _, given_kernel, _ in by_slot[key])
            assert (top, worst) in [(a, c) for a, _, c in by_slot[key]]


@given(several, several)
def test_merging_in_two_steps_or_twice_gives_the_same(a: list[Rollup], b: list[Rollup]) -> None:
    known = {rollup.begin_us for rollup in a}
    b = [rollup for rollup in b if rollup.begin_us not in known]
    first, second = levels.from_rollups(a), levels.from_rollups(b)
    both = levels.from_rollups([*a, *b])
    expected = levels.merge(levels.empty(), both)
    stepwise = levels.merge(levels.merge(levels.empty(), first), second)
    again = levels.merge(stepwise, both)
    for found in (stepwise, again):
        for level in range(3):
            assert _rows(found, level) == _rows(expected, level)


def _rows(columns: levels.Columns, level: int) -> object:
    return levels.to_rollups(levels.take(columns, columns["level"] == level))


def test_a_mean_is_weighted_by_time() -> None:
    sent = [
        Rollup(0, 10, (0,), (100,), (100,), (0,), (0,)),
        Rollup(30 * S, 30, (0,), (20,), (20,), (0,), (0,)),
    ]
    merged = levels.merge(levels.empty(), levels.from_rollups(sent))
    [slot] = _rows(merged, 1)  # type: ignore[misc]
    assert (slot.mean, slot.seconds) == ((40,), 40)
    assert merged["mean"].dtype == np.uint8
