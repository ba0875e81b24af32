"""The C extension gives the same trees as Python and refuses indices out of range."""

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
        draw(st.binary(min_size=FRAMES, max_size=FRAMES)),
    )


@settings(max_examples=40)
@given(inputs())
def test_fold_gives_the_same_in_c_and_python(arrays: tuple[bytes, ...]) -> None:
    assert _tree.fold(*arrays) == tree.fold_in_python(*arrays)


GOOD = (words([0]), words([1]), words([1, 2]), words([1, 2]), bytes(3))


@pytest.mark.parametrize(
    ("which", "bad"),
    [
        (0, words([3])),
        (1, words([2])),
        (1, words([0, 1])),
        (2, words([2, 1])),
        (2, words([1, 3])),
        (3, words([1, 3])),
        (4, bytes(2)),
    ],
)
def test_an_index_outside_its_table_is_refused(which: int, bad: bytes) -> None:
    assert _tree.fold(*GOOD)
    with pytest.raises(ValueError, match="outside its table"):
        _tree.fold(*GOOD[:which], bad, *GOOD[which + 1 :])


def test_nodes_chosen_to_collide_in_the_hash_table_are_not_slow() -> None:
    """With a predictable hash, the author of a file can make these 65,000 collide: 4 s."""
    many = 2048
    parent = np.arange(1, many + 1, dtype=np.uint64)[:, None]
    x = (parent << np.uint64(32)) + np.arange(1, many + 1, dtype=np.uint64)
    for _ in range(2):
        x ^= x >> np.uint64(32)
        x *= np.uint64(0xD6E8FEB86659FD93)
    x ^= x >> np.uint64(32)
    first, second = np.nonzero((x & np.uint64(0x3FFFF)) < 4096)
    stacks = np.concatenate([np.arange(many), np.stack([first, second], axis=1).ravel()])
    ends = np.concatenate([np.arange(1, many + 1), many + 2 * np.arange(1, len(first) + 1)])
    folded = _tree.fold(
        bytes(4 * len(ends)),
        np.arange(len(ends), dtype="<u4").tobytes(),
        ends.astype("<u4").tobytes(),
        stacks.astype("<u4").tobytes(),
        bytes(many),
    )
    assert len(folded[1]) // 4 == 1 + many + len(first)


ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=30)


@settings(max_examples=60)
@given(st.lists(st.integers(0, 2), min_size=4, max_size=4), ROWS)
def test_pair_up_gives_the_same_in_c_and_python(
    process: list[int], rows: list[tuple[int, int]]
) -> None:
    task, stack = np.array(rows, np.uint32).reshape(-1, 2).T
    arguments = (np.array(process, np.uint32), task, stack, 3, 5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree, "HAS_EXTENSION", False)
        python = tree.pair_up(*arguments)
    native = tree.pair_up(*arguments)
    for column, expected in zip(native, python, strict=True):
        assert column.dtype == expected.dtype == np.uint32
        assert column.tolist() == expected.tolist()
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
