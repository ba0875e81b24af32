"""Stand-alone SVG pictures, embedded so that their styles stay their own."""

from __future__ import annotations

import dataclasses
import io
import re
from typing import TYPE_CHECKING

from overnight.reports import svg
from overnight.reports.diagnosis import wording
from overnight.reports.pictures import difference

if TYPE_CHECKING:
    from overnight.model.flame import Folded

ROOM = 130  # characters of a line below a picture
MAX_ROWS = 60  # 1,080 px: a screen or a page
STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)
RULE = re.compile(r"([^{}]+)\{")


def draw_flame(folded: Folded) -> str:
    file = io.BytesIO()
    svg.write(_short(folded), file, max_rows=MAX_ROWS)
    return scoped(file.getvalue().decode(), "flame")


def draw_difference(compared: difference.Compared) -> str:
    file = io.BytesIO()
    short = dataclasses.replace(
        compared, now=_short(compared.now), before=_short(compared.before), about=wording.clean(compared.about, ROOM)
    )  # fmt: skip
    difference.write_difference(short, file, max_rows=MAX_ROWS)
    return scoped(file.getvalue().decode(), "change")


def _short(folded: Folded) -> Folded:
    """Shorten its texts to the width of the picture; the names of frames stay."""
    return dataclasses.replace(
        folded,
        title=wording.clean(folded.title, 80),
        host=wording.clean(folded.host, 60),
        event=wording.clean(folded.event, 40),
        notes=tuple(wording.clean(note, ROOM) for note in folded.notes),
    )


def scoped(picture: str, name: str) -> str:
    """Return the picture with an id, and its style limited to itself; on paper it is light."""
    head, _, rest = picture.partition("<svg ")
    # The first style is the picture's own: names of a host come after it, and are escaped.
    styled = STYLE.sub(lambda match: f"<style>{_prefixed(match[1], name)}</style>", rest, count=1)
    return f'{head}<svg id="{name}" class="embedded" {styled}'


def _prefixed(style: str, name: str) -> str:
    def limit(match: re.Match[str]) -> str:
        selectors = match[1].strip()
        if selectors.startswith("@media"):
            return f"{selectors.replace('@media', '@media screen and', 1)}{{"
        return ",".join(f"#{name} {selector.strip()}" for selector in selectors.split(",")) + "{"

    return RULE.sub(limit, style)
