"""Pictures inside the page: SVG in the colours of its style sheet, each with a text alternative."""

from __future__ import annotations

from collections.abc import Iterable

from overnight.reports import svg


def frame(
    name: str, title: str, description: str, size: tuple[int, int], parts: Iterable[str]
) -> str:
    """Return the parts as a picture; title and description are its text alternative."""
    width, height = size
    head = f"""<svg class="{name}" role="img" aria-labelledby="{name}-title {name}-text" \
viewBox="0 0 {width} {height}" width="{width}" height="{height}">
<title id="{name}-title">{svg.safe(title)}</title>
<desc id="{name}-text">{svg.safe(description)}</desc>"""
    return "\n".join((head, *parts, "</svg>"))
