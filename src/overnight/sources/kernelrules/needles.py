"""Fixed text that every line matching a regex must contain, so that other lines are never tried."""

from __future__ import annotations

import importlib
import re
from typing import Any

MIN_LENGTH = 4


def raw_form(needle: str) -> bytes:
    r"""Return these characters as /dev/kmsg writes them.

    >>> raw_form("café\\")
    b'caf\\xc3\\xa9\\x5c'
    """
    return b"".join(
        bytes((byte,)) if 32 <= byte < 127 and byte != 92 else rb"\x%02x" % byte
        for byte in needle.encode("utf-8", "surrogateescape")
    )


def extract(regex: str) -> tuple[str, ...]:
    r"""Find texts of which every matching line contains one; () when there are none.

    >>> extract(r"TX q (?P<q>\d+) is paused for too long")
    (' is paused for too long',)
    >>> extract(r"(?:Kill|Killed) process \d+|Out of memory")
    (' process ', 'Out of memory')
    >>> extract(r"(?i)oom"), extract(r"\w+")
    ((), ())
    """
    try:
        # The parser behind `re`, named so since Python 3.11; without it every line is tried.
        parser: Any = importlib.import_module("re._parser")
        parsed = parser.parse(regex)
    except Exception:
        return ()
    if parsed.state.flags & re.IGNORECASE:
        return ()
    texts = _of_sequence(list(parsed))
    return texts if texts and min(map(len, texts)) >= MIN_LENGTH else ()


def _of_sequence(operations: list[Any]) -> tuple[str, ...]:
    """Find the best texts of a sequence: those whose shortest one is longest."""
    candidates: list[tuple[str, ...]] = []
    run: list[str] = []

    def close() -> None:
        if run:
            candidates.append(("".join(run),))
            run.clear()

    for operation, argument in operations:
        name = str(operation)
        if name == "LITERAL":
            run.append(chr(argument))
            continue
        if name == "AT":  # matches no character: the text continues
            continue
        close()
        if name == "SUBPATTERN":
            _, added, _, inner = argument
            if not added & re.IGNORECASE:
                candidates.append(_of_sequence(list(inner)))
        elif name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            least, _, inner = argument
            if least:
                candidates.append(_of_sequence(list(inner)))
        elif name == "BRANCH":
            parts = [_of_sequence(list(branch)) for branch in argument[1]]
            if all(parts):
                candidates.append(tuple(word for part in parts for word in part))
        elif name == "ATOMIC_GROUP":
            candidates.append(_of_sequence(list(argument)))
    close()
    return max(filter(None, candidates), key=lambda words: min(map(len, words)), default=())
