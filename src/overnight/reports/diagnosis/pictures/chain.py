"""The chain from the cause to the event: a box a finding, the root first, an arrow a link."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from overnight.reports import svg
from overnight.reports.diagnosis import words

if TYPE_CHECKING:
    from overnight.model import finding, verdict

__all__ = ["draw_chain"]

WIDTH, LEFT, RIGHT = 960, 132, 8
PAD, LINE = 12, 17
ARROW = 50
BOX = WIDTH - LEFT - RIGHT
SANS = 6.9  # px a character at 13 px, on the wide side
MOST_LINES = 2


def draw_chain(shown: verdict.Chain, *, number: str = "chain") -> str:
    """The picture; `number` tells its title from those of others on the page."""
    parts: list[str] = []
    y = 4
    links = {(link.cause, link.effect): link for link in shown.links}
    last = len(shown.steps) - 1
    for at, step in enumerate(shown.steps):
        box, height = _box(step, y, at, last)
        parts += box
        y += height
        if at < last:
            parts += _arrow(links.get((step.id, shown.steps[at + 1].id)), y)
            y += ARROW
    told = " Then: ".join(_spoken(step) for step in shown.steps)
    return "\n".join(
        (
            f'<svg class="chain" role="img" aria-labelledby="{number}-title {number}-text" '
            f'viewBox="0 0 {WIDTH} {y + 4}" width="{WIDTH}" height="{y + 4}">',
            f'<title id="{number}-title">The chain, root first</title>',
            f'<desc id="{number}-text">{svg.safe(told)}</desc>',
            *parts,
            "</svg>",
        )
    )


def _spoken(step: finding.Finding) -> str:
    parts = (words.kind_words(step.kind), words.who_words(step.subject), words.place_words(step.subject), words.number_words(step))  # fmt: skip
    return ", ".join(filter(None, parts)) + "."


def _box(step: finding.Finding, y: int, at: int, last: int) -> tuple[list[str], int]:
    who, place, numbers = (
        words.who_words(step.subject),
        words.place_words(step.subject),
        words.number_words(step),
    )
    lines = [("b", words.kind_words(step.kind))]
    lines += [("w", line) for line in _wrapped(who, 7.9)]
    lines += [("s", line) for line in _wrapped(place, SANS)]
    lines += [("n", line) for line in _wrapped(numbers, SANS)]
    height = 2 * PAD + LINE * len(lines) - 3
    role = "root" if at == 0 and last else "event" if at == last else "step"
    name = {"root": "cause", "event": "event", "step": f"step {at + 1}"}[role]
    shape = "" if role == "step" else f" {role}"
    made = [
        f'<rect class="box{shape}" x="{LEFT}" y="{y}" width="{BOX}" height="{height}" rx="6"/>',
        f'<text class="b e" x="{LEFT - 14}" y="{y + PAD + 12}">{name}</text>',
        *(
            f'<text class="s e" x="{LEFT - 14}" y="{y + PAD + 12 + LINE * n}">{svg.safe(line)}</text>'
            for n, line in enumerate(_time_lines(step), 1)
        ),
    ]
    for n, (kind, text) in enumerate(lines):
        made.append(
            f'<text class="{kind}" x="{LEFT + 14}" y="{y + PAD + 12 + LINE * n}">{svg.safe(text)}</text>'
        )
    return made, height


def _time_lines(step: finding.Finding) -> tuple[str, str]:
    begin, end = step.window.begin_us, step.window.end_us
    if end - begin >= 3_600_000_000:
        return words.clock(begin, "since %d %b"), words.clock(begin, "%H:%M")
    length = (end - begin) / 1e6
    return words.clock(begin, "%H:%M:%S"), f"for {length:.3g} s"


def _wrapped(text: str, width: float) -> list[str]:
    room = int((BOX - 28) / width)
    lines = textwrap.wrap(text, room, break_on_hyphens=False)
    if len(lines) > MOST_LINES:
        lines = [*lines[: MOST_LINES - 1], svg.fit(" ".join(lines[MOST_LINES - 1 :]), room)]
    return [svg.fit(line, room) for line in lines]


def _arrow(link: verdict.Link | None, y: int) -> Iterator[str]:
    x = LEFT + 34
    tip, end = y + ARROW - 3, y + ARROW - 13
    strength = min(1.0, max(0.0, link.strength)) if link else 0.0
    wide = 1.5 + 5 * strength
    dashes = ' stroke-dasharray="5 4"' if strength < 0.5 else ""
    yield f'<path class="arrow" stroke-width="{wide:.1f}"{dashes} d="M{x} {y + 2}V{end}"/>'
    yield f'<path class="tip" d="M{x - 8} {end - 1}h16L{x} {tip}z"/>'
    if not link:
        yield f'<text class="s" x="{x + 22}" y="{y + 29}">no link is recorded</text>'
        return
    room = int((BOX - 60) / SANS)
    why = words.clean("; ".join(link.reasons))
    against = words.clean("; ".join(link.against))
    label = f"{strength:.2f} {words.strength_words(strength)}"
    first = 22 if against else 30
    yield (
        f'<text class="s" x="{x + 22}" y="{y + first}"><tspan class="b">{label}</tspan> '
        f"{svg.safe(svg.fit(why, room - len(label) - 2))}</text>"
    )
    if against:
        yield f'<text class="s" x="{x + 22}" y="{y + first + LINE}">against: {svg.safe(svg.fit(against, room - 9))}</text>'
