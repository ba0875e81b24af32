"""The layout of a flame graph, also of one that compares several windows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from overnight.model.flame import UNKNOWN, Folded, Frame

WIDTH, MARGIN, ROW = 1200, 12, 18
MIN_WIDTH = 0.3  # px
MAX_ROWS = 400  # 7,200 px


@dataclasses.dataclass
class Branch:
    """A frame of the tree, with its samples in each window, callees included."""

    frame: Frame
    counts: list[int]
    width: float = 0.0
    run: int = 1  # unknown frames in a row that it stands for, at most
    children: dict[Frame, Branch] = dataclasses.field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"{self.frame.name} x{self.run}" if self.run > 1 else self.frame.name


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
        branch, module = self.branch, self.branch.frame.module
        if self.hidden:
            return f"{self.hidden:,} frames that are not drawn"
        folded = f", up to {branch.run} unknown frames in a row" if branch.run > 1 else ""
        return branch.frame.name + (f" ({module})" if module else "") + folded


@dataclasses.dataclass(frozen=True)
class Layout:
    """What to draw, and what has no box of its own: too narrow, or above the last row."""

    boxes: list[Box]
    rows: int
    narrow: int = 0
    cut: int = 0
    cut_share: float = 0.0  # of the width

    def list_hidden(self) -> list[str]:
        lines = []
        if self.narrow:
            lines.append(f"{self.narrow:,} frames are narrower than {MIN_WIDTH} px: neighbours share a box")  # fmt: skip
        if self.cut:
            lines.append(f"cut at row {self.rows - 1}: {self.cut:,} frames above it, {100 * self.cut_share:.3g} % of the width, are not drawn")  # fmt: skip
        return lines


def merge(windows: Sequence[Folded], units: Sequence[float]) -> Branch:
    """Merge the stacks of all windows. A stack is as wide as the largest of its counts times its unit."""
    root = Branch(Frame("all"), [0] * len(windows))
    parents: list[tuple[Branch, Branch]] = []  # parent and child, parents first
    for number, window in enumerate(windows):
        branches: list[Branch] = []
        runs: list[int] = []
        for node in window.nodes:
            parent = branches[node.parent] if node.parent >= 0 else root
            frame = window.frames[node.frame]
            above = parent.frame
            # Unknown frames in a row become one: they differ in nothing, and fill the picture.
            is_run = frame.name == UNKNOWN == above.name and frame.kind == above.kind
            branch = parent if is_run else parent.children.get(frame)
            if branch is None:
                branch = parent.children[frame] = Branch(frame, [0] * len(windows))
                parents.append((parent, branch))
            runs.append(runs[node.parent] + 1 if is_run else 1)
            branch.run = max(branch.run, runs[-1])
            branch.counts[number] += node.own
            branches.append(branch)
    for _, branch in parents:
        branch.width = max(n * unit for n, unit in zip(branch.counts, units, strict=True))
    for parent, branch in reversed(parents):
        parent.width += branch.width
        for number, n in enumerate(branch.counts):
            parent.counts[number] += n
    return root


def lay_out(root: Branch, max_rows: int = MAX_ROWS) -> Layout:
    """Return what to draw, siblings by name."""
    if root.width <= 0:
        return Layout([], 1)
    scale = (WIDTH - 2 * MARGIN) / root.width
    boxes: list[Box] = []
    narrow = cut = 0
    cut_width = 0.0
    pending = [(root, float(MARGIN), 0)]
    while pending:
        branch, left, depth = pending.pop()
        boxes.append(Box(branch, left, branch.width * scale, depth))
        rest = Branch(Frame("…"), [0] * len(root.counts))
        below = 0
        for child in sorted(
            branch.children.values(), key=lambda b: (b.frame.name, b.frame.module, b.frame.kind)
        ):
            is_cut = depth + 1 >= max_rows
            if is_cut or child.width * scale < MIN_WIDTH:
                rest.counts = [a + b for a, b in zip(rest.counts, child.counts, strict=True)]
                rest.width += child.width
                frames = _count(child)
                below += frames
                narrow, cut = (narrow, cut + frames) if is_cut else (narrow + frames, cut)
                cut_width += child.width * is_cut
            else:
                pending.append((child, left, depth + 1))
                left += child.width * scale
        if rest.width * scale >= MIN_WIDTH:
            boxes.append(Box(rest, left, rest.width * scale, depth + 1, below))
    rows = 1 + max(box.depth for box in boxes)
    return Layout(boxes, rows, narrow, cut, cut_width / root.width)


def _count(branch: Branch) -> int:
    count, pending = 0, [branch]
    while pending:
        count += 1
        pending.extend(pending.pop().children.values())
    return count
