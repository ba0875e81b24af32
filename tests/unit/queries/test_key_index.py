"""Key lookup, also with colliding keys, and tree order, compared with numpy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.queries import key_index


def naive_find(wanted: npt.NDArray[np.uint64], keys: npt.NDArray[np.uint64]) -> list[int]:
    index = {key: i for i, key in enumerate(keys.tolist())}
    return [index.get(key, -1) for key in wanted.tolist()]


def random_keys(seed: int, count: int) -> npt.NDArray[np.uint64]:
    return np.random.default_rng(seed).integers(0, 2**64 - 1, count, np.uint64)


@pytest.mark.parametrize(("most", "others"), [(0, 0), (0, 5), (1, 0), (1, 1), (300, 77), (40_000, 30_000)])  # fmt: skip
def test_keys_are_found(most: int, others: int) -> None:
    keys, absent = random_keys(1, most), random_keys(2, others)
    wanted = np.concatenate([keys[::3], absent])
    assert key_index.find(wanted, keys).tolist() == naive_find(wanted, keys)


def test_colliding_keys_are_found() -> None:
    """Multiples of the inverse of each hash factor all hash to the same slots."""
    inverses = [pow(odd, -1, 2**64) for odd in key_index.ODD]
    keys = np.array(
        [i * inverse % 2**64 for inverse in inverses for i in range(2000)] + [7], np.uint64
    )
    keys = np.unique(keys)
    wanted = np.concatenate([keys[::-1], keys + np.uint64(1)])
    assert key_index.find(wanted, keys).tolist() == naive_find(wanted, keys)


@given(
    st.lists(st.tuples(st.integers(-1, 6), st.integers(0, 3) | st.integers(0, 2**62)), max_size=30)
)
def test_the_widest_comes_first_under_each_parent(rows: list[tuple[int, int]]) -> None:
    parent = np.array([row[0] for row in rows], np.int64)
    whole = np.array([row[1] for row in rows], np.int64)
    assert key_index.by_parent(parent, whole).tolist() == np.lexsort((-whole, parent)).tolist()


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_large_trees_are_ordered_too(kind: type) -> None:
    chance = np.random.default_rng(3)
    parent = chance.integers(-1, 50_000, 100_000).astype(kind)
    whole = chance.integers(0, 1_000_000, 100_000)
    assert key_index.by_parent(parent, whole).tolist() == np.lexsort((-whole, parent)).tolist()
