"""The chain from root cause to event: a box for each finding, an arrow for each link."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from overnight.model.times import HOUR_US, SECOND_US
from overnight.reports import svg
from overnight.reports.diagnosis import pictures, wording

if TYPE_CHECKING:
    from overnight.diagnosis import knowledge
    from overnight.model.finding import Finding
    from overnight.model.verdict import Chain, Link

WIDTH, LEFT, RIGHT = 1072, 132, 8
PAD, LINE = 12, 17
MIN_ARROW = 44  # px
BOX = WIDTH - LEFT - RIGHT
SANS, MONO = 7.7, 7.9  # px a character at 13 px, on the wide side: DejaVu Sans
MAX_LINES = 2


def draw_chain(chain: Chain, known: knowledge.Knowledge, *, claimed: bool = True) -> str:
    """Draw a chain; the first box is labelled the root cause only if it is `claimed`."""
    parts: list[str] = []
    y = 4
    links = {(link.cause, link.effect): link for link in chain.links}
    last = len(chain.steps) - 1
    hosts = {step.subject.host for step in chain.steps} - {""}
    labels = [f"step {at + 1}" for at in range(last)] + ["event"]
    if claimed and last:
        labels[0] = "root cause"
    for at, step in enumerate(chain.steps):
        lines = _box_lines(step, known, name_host=len(hosts) > 1)
        box, height = _draw_box(step, y, labels[at], lines)
        parts += box
        y += height
        if at < last:
            arrow, height = _draw_arrow(links.get((step.id, chain.steps[at + 1].id)), y)
            parts += arrow
            y += height
    spoken = " Then: ".join(_describe(step, known) for step in chain.steps)
    return pictures.frame("chain", "The chain, root first", spoken, (WIDTH, y + 4), parts)


def _describe(step: Finding, known: knowledge.Knowledge) -> str:
    """Describe a step for a screen reader."""
    parts = (wording.clean(known.title(step.kind)), *wording.list_details(step, known))
    return ", ".join(filter(None, parts)) + "."


def _box_lines(
    step: Finding, known: knowledge.Knowledge, *, name_host: bool
) -> list[tuple[str, str]]:
    lines = [("b", svg.fit(wording.clean(known.title(step.kind)), int((BOX - 28) / 9)))]
    details = wording.list_details(step, known, host=name_host)
    for kind, detail, width in zip("wsn", details, (MONO, SANS, SANS), strict=True):
        lines += [(kind, line) for line in _wrapped(detail, width)]
    return lines


def _draw_box(
    step: Finding, y: int, label: str, lines: list[tuple[str, str]]
) -> tuple[list[str], int]:
    height = 2 * PAD + LINE * max(3, len(lines)) - 3
    shape = {"root cause": " root", "event": " event"}.get(label, "")
    parts = [
        f'<rect class="box{shape}" x="{LEFT}" y="{y}" width="{BOX}" height="{height}" rx="6"/>',
        f'<text class="b e" x="{LEFT - 14}" y="{y + PAD + 12}">{label}</text>',
        *(
            f'<text class="s e" x="{LEFT - 14}" y="{y + PAD + 12 + LINE * n}">{svg.safe(line)}</text>'
            for n, line in enumerate(_time_lines(step), 1)
        ),
    ]
    parts += [
        f'<text class="{kind}" x="{LEFT + 14}" y="{y + PAD + 12 + LINE * n}">{svg.safe(text)}</text>'
        for n, (kind, text) in enumerate(lines)
    ]
    return parts, height


def _time_lines(step: Finding) -> tuple[str, str]:
    begin, end = step.window.begin_us, step.window.end_us
    if end - begin >= HOUR_US:
        return wording.clock(begin, "since %d %b"), wording.clock(begin, "%H:%M")
    length = wording.format_length((end - begin) / SECOND_US)
    return wording.clock(begin, "%H:%M:%S"), f"for {length}" if length else ""


def _wrapped(text: str, width: float, across: int = BOX - 28) -> list[str]:
    room = int(across / width)
    lines = textwrap.wrap(text, room, break_on_hyphens=False)
    if len(lines) > MAX_LINES:
        lines = [*lines[: MAX_LINES - 1], svg.fit(" ".join(lines[MAX_LINES - 1 :]), room)]
    return [svg.fit(line, room) for line in lines]


def _draw_arrow(link: Link | None, y: int) -> tuple[list[str], int]:
    x = LEFT + 34
    strength = min(1.0, max(0.0, link.strength)) if link else 0.0
    lines = ["no link"]
    lead = ""
    if link:
        lead = wording.format_strength(strength)
        room = BOX - 64
        # Placeholders reserve room for the lead in the first line while wrapping.
        first = _wrapped(
            f"{'_' * (len(lead) + 2)} {wording.clean('; '.join(link.reasons))}", SANS, room
        )
        lines = [first[0].lstrip("_"), *first[1:]] if first else []
        if link.against:
            lines += _wrapped(f"against: {wording.clean('; '.join(link.against))}", SANS, room)
    height = max(MIN_ARROW, LINE * len(lines) + 20)
    end = y + height - 13
    dashes = ' stroke-dasharray="5 4"' if strength < 0.5 else ""
    parts = [
        f'<path class="arrow" stroke-width="{1.5 + 5 * strength:.1f}"{dashes} d="M{x} {y + 2}V{end}"/>',
        f'<path class="tip" d="M{x - 8} {end - 1}h16L{x} {y + height - 3}z"/>',
    ]
    top = y + (height - LINE * len(lines)) / 2 + 11
    for n, line in enumerate(lines):
        bold = f'<tspan class="b">{lead}</tspan> ' if lead and n == 0 else ""
        parts.append(
            f'<text class="s" x="{x + 22}" y="{top + LINE * n:g}">{bold}{svg.safe(line.strip())}</text>'
        )
    return parts, height
