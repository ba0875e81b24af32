"""A flame graph as a static SVG without scripts: names as text, details as tooltips."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import BinaryIO
from xml.sax import saxutils

from overnight.model import colours, times
from overnight.model.flame import Folded, FrameKind
from overnight.reports.pictures import boxes

WIDTH, MARGIN, ROW = boxes.WIDTH, boxes.MARGIN, boxes.ROW
TOP, LINE_HEIGHT = 34, 16
SANS = 6.4  # px a character of the small lines, on the wide side
CHARACTER = 6.7  # px; 0.6 em of 11 px is 6.6 in the common monospaced fonts
# Characters that XML 1.0 does not allow (section 2.2), and those that reverse the text direction.
FORBIDDEN = re.compile(
    "[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\u202a-\u202e\u2066-\u2069]"
)


def write(folded: Folded, file: BinaryIO, *, max_rows: int = boxes.MAX_ROWS) -> None:
    """Draw the picture, roots at the bottom, siblings in the order of their names."""
    root = boxes.merge([folded], [1.0])
    drawn = boxes.lay_out(root, max_rows)
    total = root.counts[0]
    foot = [*folded.notes, *drawn.list_hidden()]
    if folded.lost:
        foot.append(f"{folded.lost:,} samples lost")
    base = TOP + LINE_HEIGHT + drawn.rows * ROW
    height = base + MARGIN + LINE_HEIGHT * len(foot) + MARGIN
    file.write(_head(folded, height).encode())
    write_body(file, [_draw(box, base, total) for box in drawn.boxes], base, foot)


def write_body(file: BinaryIO, drawn: list[str], base: int, foot: list[str]) -> None:
    """Write the boxes, the lines below them, and the end of the picture."""
    file.writelines(box.encode("utf-8", "replace") for box in drawn)
    if not drawn:
        file.write(f'<text x="{MARGIN}" y="{base}">no samples</text>\n'.encode())
    lines = small_lines(foot, base + MARGIN + LINE_HEIGHT - 4)
    file.writelines(f"{line}\n".encode() for line in lines)
    file.write(b"</svg>\n")


def open_picture(
    kind: str,
    title: str,
    lines: list[str],
    style: str,
    size: tuple[int, int],
    *,
    ground: str = 'class="g"',
) -> str:
    """Begin a picture: its text alternative, style, background, title and the lines below the title."""
    width, height = size
    room = width - 2 * MARGIN
    small = "\n".join(small_lines([fit(line, int(room / SANS)) for line in lines], TOP + 6))
    return f"""<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width}" height="{height}" viewBox="0 0 {width} {height}">
<title>{safe(title)}</title>
<desc>{kind}. {safe(" ".join(lines))}</desc>
<style>{style}</style>
<rect {ground} width="{width}" height="{height}"/>
<text class="h" x="{MARGIN}" y="22">{safe(fit(title, room // 9))}</text>
{small}"""


def small_lines(lines: list[str], y: int) -> Iterator[str]:
    for number, line in enumerate(lines):
        yield f'<text class="s" x="{MARGIN}" y="{y + LINE_HEIGHT * number}">{safe(line)}</text>'


def _head(folded: Folded, height: int) -> str:
    facts = [folded.host, f"{folded.total:,} samples"]
    if folded.begin_ns:
        seconds = max(0, folded.end_ns - folded.begin_ns) / 1e9
        length = times.format_duration(seconds, exact=True)
        facts.insert(1, f"{times.format_instant(folded.begin_ns // 1000)}, {length}")
    if folded.event:
        rate = f" at {folded.frequency:,} Hz" if folded.frequency else ""
        facts.append(folded.event + rate)
    if folded.cores:
        facts.append(f"{len(folded.cores)} core" + "s" * (len(folded.cores) > 1))
    about = " · ".join(filter(None, facts))
    style = """text { font: 11px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #111 }
.h { font: bold 15px system-ui, "DejaVu Sans", sans-serif } .s { font: 12px system-ui, "DejaVu Sans", sans-serif; fill: #444 }
rect { stroke: #fff; stroke-width: 0.5 }"""
    opening = open_picture(
        "Flame graph", folded.title, [about], style, (WIDTH, height), ground='fill="#fff"'
    )
    kernel, user = colours.fill(FrameKind.KERNEL), colours.fill(FrameKind.USER)
    key = WIDTH - MARGIN - 130
    return f"""{opening}
<rect x="{key}" y="12" width="12" height="12" fill="{user}"/><text class="s" x="{key + 17}" y="22">user</text>
<rect x="{key + 60}" y="12" width="12" height="12" fill="{kernel}"/><text class="s" x="{key + 77}" y="22">kernel</text>
"""


def _draw(box: boxes.Box, base: int, total: int) -> str:
    frame, count = box.branch.frame, box.branch.counts[0]
    tip = f"{box.name}, {count:,} sample{'s' * (count != 1)}, {100 * count / total:.2f} %"
    kind = FrameKind.PROCESS if box.depth == 0 else frame.kind
    fill = colours.fill(kind, frame.module, frame.name)
    return draw_box(box, base, tip, f'fill="{"#c8c8c8" if box.hidden else fill}"')


def draw_box(box: boxes.Box, base: int, tip: str, paint: str) -> str:
    """Draw a box with a tooltip and the part of its name that fits; `paint` are SVG attributes."""
    y = base - (box.depth + 1) * ROW
    label = "…" if box.hidden else box.branch.label
    shown = fit(label, max(0, int((box.width - 6) / CHARACTER)))
    text = f'<text x="{box.left + 3:.1f}" y="{y + 13}">{safe(shown)}</text>' if shown else ""
    return (
        f'<g><title>{safe(tip)}</title><rect {paint} x="{box.left:.2f}" y="{y}" '
        f'width="{box.width:.2f}" height="{ROW - 1}"/>{text}</g>\n'
    )


def fit(label: str, room: int) -> str:
    """Shorten a name to a number of columns; '' if too little of it would be left."""
    used = 0
    for at, character in enumerate(label[: room + 1]):
        used += 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if used > room:
            return label[: max(0, at - 1)] + "…" if room >= 3 else ""
    return label


def safe(text: str) -> str:
    """Escape text from a host for XML, so that it cannot end an element or reverse the text direction."""
    return saxutils.escape(FORBIDDEN.sub("\ufffd", text), {'"': "&quot;"})
