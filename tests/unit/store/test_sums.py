"""Samples summed by mode: the same as counting each sample separately."""

from __future__ import annotations

import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overnight.store import sums, tree

FLAGS = np.array(
    [
        0,
        tree.KERNEL,
        tree.SOFTIRQ,
        tree.KERNEL | tree.SOFTIRQ,
        tree.IDLE | tree.KERNEL,
        tree.IDLE | tree.KERNEL | tree.SOFTIRQ,
    ],
    np.uint8,
)
CELLS = 4
ROW = st.tuples(
    st.integers(0, CELLS - 1), st.integers(0, len(FLAGS) - 1), st.integers(0, 1), st.integers(1, 9)
)


@settings(max_examples=60)
@given(st.lists(ROW, max_size=30), st.booleans())
@pytest.mark.parametrize("at_once", [0, sums.MAX_AT_ONCE])
def test_sums_equal_those_of_single_samples(at_once: int, rows: list, plain: bool) -> None:
    rows = [(cell, node, 0, 1) for cell, node, _, _ in rows] if plain else rows
    cell, node, event, count = np.array(rows, np.int64).reshape(-1, 4).T
    profile = types.SimpleNamespace(event=event.astype(np.uint8), count=count.astype(np.uint32))
    counted = sums.Counter(profile, FLAGS, node.astype(np.uint32))
    expected = np.zeros((4, CELLS), np.int64)
    for at, which, of_event, samples in rows:
        flags = int(FLAGS[which])
        if of_event:
            continue
        if flags & tree.IDLE:
            expected[3, at] += samples
            continue
        expected[0, at] += samples
        expected[1, at] += samples * bool(flags & tree.KERNEL)
        expected[2, at] += samples * bool(flags & tree.SOFTIRQ)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sums, "MAX_AT_ONCE", at_once)
        modes = counted.by_mode(cell, CELLS)
    assert list(modes.values()) == [pytest.approx(plane, abs=0) for plane in expected]
    assert counted.total(cell, CELLS).tolist() == (expected[0] + expected[3]).tolist()
