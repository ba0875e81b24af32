"""The chain from the cause to the event: a box a finding, the root first, an arrow a link."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from overnight.reports import svg
from overnight.reports.diagnosis import wording

if TYPE_CHECKING:
    from overnight.model.finding import Finding
    from overnight.model.verdict import Chain, Link

__all__ = ["draw_chain"]

WIDTH, LEFT, RIGHT = 1072, 132, 8
PAD, LINE = 12, 17
SHORTEST = 44  # px of an arrow
BOX = WIDTH - LEFT - RIGHT
SANS, MONO = 7.7, 7.9  # px a character at 13 px, on the wide side: DejaVu Sans
MOST_LINES = 2


def draw_chain(shown: Chain, *, claimed: bool = True) -> str:
    """The picture; only where it is `claimed` the first box is called the cause."""
    parts: list[str] = []
    y = 4
    links = {(link.cause, link.effect): link for link in shown.links}
    last = len(shown.steps) - 1
    hosts = {step.subject.host for step in shown.steps} - {""}
    for at, step in enumerate(shown.steps):
        box, height = _box(step, y, (at, last), claimed=claimed, name_host=len(hosts) > 1)
        parts += box
        y += height
        if at < last:
            arrow, height = _arrow(links.get((step.id, shown.steps[at + 1].id)), y)
            parts += arrow
            y += height
    told = " Then: ".join(_spoken(step) for step in shown.steps)
    return "\n".join(
        (
            (
                f'<svg class="chain" role="img" aria-labelledby="chain-title chain-text" '
                f'viewBox="0 0 {WIDTH} {y + 4}" width="{WIDTH}" height="{y + 4}">'
            ),
            '<title id="chain-title">The chain, root first</title>',
            f'<desc id="chain-text">{svg.safe(told)}</desc>',
            *parts,
            "</svg>",
        )
    )


def _spoken(step: Finding) -> str:
    parts = (wording.kind_words(step.kind), wording.who_words(step.subject), wording.place_words(step.subject), wording.number_words(step))  # fmt: skip
    return ", ".join(filter(None, parts)) + "."


def _box(
    step: Finding, y: int, place_in: tuple[int, int], *, claimed: bool, name_host: bool
) -> tuple[list[str], int]:
    at, last = place_in
    who, place, numbers = (
        wording.who_words(step.subject),
        wording.place_words(step.subject, host=name_host),
        wording.number_words(step),
    )
    lines = [("b", svg.fit(wording.kind_words(step.kind), int((BOX - 28) / 9)))]
    lines += [("w", line) for line in _wrapped(who, MONO)]
    lines += [("s", line) for line in _wrapped(place, SANS)]
    lines += [("n", line) for line in _wrapped(numbers, SANS)]
    height = 2 * PAD + LINE * max(3, len(lines)) - 3
    role = "event" if at == last else "root" if at == 0 and claimed else "step"
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


def _time_lines(step: Finding) -> tuple[str, str]:
    begin, end = step.window.begin_us, step.window.end_us
    if end - begin >= 3_600_000_000:
        return wording.clock(begin, "since %d %b"), wording.clock(begin, "%H:%M")
    length = wording.length_words((end - begin) / 1e6)
    return wording.clock(begin, "%H:%M:%S"), f"for {length}" if length else ""


def _wrapped(text: str, width: float, across: int = BOX - 28) -> list[str]:
    room = int(across / width)
    lines = textwrap.wrap(text, room, break_on_hyphens=False)
    if len(lines) > MOST_LINES:
        lines = [*lines[: MOST_LINES - 1], svg.fit(" ".join(lines[MOST_LINES - 1 :]), room)]
    return [svg.fit(line, room) for line in lines]


def _arrow(link: Link | None, y: int) -> tuple[list[str], int]:
    x = LEFT + 34
    strength = min(1.0, max(0.0, link.strength)) if link else 0.0
    said = ["no link is recorded"]
    lead = ""
    if link:
        lead = f"{strength:.2f} {wording.strength_words(strength)}"
        room = BOX - 64
        # The lead stands before the first line: as many blanks keep its place while wrapping.
        first = _wrapped(
            f"{'_' * (len(lead) + 2)} {wording.clean('; '.join(link.reasons))}", SANS, room
        )
        said = [first[0].lstrip("_"), *first[1:]] if first else []
        if link.against:
            said += _wrapped(f"against: {wording.clean('; '.join(link.against))}", SANS, room)
    height = max(SHORTEST, LINE * len(said) + 20)
    end = y + height - 13
    dashes = ' stroke-dasharray="5 4"' if strength < 0.5 else ""
    made = [
        f'<path class="arrow" stroke-width="{1.5 + 5 * strength:.1f}"{dashes} d="M{x} {y + 2}V{end}"/>',
        f'<path class="tip" d="M{x - 8} {end - 1}h16L{x} {y + height - 3}z"/>',
    ]
    top = y + (height - LINE * len(said)) / 2 + 11
    for n, line in enumerate(said):
        bold = f'<tspan class="b">{lead}</tspan> ' if lead and n == 0 else ""
        made.append(
            f'<text class="s" x="{x + 22}" y="{top + LINE * n:g}">{bold}{svg.safe(line.strip())}</text>'
        )
    return made, height
