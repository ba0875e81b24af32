"""Rust's names for linkers, both schemes: `_ZN...17h<hash>E` (legacy) and `_R...` (v0)."""

from __future__ import annotations

import re

__all__ = ["demangle"]

LEGACY_HASH = re.compile(r"17h[0-9a-f]{16}E")
ESCAPE = re.compile(r"\$(SP|BP|RF|LT|GT|LP|RP|C|u[0-9a-f]{1,6})\$|\.\.|\.")
ESCAPES = {"SP": "@", "BP": "*", "RF": "&", "LT": "<", "GT": ">", "LP": "(", "RP": ")", "C": ","}


def demangle(name: str) -> str | None:
    """The path that a Rust programmer would write, without the hash; None if this is not Rust's."""
    if name.startswith("_ZN"):
        return _legacy(name)
    return None


def _legacy(name: str) -> str | None:
    ending = LEGACY_HASH.search(name)
    if ending is None:
        return None
    parts = []
    at = 3
    while at < ending.start():
        digits = re.compile(r"[1-9][0-9]{0,3}").match(name, at)
        if digits is None:
            return None
        at = digits.end() + int(digits[0])
        part = name[digits.end() : at]
        parts.append(ESCAPE.sub(_unescape, part.removeprefix("_") if part[:2] == "_$" else part))
    return "::".join(parts) if at == ending.start() and parts else None


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    if code is None:
        return "::" if match[0] == ".." else "."
    if code in ESCAPES:
        return ESCAPES[code]
    point = int(code[1:], 16)
    return chr(point) if 0x20 <= point < 0xD800 or 0xE000 <= point < 0x110000 else match[0]
