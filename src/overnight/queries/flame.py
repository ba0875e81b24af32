"""Flame graphs: the stacks of a window as one tree, also reversed, callers under callees."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from overnight.model.selection import Coverage, Selection, Window
from overnight.queries import key_index, reader, segment_tables
from overnight.store import tree

__all__ = ["FlameTree", "flame"]


@dataclasses.dataclass(frozen=True)
class FlameTree:
    """Nodes in preorder, without a common root.

    `whole` of the nodes without a parent adds up to `coverage.samples`.
    """

    coverage: Coverage
    names: list[str]
    modules: list[str]
    kinds: list[int]
    frame: npt.NDArray[np.int64]  # index into names, modules and kinds
    parent: npt.NDArray[np.int64]  # -1: none
    size: npt.NDArray[np.int64]  # itself and all its descendants
    own: npt.NDArray[np.int64]
    whole: npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Nodes:
    """Nodes of several segments; equal nodes have the same `key`."""

    key: npt.NDArray[np.uint64]
    above: npt.NDArray[np.uint64]  # the parent's key; 0: none
    frame: npt.NDArray[np.int64]
    own: npt.NDArray[np.int64]


class Frames:
    """Frames of several segments under one numbering."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str, int], int] = {}

    def number(
        self, names: segment_tables.Names, used: npt.NDArray[np.integer]
    ) -> npt.NDArray[np.int64]:
        """Return the common numbers of a segment's frames."""
        there = np.zeros(len(names.frame_name), bool)
        there[used] = True
        distinct = np.flatnonzero(there)
        numbers = self._numbers
        ours = [
            numbers.setdefault(frame, len(numbers))
            for frame in zip(
                names.frame_name[distinct].tolist(),
                names.frame_module[distinct].tolist(),
                names.frame_kind[distinct].tolist(),
                strict=True,
            )
        ]
        place = np.zeros(len(there), np.int64)
        place[distinct] = ours
        numbered: npt.NDArray[np.int64] = place[used]
        return numbered

    def columns(self) -> tuple[list[str], list[str], list[int]]:
        rows = list(self._numbers)
        return [r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows]


def flame(
    source: reader.Reader,
    window: Window,
    chosen: Selection | None = None,
    *,
    hosts: Iterable[str] = (),
    reverse: bool = False,
) -> FlameTree:
    """Return the stacks of a window; `reverse` merges them from the leaves, to show callers."""
    chosen = chosen or Selection()
    names = source.hosts(hosts)
    chosen = source.resolved(chosen, names, window)
    parts = list(source.parts(names, window, chosen))
    coverage = reader.coverage(names, window, parts, chosen)
    if reverse or not parts:
        frames = Frames()
        pieces = [_reversed(part, frames) for part in parts]
        return _assemble(_together(pieces), frames, coverage)
    return _upright(parts, coverage)


@dataclasses.dataclass(frozen=True)
class Preorder:
    """A tree in preorder: node i's descendants are i + 1 … i + size[i] - 1."""

    key: npt.NDArray[np.uint64]  # of the path, the same in all segments; empty for a single segment
    frame: npt.NDArray[np.int64]
    parent: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]
    own: npt.NDArray[np.int64]


def _upright(parts: list[reader.Part], coverage: Coverage) -> FlameTree:
    """Build the tree of the nodes in which samples ended, and their callers."""
    if len(parts) == 1:
        names = parts[0].names
        columns = (names.frame_name, names.frame_module, names.frame_kind)
        return _named(_kept(parts[0], with_keys=False), columns, coverage)
    numbers, columns = _numbered(parts)
    trees = []
    for part, number in zip(parts, numbers, strict=True):
        kept = _kept(part, with_keys=True)
        trees.append(dataclasses.replace(kept, frame=number[kept.frame]))
    while len(trees) > 1:  # neighbours first: each node is merged log2(segments) times
        trees = [_merged(trees[i : i + 2]) for i in range(0, len(trees), 2)]
    return _named(trees[0], columns, coverage)


_Columns = tuple[npt.NDArray[np.object_], npt.NDArray[np.object_], npt.NDArray[np.uint8]]


def _named(shown: Preorder, columns: _Columns, coverage: Coverage) -> FlameTree:
    """Keep only the names that the tree uses."""
    used = np.bincount(shown.frame, minlength=len(columns[0])) > 0
    shown = dataclasses.replace(shown, frame=(np.cumsum(used) - 1)[shown.frame])
    texts, modules, kinds = (column[used].tolist() for column in columns)
    return _widest_first(shown, texts, modules, kinds, coverage)


def _numbered(parts: list[reader.Part]) -> tuple[list[npt.NDArray[np.int64]], _Columns]:
    """Number frames the same way in all parts; return each part's numbers and the names by number."""
    known = np.zeros(0, np.uint64)
    numbers = []
    fresh_ones = []
    for part in parts:
        keys = part.names.frame_key
        number = key_index.find(keys, known)
        fresh = number < 0
        number[fresh] = np.arange(len(known), len(known) + int(fresh.sum()))
        known = np.concatenate([known, keys[fresh]])
        numbers.append(number)
        fresh_ones.append(fresh)
    columns = [
        np.concatenate([getattr(p.names, name)[f] for p, f in zip(parts, fresh_ones, strict=True)])
        for name in ("frame_name", "frame_module", "frame_kind")
    ]
    return numbers, (columns[0], columns[1], columns[2])


def _kept(part: reader.Part, *, with_keys: bool) -> Preorder:
    """Return the part's tree without subtrees that have no samples; frame numbers are the segment's."""
    names = part.names
    # Nodes with own samples before each node: the count grows over the slice of a kept subtree.
    before = np.zeros(len(names.size) + 1, np.int32)
    np.cumsum(part.own != 0, out=before[1:])
    is_kept = before[names.end] > before[:-1]
    kept = np.flatnonzero(is_kept)
    number = np.zeros(len(names.size) + 1, np.int32)  # kept nodes before each node
    np.cumsum(is_kept, out=number[1:])
    up = names.up[kept].astype(np.int64)
    return Preorder(
        key=names.hash[kept] if with_keys else np.zeros(0, np.uint64),
        frame=names.frame[kept].astype(np.int64),
        parent=np.where(up == 0, -1, number[kept - up]).astype(np.int64),
        size=number[names.end[kept]] - np.arange(len(kept)),
        own=part.own[kept],
    )


def _merged(trees: list[Preorder]) -> Preorder:
    """Merge two trees. What only the second has are whole subtrees; each is appended to the node of
    the first that it belongs under.
    """
    trees = [tree_ for tree_ in trees if len(tree_.key)] or trees[:1]
    if len(trees) == 1:
        return trees[0]
    first, second = trees
    n = len(first.key)
    found = key_index.find(second.key, first.key)
    known = found >= 0
    fresh = np.flatnonzero(~known)
    above = second.parent[fresh]
    heads = np.flatnonzero(
        (above < 0) | known[above]
    )  # roots of the subtrees, among the fresh nodes
    lengths = np.diff(np.append(heads, len(fresh)))
    under = np.where(above[heads] < 0, -1, found[above[heads]])
    at = np.where(under < 0, n, under + first.size[under])
    # Where several end at one place, the deepest node's comes first.
    order = np.lexsort((-under, at))
    lengths, at = lengths[order], np.repeat(at[order], lengths[order])
    starts = np.cumsum(lengths) - lengths
    fresh = fresh[np.repeat(heads[order] - starts, lengths) + np.arange(len(fresh))]
    place_one = np.arange(n) + np.cumsum(np.bincount(at, minlength=n)[:n])
    place_two = np.empty(len(second.key), np.int64)
    place_two[fresh] = at + np.arange(len(fresh))
    place_two[known] = place_one[found[known]]
    added = np.bincount(under[order][under[order] >= 0], lengths[under[order] >= 0], n)
    own = first.own.copy()
    own[found[known]] += second.own[known]

    def joined(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> npt.NDArray[Any]:
        column = np.empty(n + len(fresh), first.dtype)
        column[place_one] = first
        column[place_two[fresh]] = second[fresh]
        return column

    return Preorder(
        key=joined(first.key, second.key),
        frame=joined(first.frame, second.frame),
        parent=joined(
            np.where(first.parent < 0, -1, place_one[first.parent]),
            np.where(second.parent < 0, -1, place_two[second.parent]),
        ),
        size=joined(
            first.size + tree.subtree_sums(added.astype(np.int64), first.size), second.size
        ),
        own=joined(own, second.own),
    )


def _widest_first(
    shown: Preorder,
    names: list[str],
    modules: list[str],
    kinds: list[int],
    coverage: Coverage,
) -> FlameTree:
    place = _places(shown.parent, shown.size, tree.subtree_sums(shown.own, shown.size))
    order = np.empty(len(place), np.int64)
    order[place] = np.arange(len(place))
    above = shown.parent[order]
    own, size = shown.own[order], shown.size[order]
    return FlameTree(
        coverage=coverage,
        names=names,
        modules=modules,
        kinds=kinds,
        frame=shown.frame[order],
        parent=np.where(above >= 0, place[above], -1),
        size=size,
        own=own,
        whole=tree.subtree_sums(own, size),
    )


def _places(
    parent: npt.NDArray[np.int64], size: npt.NDArray[np.int64], whole: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return each node's new place in preorder, the widest sibling first."""
    n = len(parent)
    # Most nodes are an only child, right after their parent.
    several = np.flatnonzero(np.bincount(parent + 1, minlength=n + 1)[parent + 1] > 1)
    order = several[key_index.by_parent(parent[several], whole[several])]
    before = np.cumsum(size[order]) - size[order]
    begins = np.flatnonzero(np.diff(parent[order], prepend=-2))
    before -= np.repeat(before[begins], np.diff(np.append(begins, len(order))))
    step = np.zeros(n, np.int64)
    step[order] = before
    step[parent >= 0] += 1
    # A node's place is the sum of the steps down to it; each step applies to its node's whole subtree.
    edges = np.append(step, 0) - np.bincount(np.arange(n) + size, step, n + 1).astype(np.int64)
    placed: npt.NDArray[np.int64] = np.cumsum(edges[:n])
    return placed


def _reversed(part: reader.Part, frames: Frames) -> Nodes:
    """Walk from each leaf to its process, level by level; equal prefixes share a node."""
    names = part.names
    at = np.flatnonzero(part.own)
    weight = part.own[at]
    numbered = frames.number(names, names.frame)
    key = np.zeros(len(at), np.uint64)
    pieces: list[Nodes] = []
    while len(at):
        frame = numbered[at]
        above = key
        key = _hash(above, frame.astype(np.uint64))
        last = names.up[at] == 0
        pieces.append(Nodes(key, above, frame, np.where(last, weight, 0)))
        going = ~last
        at = (at - names.up[at])[going]
        key, weight = key[going], weight[going]
    return _together(pieces)


def _hash(above: npt.NDArray[np.uint64], frame: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return a path's key from its parent's; frame numbers are those of this query."""
    x: npt.NDArray[np.uint64] = above * np.uint64(0x9E3779B97F4A7C15) ^ (
        frame + np.uint64(1)
    ) * np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(32)
    x *= np.uint64(0xD6E8FEB86659FD93)
    x ^= x >> np.uint64(29)
    x |= np.uint64(1)
    return x


def _together(pieces: list[Nodes]) -> Nodes:
    """Return one node per key, own samples added up."""
    if not pieces:
        empty = np.zeros(0, np.int64)
        return Nodes(empty.astype(np.uint64), empty.astype(np.uint64), empty, empty)
    key, first, inverse = np.unique(
        np.concatenate([piece.key for piece in pieces]), return_index=True, return_inverse=True
    )
    own = np.bincount(inverse, np.concatenate([piece.own for piece in pieces]), len(key))
    return Nodes(
        key,
        np.concatenate([piece.above for piece in pieces])[first],
        np.concatenate([piece.frame for piece in pieces])[first],
        own.astype(np.int64),
    )


def _assemble(nodes: Nodes, frames: Frames, coverage: Coverage) -> FlameTree:
    """Build a tree in preorder from nodes by key, the widest child first."""
    n = len(nodes.key)
    parent = np.searchsorted(nodes.key, nodes.above)
    parent = np.where(nodes.above == 0, -1, parent).astype(np.int64)
    depth = _depths(parent)
    whole, size = nodes.own.copy(), np.ones(n, np.int64)
    levels = [np.flatnonzero(depth == d) for d in range(int(depth.max(initial=-1)) + 1)]
    for level in reversed(levels[1:]):
        np.add.at(whole, parent[level], whole[level])
        np.add.at(size, parent[level], size[level])
    place = np.zeros(n, np.int64)
    for level in levels:
        order = level[np.lexsort((-whole[level], parent[level]))]
        before = np.cumsum(size[order]) - size[order]
        above = parent[order]
        begins = (
            np.concatenate([[True], above[1:] != above[:-1]]) if len(order) else np.zeros(0, bool)
        )
        # Within each parent's children: how many nodes precede this one.
        start = np.repeat(before[begins], np.diff(np.append(np.flatnonzero(begins), len(order))))
        place[order] = before - start + np.where(above >= 0, place[above] + 1, 0)
    order = np.empty(n, np.int64)
    order[place] = np.arange(n)
    names, modules, kinds = frames.columns()
    return FlameTree(
        coverage=coverage,
        names=names,
        modules=modules,
        kinds=kinds,
        frame=nodes.frame[order],
        parent=np.where(parent[order] >= 0, place[parent[order]], -1),
        size=size[order],
        own=nodes.own[order],
        whole=whole[order],
    )


def _depths(parent: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return each node's distance from its root, by pointer jumping."""
    n = len(parent)
    leap = np.append(np.where(parent < 0, n, parent), n)  # the last entry is above all roots
    depth = np.append((parent >= 0).astype(np.int64), 0)
    while (leap[:n] < n).any():
        depth = depth + depth[leap]
        leap = leap[leap]
    return depth[:n]
