"""The tree in C is the tree in Python, and refuses indices that point nowhere."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overnight.store import _tree, tree

FRAMES = 6


def words(values: list[int]) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


@st.composite
def inputs(draw: st.DrawFn) -> tuple[bytes, ...]:
    frame = st.integers(0, FRAMES - 1)
    stacks = draw(st.lists(st.lists(frame, max_size=6), min_size=1, max_size=8))
    pairs = draw(st.lists(st.tuples(frame, st.integers(0, len(stacks) - 1)), max_size=12))
    ends = [sum(map(len, stacks[: i + 1])) for i in range(len(stacks))]
    return (
        words([root for root, _ in pairs]),
        words([stack for _, stack in pairs]),
        words(ends),
        words([number for stack in stacks for number in stack]),
        draw(st.binary(min_size=8 * FRAMES, max_size=8 * FRAMES)),
        draw(st.binary(min_size=FRAMES, max_size=FRAMES)),
    )


@settings(max_examples=40)
@given(inputs())
def test_both_fold_alike(arrays: tuple[bytes, ...]) -> None:
    assert _tree.fold(*arrays) == tree.fold_in_python(*arrays)


GOOD = (words([0]), words([1]), words([1, 2]), words([1, 2]), bytes(24), bytes(3))


@pytest.mark.parametrize(
    ("which", "bad"),
    [
        (0, words([3])),
        (1, words([2])),
        (1, words([0, 1])),
        (2, words([2, 1])),
        (2, words([1, 3])),
        (3, words([1, 3])),
        (4, bytes(16)),
        (5, bytes(2)),
    ],
)
def test_an_index_outside_its_table_is_refused(which: int, bad: bytes) -> None:
    assert _tree.fold(*GOOD)
    with pytest.raises(ValueError, match="outside its table"):
        _tree.fold(*GOOD[:which], bad, *GOOD[which + 1 :])


ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=30)


@settings(max_examples=60)
@given(st.lists(st.integers(0, 2), min_size=4, max_size=4), ROWS)
def test_both_pair_up_alike(process: list[int], rows: list[tuple[int, int]]) -> None:
    task, stack = np.array(rows, np.uint32).reshape(-1, 2).T
    arguments = (np.array(process, np.uint32), task, stack, 3, 5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree, "HAS_EXTENSION", False)
        python = tree.pair_up(*arguments)
    native = tree.pair_up(*arguments)
    for one, other in zip(native, python, strict=True):
        assert one.dtype == other.dtype == np.uint32
        assert one.tolist() == other.tolist()
    roots, hanging, pair = native
    assert [(roots[i], hanging[i]) for i in pair] == [(process[t], s) for t, s in rows]


PAIRED = (words([0, 1]), words([0, 1]), words([0, 4]), 2, 5)


@pytest.mark.parametrize(
    ("which", "bad"),
    [
        (0, words([0, 2])),
        (0, words([0])),
        (1, words([0, 2])),
        (1, words([0])),
        (2, words([0, 5])),
        (3, -1),
        (3, 2**62),
        (4, 4),
    ],
)
def test_a_pair_outside_its_tables_is_refused(which: int, bad: object) -> None:
    assert _tree.pair(*PAIRED)
    with pytest.raises(ValueError, match="outside its table"):
        _tree.pair(*PAIRED[:which], bad, *PAIRED[which + 1 :])
