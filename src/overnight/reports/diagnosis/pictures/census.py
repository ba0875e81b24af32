"""The number of memory cgroups over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from overnight.reports.diagnosis import pictures, wording

if TYPE_CHECKING:
    from overnight.reports import diagnosis

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 1100, 190, 76, 120, 14, 26


def draw_census(counts: Sequence[diagnosis.Census], event_us: int | None) -> str:
    """Draw dying and in use over time; the axis begins at zero, so that a slope is not exaggerated."""
    shown = [count.time_us for count in counts] + ([] if event_us is None else [event_us])
    first, last = min(shown), max(*shown, min(shown) + 1)
    most = max(1, *(count.dying for count in counts), *(count.in_use for count in counts))

    def x(us: int) -> float:
        return LEFT + (us - first) / (last - first) * (WIDTH - LEFT - RIGHT)

    def y(number: int) -> float:
        return HEIGHT - BOTTOM - number / most * (HEIGHT - TOP - BOTTOM)

    lines = {
        name: "M"
        + "L".join(f"{x(count.time_us):.1f} {y(getattr(count, name)):.1f}" for count in counts)
        for name in ("dying", "in_use")
    }
    spoken = (
        f"Dying memory cgroups: {counts[0].dying:,} at {wording.clock(counts[0].time_us)}, {counts[-1].dying:,} at {wording.clock(counts[-1].time_us)}. "
        f"In use: {counts[0].in_use:,}, then {counts[-1].in_use:,}."
    )
    right = WIDTH - RIGHT
    parts = [
        f'<path class="rule" d="M{LEFT} {y(most):g}H{right}M{LEFT} {y(0):g}H{right}"/>',
        f'<text class="t e" x="{LEFT - 6}" y="{y(most) + 4:g}">{most:,}</text>',
        f'<text class="t e" x="{LEFT - 6}" y="{y(0) + 4:g}">0</text>',
        f'<path class="line dying" d="{lines["dying"]}"/>',
        f'<path class="line in-use" d="{lines["in_use"]}"/>',
        f'<text class="b" x="{right + 8}" y="{y(counts[-1].dying) + 4:.1f}">dying</text>',
    ]
    if abs(y(counts[-1].in_use) - y(counts[-1].dying)) > 16:
        parts.append(f'<text class="s" x="{right + 8}" y="{y(counts[-1].in_use) + 4:.1f}">in use (dashed)</text>')  # fmt: skip
    for us, place in ((first, "t"), (last, "t e")):
        parts.append(f'<text class="{place}" x="{x(us):.1f}" y="{HEIGHT - 8}">{wording.clock(us)}</text>')  # fmt: skip
    if event_us is not None:
        parts.append(f'<path class="event-line" d="M{x(event_us):.1f} {TOP - 8}V{HEIGHT - BOTTOM}"/>')  # fmt: skip
    return pictures.frame("census", "Memory cgroups over time", spoken, (WIDTH, HEIGHT), parts)
