"""Two windows as one differential flame graph: SVG without scripts, for light and dark.

A frame is as wide as the larger of its two rates, so that what vanished keeps its place; its colour is
the change, relative to that, and grey where it may be chance.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import BinaryIO

from overnight.model import times
from overnight.model.flame import Folded, Frame
from overnight.reports import svg
from overnight.reports.pictures import colours

__all__ = ["SUFFIX", "Compared", "write_difference"]

SUFFIX = ".svg"

WIDTH, MARGIN, ROW, LINE = 1200, 12, 18, 16
NARROWEST, OUTLINED = 0.3, 5  # px
DEPTH_LIMIT = 400  # rows
MIDDLE = 8


@dataclasses.dataclass(frozen=True)
class Compared:
    """A window, its baseline, and the samples that all cores would have made in each; 0: not known."""

    now: Folded
    before: Folded
    capacity: float
    base_capacity: float
    about: str = ""

    @property
    def units(self) -> tuple[float, float]:
        """What a sample of each counts: a share of the cores' time, or of the samples."""
        if self.capacity and self.base_capacity:
            return 1 / self.capacity, 1 / self.base_capacity
        return 1 / (self.now.total or 1), 1 / (self.before.total or 1)

    @property
    def denominator(self) -> str:
        """What the shares are of."""
        known = self.capacity and self.base_capacity
        return "of the cores' time" if known else "of the samples"


@dataclasses.dataclass
class _Node:
    frame: Frame
    now: int = 0
    before: int = 0
    width: float = 0.0
    above: dict[Frame, _Node] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class _Box:
    """A rectangle to draw: a frame, or `hidden` ones too narrow for their own."""

    node: _Node
    left: float
    width: float
    depth: int
    hidden: int = 0


def write_difference(compared: Compared, file: BinaryIO) -> None:
    """The picture, roots at the bottom, brothers in the order of their names."""
    root = _tree(compared)
    boxes, hidden = _layout(root) if root.width > 0 else ([], 0)
    rows = 1 + max((box.depth for box in boxes), default=0)
    foot = [*dict.fromkeys((*compared.now.notes, *compared.before.notes))]
    foot.append(
        "a frame is as wide as the larger of its two shares; grey: the change may be chance (95 %)"
    )
    if hidden:
        foot.append(f"{hidden:,} frames are too narrow or too deep to be drawn")
    if lost := compared.now.lost + compared.before.lost:
        foot.append(f"{lost:,} samples were lost")
    head = [
        f"A  {_window(compared.now, compared.capacity)}",
        f"B  {_window(compared.before, compared.base_capacity)}",
        *([compared.about] if compared.about else []),
    ]
    base = 34 + LINE * (len(head) + 1) + 14 + rows * ROW
    height = base + MARGIN + LINE * len(foot) + MARGIN
    _write(file, _opening(compared, height, head), *_key(34 + LINE * len(head)))
    _write(file, *(_draw(box, base, compared) for box in boxes))
    if not boxes:
        _write(file, f'<text x="{MARGIN}" y="{base}">no samples</text>')
    for number, line in enumerate(foot, 1):
        y = base + MARGIN + LINE * number - 4
        _write(file, f'<text class="s" x="{MARGIN}" y="{y}">{svg.safe(line)}</text>')
    _write(file, "</svg>")


def _write(file: BinaryIO, *lines: str) -> None:
    file.writelines(f"{line}\n".encode("utf-8", "replace") for line in lines)


def _tree(compared: Compared) -> _Node:
    unit, base_unit = compared.units
    root = _Node(Frame("all"))
    ends: dict[int, list[float]] = {}  # by node: the samples that end in it, now and before
    paths: dict[int, list[_Node]] = {}
    for which, folded in enumerate((compared.now, compared.before)):
        for stack in folded.stacks:
            path = [root]
            for frame in stack.frames:
                path.append(path[-1].above.setdefault(frame, _Node(frame)))
            for node in path:
                if which:
                    node.before += stack.count
                else:
                    node.now += stack.count
            paths[id(path[-1])] = path
            ends.setdefault(id(path[-1]), [0.0, 0.0])[which] += stack.count
    for number, (now, before) in ends.items():
        wide = max(now * unit, before * base_unit)
        for node in paths[number]:
            node.width += wide
    return root


def _layout(root: _Node) -> tuple[list[_Box], int]:
    """What to draw, and how many frames have no box of their own."""
    scale = (WIDTH - 2 * MARGIN) / root.width
    boxes: list[_Box] = []
    hidden = 0
    todo = [(root, float(MARGIN), 0)]
    while todo:
        node, left, depth = todo.pop()
        boxes.append(_Box(node, left, node.width * scale, depth))
        rest = _Node(Frame("…"))
        below = 0
        for child in sorted(node.above.values(), key=lambda one: dataclasses.astuple(one.frame)):
            if child.width * scale < NARROWEST or depth + 1 >= DEPTH_LIMIT:
                rest.now, rest.before = rest.now + child.now, rest.before + child.before
                rest.width += child.width
                below += sum(1 for _ in _all(child))
            else:
                todo.append((child, left, depth + 1))
                left += child.width * scale
        hidden += below
        if rest.width * scale >= NARROWEST:
            boxes.append(_Box(rest, left, rest.width * scale, depth + 1, below))
    return boxes, hidden


def _all(node: _Node) -> Iterator[_Node]:
    todo = [node]
    while todo:
        node = todo.pop()
        yield node
        todo.extend(node.above.values())


def _window(folded: Folded, capacity: float) -> str:
    share = f", {100 * folded.total / capacity:.3g} % of the cores' time" if capacity else ""
    length = times.format_duration((folded.end_ns - folded.begin_ns) / 1e9)
    begin = times.format_instant(folded.begin_ns // 1000)
    return f"{folded.host}, {begin} for {length}: {folded.total:,} samples{share}"


def _opening(compared: Compared, height: int, head: list[str]) -> str:
    title = f"{compared.now.title}, what changed"
    room = (WIDTH - 2 * MARGIN) // 7
    lines = "\n".join(
        f'<text class="s" x="{MARGIN}" y="{40 + LINE * n}">{svg.safe(svg.fit(line, room))}</text>'
        for n, line in enumerate(head)
    )
    return f"""<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}">
<title>{svg.safe(title)}</title>
<desc>Differential flame graph. {svg.safe(" ".join(head))}</desc>
<style>text{{font:11px ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace}}
.h{{font:bold 15px system-ui,"DejaVu Sans",sans-serif}}.s{{font:12px system-ui,"DejaVu Sans",sans-serif}}
.b{{stroke-width:0.5}}.o{{stroke-width:1;stroke-dasharray:3 2}}{colours.style("f", "fill", colours.CHANGE)}</style>
<rect class="g" width="{WIDTH}" height="{height}"/>
<text class="h" x="{MARGIN}" y="22">{svg.safe(svg.fit(title, room - 20))}</text>
{lines}"""


def _key(y: int) -> Iterator[str]:
    x = float(MARGIN)
    for level, text in (
        (0, "all of it vanished"),
        (4, "less"),
        (MIDDLE, "the same"),
        (12, "more"),
        (16, "new"),
    ):
        edge = "b o" if level == 0 else "b"
        yield f'<rect class="{edge} f{level}" x="{x + 0.5:.1f}" y="{y + 5}" width="12" height="12"/>'
        yield f'<text class="s" x="{x + 17:.1f}" y="{y + 15}">{text}</text>'
        x += 34 + 7 * len(text)
    yield f'<text class="s" x="{x:.1f}" y="{y + 15}">in A, against the baseline B</text>'


def _draw(box: _Box, base: int, compared: Compared) -> str:
    node, frame = box.node, box.node.frame
    unit, base_unit = compared.units
    y = base - (box.depth + 1) * ROW
    now, before = node.now * unit, node.before * base_unit
    where = f" ({frame.module})" if frame.module else ""
    name = f"{box.hidden:,} narrower frames" if box.hidden else f"{frame.name}{where}"
    tip = (
        f"{name}: {100 * now:.3g} % {compared.denominator} ({node.now:,} samples), "
        f"before {100 * before:.3g} % ({node.before:,}), {100 * (now - before):+.3g}"
    )
    level = _level(node, unit, base_unit)
    # Where it is sure, and where there is room for an outline.
    vanished = level == 0 and not node.now and box.width >= OUTLINED
    edge = "b o" if vanished else "b"
    shown = svg.fit("…" if box.hidden else frame.name, max(0, int((box.width - 6) / svg.CHARACTER)))
    text = f'<text x="{box.left + 3:.1f}" y="{y + 13}">{svg.safe(shown)}</text>' if shown else ""
    return (
        f'<g><title>{svg.safe(tip)}</title><rect class="{edge} f{level}" '
        f'x="{box.left:.2f}" y="{y}" width="{box.width:.2f}" height="{ROW - 1}"/>{text}</g>'
    )


def _level(node: _Node, unit: float, base_unit: float) -> int:
    """Which colour; the middle one where the difference is within 1.96 standard deviations."""
    now, before = node.now * unit, node.before * base_unit
    # Counts of Poisson; one more than was seen, for a count of zero has a variance too.
    spread = math.sqrt((node.now + 1) * unit**2 + (node.before + 1) * base_unit**2)
    if abs(now - before) <= 1.96 * spread:
        return MIDDLE
    change = (now - before) / max(now, before)
    step = max(1, round(abs(change) * MIDDLE))
    return MIDDLE + step if change > 0 else MIDDLE - step
