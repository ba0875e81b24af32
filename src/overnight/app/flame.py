"""`overnight flame`: the stacks of a window as one tree."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from overnight.app import folded_stacks, windows
from overnight.queries import flame, labels

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
    module: str
    kind: int  # as in model.flame


@dataclasses.dataclass(frozen=True)
class FlameGraph:
    samples: windows.Samples
    tree: flame.FlameTree
    reverse: bool = False

    @property
    def coverage(self) -> Coverage:
        return self.tree.coverage

    def nodes(self) -> Iterator[Node]:
        """Yield the nodes in preorder."""
        tree = self.tree
        total = max(1, tree.coverage.samples)
        depths: list[int] = []
        columns = zip(tree.parent.tolist(), tree.frame.tolist(), tree.whole.tolist(), strict=True)
        for parent, frame, whole in columns:
            depths.append(depths[parent] + 1 if parent >= 0 else 0)
            yield Node(
                depths[-1], whole / total, tree.names[frame], tree.modules[frame], tree.kinds[frame]
            )

    def writer(self, form: str) -> pages.Writer:
        """Return a writer of the stacks in a format of `reports`: json, pprof, svg and so on."""
        write = importlib.import_module(f"overnight.reports.{form}").write
        folded = folded_stacks.fold(self.samples.reader, self.tree, self.samples.title)
        if form == "pprof" and not self.reverse:
            folded = folded_stacks.add_labels(folded, self.samples.ask(labels.label))
        return lambda out: write(folded, out)


def draw_flame_graph(request: Request) -> FlameGraph:
    samples = windows.open_samples(request)
    return FlameGraph(samples, samples.ask(flame.flame, reverse=request.reverse), request.reverse)


def make_page(request: Request) -> pages.Writer:
    """Return the viewer page, opened on the flame graph of the window."""
    from overnight.app import pages

    samples = windows.open_samples(request)
    return pages.make_page(samples, request.marks, callers=request.reverse)
