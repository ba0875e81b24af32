"""Flame graphs: the stacks of a window as one tree, also reversed, callers under callees."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from overnight.model.selection import Coverage, Selection, Window
from overnight.queries import key_index, reader, segment_tables, unknown
from overnight.store import tree

Integers = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class FlameTree:
    """Nodes in preorder, the widest sibling first, without a common root."""

    coverage: Coverage
    names: list[str]
    modules: list[str]
    kinds: list[int]
    frame: Integers  # index into names, modules and kinds
    parent: Integers  # -1: none
    size: Integers  # itself and all its descendants
    own: Integers
    whole: Integers  # of nodes without a parent, it adds up to `coverage.samples`


@dataclasses.dataclass(frozen=True)
class Preorder:
    """A tree in preorder: node i's descendants are i + 1 … i + size[i] - 1."""

    key: npt.NDArray[np.uint64]  # of the path, the same in all segments; empty for a single segment
    frame: Integers  # a number of segment_tables.Frames
    parent: Integers
    size: Integers
    own: Integers


def flame(
    source: reader.Reader,
    window: Window,
    chosen: Selection = Selection(),
    *,
    hosts: Iterable[str] = (),
    reverse: bool = False,
) -> FlameTree:
    """Return the stacks of a window; `reverse` merges them from the leaves, to show callers."""
    names = source.hosts(hosts)
    chosen = source.resolved(chosen, names, window)
    parts = list(source.parts(names, window, chosen))
    frames = segment_tables.Frames()
    trees = [_prune(part, frames, with_keys=len(parts) > 1) for part in parts]
    while len(trees) > 1:  # neighbours first: each node is merged log2(segments) times
        trees = [_merge(trees[i : i + 2]) for i in range(0, len(trees), 2)]
    none = np.zeros(0, np.int64)
    stacks = trees[0] if trees else Preorder(none.astype(np.uint64), none, none, none, none)
    if reverse:
        stacks = _reverse(stacks)
    place = _widest_first(stacks)
    order = np.empty(len(place), np.int64)
    order[place] = np.arange(len(place))
    above, own, size = stacks.parent[order], stacks.own[order], stacks.size[order]
    coverage = source.cover_parts(names, window, parts, chosen)
    return FlameTree(
        dataclasses.replace(coverage, unknown=unknown.measure(parts)),
        *frames.columns(),
        frame=stacks.frame[order],
        parent=np.where(above >= 0, place[above], -1),
        size=size,
        own=own,
        whole=tree.subtree_sums(own, size),
    )


def _prune(part: reader.Part, frames: segment_tables.Frames, *, with_keys: bool) -> Preorder:
    """Return the part's nodes in which samples ended, and their callers."""
    names = part.names
    # Nodes with own samples before each node: the count grows over the slice of a kept subtree.
    before = np.zeros(len(names.size) + 1, np.int32)
    np.cumsum(part.own != 0, out=before[1:])
    is_kept = before[names.end] > before[:-1]
    kept = np.flatnonzero(is_kept)
    number = np.zeros(len(names.size) + 1, np.int32)  # kept nodes before each node
    np.cumsum(is_kept, out=number[1:])
    up = names.up[kept].astype(np.int64)
    frame = names.frame[kept]
    parent = np.where(up == 0, -1, number[kept - up]).astype(np.int64)
    size = number[names.end[kept]] - np.arange(len(kept))
    return Preorder(
        key=tree.path_keys(names.frame_key[frame], parent, size)
        if with_keys
        else np.zeros(0, np.uint64),
        frame=frames.number(names, frame),
        parent=parent,
        size=size,
        own=part.own[kept],
    )


def _merge(trees: list[Preorder]) -> Preorder:
    """Merge two trees: append each subtree that only the second has to its parent in the first."""
    trees = [each for each in trees if len(each.key)] or trees[:1]
    if len(trees) == 1:
        return trees[0]
    first, second = trees
    n = len(first.key)
    match = key_index.find(second.key, first.key)
    known = match >= 0
    fresh = np.flatnonzero(~known)
    above = second.parent[fresh]
    heads = np.flatnonzero((above < 0) | known[above])  # subtree roots, among the fresh nodes
    lengths = np.diff(np.append(heads, len(fresh)))
    under = np.where(above[heads] < 0, -1, match[above[heads]])
    at = np.where(under < 0, n, under + first.size[under])
    # Where several end at one place, the deepest node's comes first.
    order = np.lexsort((-under, at))
    lengths, at = lengths[order], np.repeat(at[order], lengths[order])
    starts = np.cumsum(lengths) - lengths
    fresh = fresh[np.repeat(heads[order] - starts, lengths) + np.arange(len(fresh))]
    place_one = np.arange(n) + np.cumsum(np.bincount(at, minlength=n)[:n])
    place_two = np.empty(len(second.key), np.int64)
    place_two[fresh] = at + np.arange(len(fresh))
    place_two[known] = place_one[match[known]]
    added = np.bincount(under[order][under[order] >= 0], lengths[under[order] >= 0], n)
    own = first.own.copy()
    own[match[known]] += second.own[known]

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


def _reverse(stacks: Preorder) -> Preorder:
    """Walk from each leaf to its process, level by level; equal beginnings share a node."""
    at = np.flatnonzero(stacks.own)
    weight, node = stacks.own[at], np.full(len(at), -1, np.int64)
    width = int(stacks.frame.max(initial=0)) + 1
    parents, frames, owns, edges = [], [], [], [0]
    while len(at):
        last = stacks.parent[at] < 0
        key, index = np.unique((node + 1) * width + stacks.frame[at], return_inverse=True)
        parents.append(key // width - 1)
        frames.append(key % width)
        owns.append(np.bincount(index, np.where(last, weight, 0), len(key)).astype(np.int64))
        node = (index + edges[-1])[~last]
        at, weight = stacks.parent[at[~last]], weight[~last]
        edges.append(edges[-1] + len(key))
    if not parents:
        return stacks
    parent = np.concatenate(parents)
    levels = [slice(*edge) for edge in itertools.pairwise(edges)]
    size = np.ones(len(parent), np.int64)
    for level in reversed(levels[1:]):
        np.add.at(size, parent[level], size[level])
    # Any order of siblings will do here.
    place = _steps(parent, size, size)
    for level in levels[1:]:
        place[level] += place[parent[level]]
    order = np.empty(len(place), np.int64)
    order[place] = np.arange(len(place))
    above = parent[order]
    return Preorder(
        key=stacks.key,
        frame=np.concatenate(frames)[order],
        parent=np.where(above >= 0, place[above], -1),
        size=size[order],
        own=np.concatenate(owns)[order],
    )


def _widest_first(stacks: Preorder) -> Integers:
    """Return each node's new place in preorder, the widest sibling first."""
    n, size = len(stacks.size), stacks.size
    step = _steps(stacks.parent, size, tree.subtree_sums(stacks.own, size))
    # A node's place is the sum of the steps down to it; each step applies to its node's whole subtree.
    edges = np.append(step, 0) - np.bincount(np.arange(n) + size, step, n + 1).astype(np.int64)
    place: Integers = np.cumsum(edges[:n])
    return place


def _steps(parent: Integers, size: Integers, width: Integers) -> Integers:
    """Return each node's distance from its parent in preorder, the widest sibling first."""
    # Most nodes are an only child, right after their parent.
    several = np.flatnonzero(np.bincount(parent + 1, minlength=len(parent) + 1)[parent + 1] > 1)
    order = several[key_index.by_parent(parent[several], width[several])]
    before = np.cumsum(size[order]) - size[order]
    begins = np.flatnonzero(np.diff(parent[order], prepend=-2))
    before -= np.repeat(before[begins], np.diff(np.append(begins, len(order))))
    step = np.zeros(len(parent), np.int64)
    step[order] = before
    step[parent >= 0] += 1
    return step
