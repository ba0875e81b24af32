"""Trees compared with those built in the slow, obvious way."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overnight.store import capture, tree

if tree.HAS_EXTENSION:
    from overnight.store import _tree

ROOTS = 3
FRAMES = 6
stacks_of = st.lists(
    st.lists(st.integers(0, FRAMES - 1), max_size=7), min_size=1, max_size=8
)  # few frames: recursion and shared beginnings are common
pairs_of = st.lists(st.tuples(st.integers(0, ROOTS - 1), st.integers(0, 7)), max_size=20)


def arrays(pairs: list[tuple[int, int]], stacks: list[list[int]]) -> tuple[bytes, ...]:
    return (
        np.array([FRAMES + root for root, _ in pairs], "<u4").tobytes(),
        np.array([stack % len(stacks) for _, stack in pairs], "<u4").tobytes(),
        np.cumsum([len(stack) for stack in stacks]).astype("<u4").tobytes(),
        np.array([frame for stack in stacks for frame in stack], "<u4").tobytes(),
        bytes(1 + 16 * (i == 2) for i in range(FRAMES + ROOTS)),
    )


def folded(pairs: list[tuple[int, int]], stacks: list[list[int]]) -> tree.Tree:
    types = ("<u4", "<u4", "<u4", "<u4", "<u1")
    columns = tree.fold_in_python(*arrays(pairs, stacks))
    return tree.Tree(*(np.frombuffer(c, t) for c, t in zip(columns, types, strict=True)))


def path_of(nodes: tree.Tree, node: int) -> tuple[int, ...]:
    path = [int(nodes.frame[node])]
    while nodes.up[node]:
        node -= int(nodes.up[node])
        path.append(int(nodes.frame[node]))
    return tuple(reversed(path))


@pytest.mark.skipif(not tree.HAS_EXTENSION, reason="installed without the extension")
@given(pairs_of, stacks_of)
@settings(max_examples=150)
def test_the_extension_and_python_agree(
    pairs: list[tuple[int, int]], stacks: list[list[int]]
) -> None:
    inputs = arrays(pairs, stacks)
    assert _tree.fold(*inputs) == tree.fold_in_python(*inputs)


@given(pairs_of, stacks_of)
def test_nodes_are_in_preorder_and_each_path_appears_once(
    pairs: list[tuple[int, int]], stacks: list[list[int]]
) -> None:
    nodes = folded(pairs, stacks)
    paths = [path_of(nodes, node) for node in range(len(nodes.frame))]
    assert len(set(paths)) == len(paths)
    for node, path in enumerate(paths):
        below = [i for i, other in enumerate(paths) if other[: len(path)] == path]
        assert below == list(range(node, node + int(nodes.size[node])))
    for (root, stack), leaf in zip(pairs, nodes.leaf.tolist(), strict=True):
        assert paths[leaf] == (FRAMES + root, *stacks[stack % len(stacks)])
    assert not tree.is_torn(nodes.up, nodes.size)


@given(pairs_of, stacks_of, st.randoms(use_true_random=False))
def test_the_key_of_a_path_does_not_depend_on_numbering(pairs, stacks, chance) -> None:
    names = [f"f{i}" for i in range(FRAMES + ROOTS)]
    order = list(range(FRAMES))
    chance.shuffle(order)
    key_of = {name: np.random.default_rng(i).bytes(8) for i, name in enumerate(names)}

    def keys_of(number: list[int], chosen: list[tuple[int, int]]) -> dict[tuple[str, ...], int]:
        new_names = [""] * FRAMES
        for frame, place in enumerate(number):
            new_names[place] = names[frame]
        new_names += names[FRAMES:]
        renumbered = [[number[frame] for frame in stack] for stack in stacks]
        own = np.frombuffer(b"".join(key_of[name] for name in new_names), "<u8")
        nodes = tree.fold_capture(
            np.array([FRAMES + root for root, _ in chosen], np.uint32),
            np.array([stack % len(stacks) for _, stack in chosen], np.uint32),
            capture.Stacks(
                np.cumsum([0, *map(len, renumbered)]).astype(np.uint32),
                np.array([f for stack in renumbered for f in stack], np.uint32),
            ),
            np.zeros(len(new_names), np.uint8),
        )
        parent = np.arange(len(nodes.up)) - nodes.up
        keys = tree.path_keys(own[nodes.frame], parent, nodes.size).tolist()
        return {
            tuple(new_names[frame] for frame in path_of(nodes, node)): keys[node]
            for node in range(len(nodes.frame))
        }

    shuffled = list(pairs)
    chance.shuffle(shuffled)
    plain = keys_of(list(range(FRAMES)), pairs)
    assert plain == keys_of(order, shuffled)
    assert len(set(plain.values())) == len(plain)


def test_flags_of_frames() -> None:
    names = ["pv_native_safe_halt", "handle_softirqs", "tcp_sendmsg", "pv_native_safe_halt", "halt"]
    flags = tree.frame_flags(names, np.array([1, 1, 1, 0, 0], np.uint8)).tolist()
    assert flags == [tree.KERNEL | tree.IDLE, tree.KERNEL | tree.SOFTIRQ, tree.KERNEL, 0, 0]


@given(pairs_of, stacks_of)
def test_only_the_high_half_of_flags_is_passed_down(
    pairs: list[tuple[int, int]], stacks: list[list[int]]
) -> None:
    nodes = folded(pairs, stacks)
    for node in range(len(nodes.frame)):
        inherited = 2 in path_of(nodes, node)
        assert int(nodes.flags[node]) == 1 + 16 * inherited


@given(pairs_of, stacks_of)
def test_outermost_nodes_have_no_ancestor_of_their_frame(
    pairs: list[tuple[int, int]], stacks: list[list[int]]
) -> None:
    nodes = folded(pairs, stacks)
    expected = [
        path_of(nodes, node)[-1] not in path_of(nodes, node)[:-1]
        for node in range(len(nodes.frame))
    ]
    assert tree.outermost(nodes.frame, nodes.size).tolist() == expected


@given(pairs_of, stacks_of, st.data())
def test_subtree_sums(pairs, stacks, data) -> None:
    nodes = folded(pairs, stacks)
    n = len(nodes.frame)
    own = data.draw(st.lists(st.integers(0, 1 << 50), min_size=n, max_size=n))
    paths = [path_of(nodes, node) for node in range(n)]
    expected = [sum(own[i] for i in range(n) if paths[i][: len(path)] == path) for path in paths]
    assert tree.subtree_sums(np.array(own, np.int64), nodes.size).tolist() == expected


@pytest.mark.parametrize(
    ("up", "size"),
    [
        ([1], [1]), ([0, 2], [2, 1]), ([0, 1], [2, 2]), ([0, 1], [1, 1]), ([0], [0]),
        ([0, 1, 0], [3, 2, 1]), ([0, 1, 2], [3, 2, 1]), ([0], [2]),
    ],
    ids=[
        "no parent", "parent before all", "beyond the end", "outside its parent", "no size",
        "root in a subtree", "in the subtree of a sibling", "fewer nodes than its size",
    ],
)  # fmt: skip
def test_invalid_trees_are_detected(up: list[int], size: list[int]) -> None:
    assert tree.is_torn(np.array(up, np.uint32), np.array(size, np.uint32))


@pytest.mark.skipif(not tree.HAS_EXTENSION, reason="installed without the extension")
@pytest.mark.parametrize("place", range(5))
def test_the_extension_refuses_indices_outside_their_tables(place: int) -> None:
    good = list(arrays([(0, 0), (1, 1)], [[0, 1], [2]]))
    _tree.fold(*good)
    if place == 4:
        good[place] = good[place][:7]
    else:
        good[place] = b"\xff" * 4 + good[place][4:]
    with pytest.raises(ValueError, match="outside its table"):
        _tree.fold(*good)
