"""The tree in C is the tree in Python, and refuses indices that point nowhere."""

from __future__ import annotations

import struct

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
