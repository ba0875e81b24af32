"""Kernel functions that identify a kind of work on a stack, read from signatures.toml."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import re
import tomllib
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class Signature:
    """`functions` is a regular expression for the whole name of a kernel function."""

    name: str
    kind: str  # of the finding that it supports
    role: str
    functions: str
    meaning: str
    matches: tuple[str, ...]
    misses: tuple[str, ...]


@functools.cache
def signatures() -> tuple[Signature, ...]:
    path = pathlib.Path(__file__).with_name("signatures.toml")
    tables = tomllib.loads(path.read_text(encoding="utf-8"))["signature"]
    return tuple(
        Signature(**{**table, "matches": tuple(table["matches"]), "misses": tuple(table["misses"])})
        for table in tables
    )


def pattern(kind: str, *roles: str) -> str:
    """Return one regular expression for all functions of a kind in these roles."""
    patterns = [
        signature.functions
        for signature in signatures()
        if signature.kind == kind and signature.role in roles
    ]
    return "|".join(f"(?:{text})" for text in patterns) or "(?!)"


def matcher(kind: str, *roles: str) -> Callable[[str], object]:
    """Return a test for the plain name of a function."""
    return re.compile(pattern(kind, *roles)).fullmatch
