"""Kernel functions that tell what a stack is about: read from signatures.toml, which is data."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import re
import tomllib
from collections.abc import Callable

__all__ = ["Signature", "matcher", "pattern", "read_signatures", "signatures"]

FILE = pathlib.Path(__file__).with_name("signatures.toml")


@dataclasses.dataclass(frozen=True)
class Signature:
    """`functions` is a regular expression for the whole name of a kernel function."""

    name: str
    kind: str  # of the finding that it speaks for
    role: str
    functions: str
    meaning: str
    matches: tuple[str, ...]
    misses: tuple[str, ...]


def read_signatures(path: pathlib.Path = FILE) -> tuple[Signature, ...]:
    """All of a file."""
    told = tomllib.loads(path.read_text(encoding="utf-8"))
    return tuple(
        Signature(
            name=one["name"],
            kind=one["kind"],
            role=one["role"],
            functions=one["functions"],
            meaning=one["meaning"],
            matches=tuple(one["matches"]),
            misses=tuple(one["misses"]),
        )
        for one in told["signature"]
    )


@functools.cache
def signatures() -> tuple[Signature, ...]:
    """Those of the package."""
    return read_signatures()


def pattern(kind: str, *roles: str) -> str:
    """One regular expression for all functions of a kind in these roles."""
    found = [one.functions for one in signatures() if one.kind == kind and one.role in roles]
    return "|".join(f"(?:{text})" for text in found) or "(?!)"


def matcher(kind: str, *roles: str) -> Callable[[str], object]:
    """Whether a function's plain name is one of these."""
    return re.compile(pattern(kind, *roles)).fullmatch
