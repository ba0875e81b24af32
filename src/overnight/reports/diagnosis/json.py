"""The report for programs: `Verdict.as_json`, which docs/schemas/diagnosis-1.json describes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from overnight.model.verdict import Verdict
    from overnight.reports import diagnosis

__all__ = ["NAME", "SUFFIX", "document", "write"]

NAME = "json"
SUFFIX = ".json"


def write(
    told: Verdict,
    file: BinaryIO,
    material: diagnosis.Material | None = None,  # noqa: ARG001 - every format takes it
) -> None:
    """One document, ASCII, a final newline."""
    file.write(json.dumps(document(told), indent=2, allow_nan=False).encode() + b"\n")


def document(told: Verdict) -> dict[str, object]:
    """`Verdict.as_json`; a number that JSON cannot hold (infinite, or none) is null."""
    made = _plain(told.as_json())
    assert isinstance(made, dict)
    return made


def _plain(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if value is None or isinstance(value, str | int):
        return value
    # A numpy number of a detector, or anything else that only looks like a value.
    number = getattr(value, "item", None)
    return _plain(number()) if callable(number) else str(value)
