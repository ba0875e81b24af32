"""A differential flame graph of two windows: a static SVG without scripts, for light and dark.

A frame is as wide as the larger of its two rates, so that vanished frames keep their place. Its colour is
the change relative to that, or grey if the change may be chance.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from overnight.model import times
from overnight.reports import svg
from overnight.reports.pictures import boxes, colours

if TYPE_CHECKING:
    from overnight.model.flame import Folded

WIDTH, MARGIN, ROW, LINE = boxes.WIDTH, boxes.MARGIN, boxes.ROW, svg.LINE_HEIGHT
OUTLINED = 5  # px
MIDDLE = 8


@dataclasses.dataclass(frozen=True)
class Compared:
    """A window and its baseline; `capacity`: the samples of all cores when 100 % busy, 0 if not known."""

    now: Folded
    before: Folded
    capacity: float
    base_capacity: float
    about: str = ""

    @property
    def units(self) -> tuple[float, float]:
        """The weight of a sample of each window: a share of the cores' time, or of the samples."""
        if self.capacity and self.base_capacity:
            return 1 / self.capacity, 1 / self.base_capacity
        return 1 / (self.now.total or 1), 1 / (self.before.total or 1)

    @property
    def denominator(self) -> str:
        known = self.capacity and self.base_capacity
        return "of the cores' time" if known else "of the samples"


def write_difference(compared: Compared, file: BinaryIO, *, max_rows: int = boxes.MAX_ROWS) -> None:
    """Draw the picture, roots at the bottom, siblings in the order of their names."""
    root = boxes.merge([compared.now, compared.before], compared.units)
    drawn = boxes.lay_out(root, max_rows)
    foot = [*compared.now.notes]
    foot += [f"B: {note}" for note in compared.before.notes if note not in foot]
    foot.append("frame width: the larger of its two shares; grey: the change may be chance (95 %)")
    foot += drawn.list_hidden()
    if lost := compared.now.lost + compared.before.lost:
        foot.append(f"{lost:,} samples lost")
    head = [
        f"A  {_window(compared.now, compared.capacity)}",
        f"B  {_window(compared.before, compared.base_capacity)}",
        *([compared.about] if compared.about else []),
    ]
    base = 34 + LINE * (len(head) + 1) + 14 + drawn.rows * ROW
    height = base + MARGIN + LINE * len(foot) + MARGIN
    title = f"{compared.now.title}: difference"
    size = (WIDTH, height)
    opening = svg.open_picture("Differential flame graph", title, head, _style(), size)
    lines = (opening, *_key(34 + LINE * len(head)))
    file.writelines(f"{line}\n".encode("utf-8", "replace") for line in lines)
    svg.write_body(file, [_draw(box, base, compared) for box in drawn.boxes], base, foot)


def _window(folded: Folded, capacity: float) -> str:
    share = f", {100 * folded.total / capacity:.3g} % of the cores' time" if capacity else ""
    length = times.format_duration((folded.end_ns - folded.begin_ns) / 1e9)
    begin = times.format_instant(folded.begin_ns // 1000)
    return f"{folded.host}, {begin} for {length}: {folded.total:,} samples{share}"


def _style() -> str:
    return f"""text{{font:11px ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace}}
.h{{font:bold 15px system-ui,"DejaVu Sans",sans-serif}}.s{{font:12px system-ui,"DejaVu Sans",sans-serif}}
.b{{stroke-width:0.5}}.o{{stroke-width:1;stroke-dasharray:3 2}}{colours.style("f", "fill", colours.CHANGE)}"""


def _key(y: int) -> Iterator[str]:
    x = float(MARGIN)
    for number, text in enumerate(("vanished", "less", "the same", "more", "new")):
        level = number * MIDDLE // 2
        edge = "b o" if level == 0 else "b"
        yield f'<rect class="{edge} f{level}" x="{x + 0.5:.1f}" y="{y + 5}" width="12" height="12"/>'
        yield f'<text class="s" x="{x + 17:.1f}" y="{y + 15}">{text}</text>'
        x += 34 + 7 * len(text)
    yield f'<text class="s" x="{x:.1f}" y="{y + 15}">in A, compared with the baseline B</text>'


def _draw(box: boxes.Box, base: int, compared: Compared) -> str:
    count, base_count = box.branch.counts
    unit, base_unit = compared.units
    now, before = count * unit, base_count * base_unit
    tip = (
        f"{box.name}: {100 * now:.3g} % {compared.denominator} ({count:,} samples), "
        f"before {100 * before:.3g} % ({base_count:,}), {100 * (now - before):+.3g}"
    )
    level = _level(box.branch, unit, base_unit)
    # An outline if it is certain, and if there is room.
    vanished = level == 0 and not count and box.width >= OUTLINED
    return svg.draw_box(box, base, tip, f'class="{"b o" if vanished else "b"} f{level}"')


def _level(branch: boxes.Branch, unit: float, base_unit: float) -> int:
    """Return the colour; the middle one if the difference is within 1.96 standard deviations."""
    count, base_count = branch.counts
    now, before = count * unit, base_count * base_unit
    # Poisson counts, plus one because a count of zero has a variance too.
    spread = math.sqrt((count + 1) * unit**2 + (base_count + 1) * base_unit**2)
    if abs(now - before) <= 1.96 * spread:
        return MIDDLE
    change = (now - before) / max(now, before)
    step = max(1, round(abs(change) * MIDDLE))
    return MIDDLE + step if change > 0 else MIDDLE - step
