"""How many memory cgroups there were, look by look: what grows is seen at once."""

from __future__ import annotations

from collections.abc import Sequence

from overnight.reports import diagnosis, svg
from overnight.reports.diagnosis import wording

__all__ = ["draw_census"]

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 1100, 190, 76, 120, 14, 26


def draw_census(looks: Sequence[diagnosis.Census], event_us: int | None) -> str:
    """Dying and in use over time; the axis begins at nought, so that a slope is not made up."""
    shown = [one.time_us for one in looks] + ([] if event_us is None else [event_us])
    first, last = min(shown), max(*shown, min(shown) + 1)
    most = max(1, *(one.dying for one in looks), *(one.in_use for one in looks))

    def x(us: int) -> float:
        return LEFT + (us - first) / (last - first) * (WIDTH - LEFT - RIGHT)

    def y(count: int) -> float:
        return HEIGHT - BOTTOM - count / most * (HEIGHT - TOP - BOTTOM)

    lines = {
        name: "M" + "L".join(f"{x(one.time_us):.1f} {y(getattr(one, name)):.1f}" for one in looks)
        for name in ("dying", "in_use")
    }
    said = (
        f"Dying memory cgroups: {looks[0].dying:,} at {wording.clock(looks[0].time_us)}, {looks[-1].dying:,} at {wording.clock(looks[-1].time_us)}. "
        f"In use: {looks[0].in_use:,}, then {looks[-1].in_use:,}."
    )
    right = WIDTH - RIGHT
    parts = [
        f'<path class="rule" d="M{LEFT} {y(most):g}H{right}M{LEFT} {y(0):g}H{right}"/>',
        f'<text class="t e" x="{LEFT - 6}" y="{y(most) + 4:g}">{most:,}</text>',
        f'<text class="t e" x="{LEFT - 6}" y="{y(0) + 4:g}">0</text>',
        f'<path class="line dying" d="{lines["dying"]}"/>',
        f'<path class="line in-use" d="{lines["in_use"]}"/>',
        f'<text class="b" x="{right + 8}" y="{y(looks[-1].dying) + 4:.1f}">dying</text>',
    ]
    if abs(y(looks[-1].in_use) - y(looks[-1].dying)) > 16:
        parts.append(f'<text class="s" x="{right + 8}" y="{y(looks[-1].in_use) + 4:.1f}">in use (dashed)</text>')  # fmt: skip
    for us, place in ((first, "t"), (last, "t e")):
        parts.append(f'<text class="{place}" x="{x(us):.1f}" y="{HEIGHT - 8}">{wording.clock(us)}</text>')  # fmt: skip
    if event_us is not None:
        parts.append(f'<path class="event-line" d="M{x(event_us):.1f} {TOP - 8}V{HEIGHT - BOTTOM}"/>')  # fmt: skip
    return "\n".join(
        (
            f'<svg class="census" role="img" aria-labelledby="census-title census-text" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">',
            '<title id="census-title">Memory cgroups over time</title>',
            f'<desc id="census-text">{svg.safe(said)}</desc>',
            *parts,
            "</svg>",
        )
    )
