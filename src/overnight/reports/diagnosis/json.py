"""The report for programs: `Verdict.as_json`, described in docs/schemas/diagnosis-1.json."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from overnight.model.verdict import Verdict
    from overnight.reports import diagnosis


def write(
    verdict: Verdict,
    file: BinaryIO,
    material: diagnosis.Material | None = None,  # noqa: ARG001 - every format takes it
) -> None:
    """Write one document, ASCII, with a final newline."""
    file.write(json.dumps(document(verdict), indent=2, allow_nan=False).encode() + b"\n")


def document(verdict: Verdict) -> dict[str, object]:
    """Return `Verdict.as_json`; a number that JSON cannot hold (infinite, not a number) is null."""
    return {name: plain(value) for name, value in verdict.as_json().items()}


def plain(value: object) -> object:
    """Return a value that JSON can hold."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if value is None or isinstance(value, str | int):
        return value
    # A numpy number of a detector, or anything else that only resembles a value.
    number = getattr(value, "item", None)
    return plain(number()) if callable(number) else str(value)
