"""The layout of a flame graph, also of one that compares several windows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from overnight.model.flame import Folded, Frame

WIDTH, MARGIN, ROW = 1200, 12, 18
MIN_WIDTH = 0.3  # px
MAX_DEPTH = 400  # rows; 7,200 px


@dataclasses.dataclass
class Branch:
    """A frame of the tree, with its samples in each window, callees included."""

    frame: Frame
    counts: list[int]
    width: float = 0.0
    children: dict[Frame, Branch] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Box:
    """A rectangle to draw: a frame, or `hidden` frames that are too narrow for their own."""

    branch: Branch
    left: float
    width: float
    depth: int
    hidden: int = 0

    @property
    def name(self) -> str:
        """The whole name, for a tooltip."""
        frame = self.branch.frame
        if self.hidden:
            return f"{self.hidden:,} narrower frames"
        return f"{frame.name} ({frame.module})" if frame.module else frame.name


def merge(windows: Sequence[Folded], units: Sequence[float]) -> Branch:
    """Merge the stacks of all windows. A stack is as wide as the largest of its counts times its unit."""
    root = Branch(Frame("all"), [0] * len(windows))
    parents: list[tuple[Branch, Branch]] = []  # parent and child, parents first
    for number, window in enumerate(windows):
        branches: list[Branch] = []
        for node in window.nodes:
            parent = branches[node.parent] if node.parent >= 0 else root
            frame = window.frames[node.frame]
            branch = parent.children.get(frame)
            if branch is None:
                branch = parent.children[frame] = Branch(frame, [0] * len(windows))
                parents.append((parent, branch))
            branch.counts[number] += node.own
            branches.append(branch)
    for _, branch in parents:
        branch.width = max(n * unit for n, unit in zip(branch.counts, units, strict=True))
    for parent, branch in reversed(parents):
        parent.width += branch.width
        for number, n in enumerate(branch.counts):
            parent.counts[number] += n
    return root


def lay_out(root: Branch) -> tuple[list[Box], int]:
    """Return what to draw, siblings by name, and the number of frames without a box of their own."""
    if root.width <= 0:
        return [], 0
    scale = (WIDTH - 2 * MARGIN) / root.width
    boxes: list[Box] = []
    hidden = 0
    pending = [(root, float(MARGIN), 0)]
    while pending:
        branch, left, depth = pending.pop()
        boxes.append(Box(branch, left, branch.width * scale, depth))
        rest = Branch(Frame("…"), [0] * len(root.counts))
        below = 0
        for child in sorted(
            branch.children.values(), key=lambda b: (b.frame.name, b.frame.module, b.frame.kind)
        ):
            if child.width * scale < MIN_WIDTH or depth + 1 >= MAX_DEPTH:
                rest.counts = [a + b for a, b in zip(rest.counts, child.counts, strict=True)]
                rest.width += child.width
                below += _count(child)
            else:
                pending.append((child, left, depth + 1))
                left += child.width * scale
        hidden += below
        if rest.width * scale >= MIN_WIDTH:
            boxes.append(Box(rest, left, rest.width * scale, depth + 1, below))
    return boxes, hidden


def _count(branch: Branch) -> int:
    count, pending = 0, [branch]
    while pending:
        count += 1
        pending.extend(pending.pop().children.values())
    return count
