"""Text that hosts wrote, made safe to show: process names, units, kernel lines."""

from __future__ import annotations


def printable(text: str, *, keep: str = "", limit: int | None = None) -> str:
    r"""Escape what a terminal or a page would interpret; characters of `keep` stay.

    >>> printable("a\x1b[31mb\u202ec\n"), printable("a\n", keep="\n"), printable("abcdef", limit=3)
    ('a\\x1b[31mb\\u202ec\\n', 'a\n', 'abc…')
    """
    if limit is not None and len(text) > limit:
        text = text[:limit] + "…"
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape", "replace").decode()
        for c in text
    )
