"""`overnight flame`: the stacks of a window as one tree."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from overnight.app import folded_stacks, windows
from overnight.model.flame import UNKNOWN, Folded, FrameKind
from overnight.queries import flame, labels
from overnight.reports.pictures import boxes

if TYPE_CHECKING:
    from overnight.app import pages
    from overnight.model.selection import Coverage


@dataclasses.dataclass(frozen=True)
class Request(windows.Request):
    reverse: bool = False  # callers below each function


@dataclasses.dataclass(frozen=True)
class Node:
    """A frame of the tree; `share` is of the samples."""

    depth: int
    share: float
    name: str
    kind: FrameKind


@dataclasses.dataclass(frozen=True)
class FlameGraph:
    samples: windows.Samples
    tree: flame.FlameTree
    reverse: bool = False

    @property
    def coverage(self) -> Coverage:
        return self.tree.coverage

    def nodes(self) -> Iterator[Node]:
        """Yield the nodes in preorder, the widest sibling first; unknown functions in a row are one."""
        root = boxes.merge([self._folded], [1.0])
        total = max(1, root.counts[0])
        pending = [(root, -1)]
        while pending:
            branch, depth = pending.pop()
            if depth >= 0:
                frame = branch.frame
                module = f" {frame.module}" if frame.name == UNKNOWN and frame.module else ""
                share = branch.counts[0] / total
                yield Node(depth, share, branch.label + module, FrameKind(frame.kind))
            below = sorted(branch.children.values(), key=lambda child: -child.counts[0])
            pending += [(child, depth + 1) for child in reversed(below)]

    @functools.cached_property
    def _folded(self) -> Folded:
        return folded_stacks.fold(self.samples.reader, self.tree, self.samples.title)

    def writer(self, form: str) -> pages.Writer:
        """Return a writer of the stacks in a format of `reports`: json, pprof, svg and so on."""
        write = importlib.import_module(f"overnight.reports.{form}").write
        folded = self._folded
        if form == "pprof" and not self.reverse:
            folded = folded_stacks.add_labels(folded, self.samples.ask(labels.label))
        return lambda out: write(folded, out)


def draw_flame_graph(request: Request) -> FlameGraph:
    samples = windows.open_samples(request)
    tree = samples.ask(flame.flame, reverse=request.reverse)
    tree = dataclasses.replace(tree, coverage=samples.explain(tree.coverage))
    return FlameGraph(samples, tree, request.reverse)


def make_page(request: Request) -> pages.Writer:
    """Return the viewer page, opened on the flame graph of the window."""
    from overnight.app import pages

    samples = windows.open_samples(request)
    return pages.make_page(samples, request.marks, callers=request.reverse)
