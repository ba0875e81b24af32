"""Flame graphs: the stacks of a window as one tree, or turned around, callers under callees."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from overnight.model import selection
from overnight.queries import reader
from overnight.store import tree

__all__ = ["FlameTree", "flame"]


@dataclasses.dataclass(frozen=True)
class FlameTree:
    """Nodes in preorder; the root of all is not among them. Sizes are samples.

    `whole` of the nodes without a parent adds up to `coverage.samples`.
    """

    coverage: selection.Coverage
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
    """Nodes of several segments, thrown together; `key` says which are the same."""

    key: npt.NDArray[np.uint64]
    above: npt.NDArray[np.uint64]  # the parent's key; 0: none
    frame: npt.NDArray[np.int64]
    own: npt.NDArray[np.int64]


class Frames:
    """Frames of several segments under one numbering."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str, int], int] = {}

    def number(self, names: reader.Names, used: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """Our numbers for a segment's frames."""
        distinct, inverse = np.unique(used, return_inverse=True)
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
        return np.array(ours, np.int64)[inverse]

    def columns(self) -> tuple[list[str], list[str], list[int]]:
        """Names, modules, kinds."""
        rows = list(self._numbers)
        return [r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows]


def flame(
    source: reader.Reader,
    window: selection.Window,
    chosen: selection.Selection | None = None,
    *,
    hosts: Iterable[str] = (),
    reverse: bool = False,
) -> FlameTree:
    """The stacks of a window; `reverse` merges them from the leaves: who calls this."""
    chosen = chosen or selection.Selection()
    names = source.hosts(hosts)
    parts = list(source.parts(names, window, chosen))
    if len(parts) == 1 and not reverse:
        return _alone(parts[0], reader.coverage(names, window, parts, chosen))
    frames = Frames()
    pieces = [(_reversed if reverse else _upright)(part, frames) for part in parts]
    return _assemble(_together(pieces), frames, reader.coverage(names, window, parts, chosen))


def _alone(part: reader.Part, coverage: selection.Coverage) -> FlameTree:
    """The tree of one segment: it is in preorder already, so running totals do for loops."""
    names = part.names
    kept = np.flatnonzero(_running_sums(part.own, names.size))
    n = len(kept)
    number = np.zeros(len(names.size) + 1, np.int64)  # how many are kept before each node
    number[kept + 1] = 1
    np.cumsum(number, out=number)
    up = names.up[kept].astype(np.int64)
    parent = np.where(up == 0, -1, number[kept - up])
    size = number[kept + names.size[kept]] - np.arange(n)
    own = part.own[kept]
    place = _places(parent, size, _running_sums(own, size))
    order = np.empty(n, np.int64)
    order[place] = np.arange(n)
    used = np.bincount(names.frame[kept], minlength=len(names.frame_name)) > 0
    frame = (np.cumsum(used) - 1)[names.frame[kept]]
    above = parent[order]
    own, size = own[order], size[order]
    return FlameTree(
        coverage=coverage,
        names=names.frame_name[used].tolist(),
        modules=names.frame_module[used].tolist(),
        kinds=names.frame_kind[used].tolist(),
        frame=frame[order],
        parent=np.where(above >= 0, place[above], -1),
        size=size,
        own=own,
        whole=_running_sums(own, size),
    )


def _running_sums(
    own: npt.NDArray[np.int64], size: npt.NDArray[np.integer]
) -> npt.NDArray[np.int64]:
    return tree.subtree_sums(own, size.astype(np.uint32, copy=False))


def _places(
    parent: npt.NDArray[np.int64], size: npt.NDArray[np.int64], whole: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Where each node of a preorder goes when the widest of siblings is to come first."""
    n = len(parent)
    order = np.lexsort((-whole, parent))
    before = np.cumsum(size[order]) - size[order]
    begins = np.flatnonzero(np.diff(parent[order], prepend=-2))
    before -= np.repeat(before[begins], np.diff(np.append(begins, n)))
    step = np.empty(n, np.int64)
    step[order] = before
    step[parent >= 0] += 1
    # Its place is the sum of the steps down to it: each counts from its node to its slice's end.
    edges = np.append(step, 0) - np.bincount(np.arange(n) + size, step, n + 1).astype(np.int64)
    places: npt.NDArray[np.int64] = np.cumsum(edges[:n])
    return places


def _upright(part: reader.Part, frames: Frames) -> Nodes:
    """The nodes in which samples ended, and all above them."""
    whole = tree.subtree_sums(part.own, part.names.size)
    kept = np.flatnonzero(whole)
    up = part.names.up[kept]
    above = part.names.hash[kept - up]
    above[up == 0] = 0
    return Nodes(
        part.names.hash[kept],
        above,
        frames.number(part.names, part.names.frame[kept]),
        part.own[kept],
    )


def _reversed(part: reader.Part, frames: Frames) -> Nodes:
    """Paths from each leaf to its process, level by level; equal prefixes share a node."""
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
    """A path's key from its parent's; the frames' numbers are those of one answer."""
    x: npt.NDArray[np.uint64] = above * np.uint64(0x9E3779B97F4A7C15) ^ (
        frame + np.uint64(1)
    ) * np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(32)
    x *= np.uint64(0xD6E8FEB86659FD93)
    x ^= x >> np.uint64(29)
    x |= np.uint64(1)
    return x


def _together(pieces: list[Nodes]) -> Nodes:
    """One node for each key, its own samples added up."""
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


def _assemble(nodes: Nodes, frames: Frames, coverage: selection.Coverage) -> FlameTree:
    """Nodes by key become a tree in preorder, the widest child first."""
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
        # Within each parent's children: how much of it stands before this one.
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
    """Each node's distance from its root, by leaps that double."""
    n = len(parent)
    leap = np.append(np.where(parent < 0, n, parent), n)  # the place behind the last is above all
    depth = np.append((parent >= 0).astype(np.int64), 0)
    while (leap[:n] < n).any():
        depth = depth + depth[leap]
        leap = leap[leap]
    return depth[:n]
