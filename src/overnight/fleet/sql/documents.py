"""JSON in columns."""

from __future__ import annotations

import json
import zlib
from typing import Any


def dump(document: object) -> str:
    r"""Return JSON that both databases store and every reader can encode.

    >>> dump({"a\0": "\ud800"})
    '{"a\\u0000":"?"}'
    """
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace").decode()


def load(text: str) -> Any:
    return json.loads(text)


def pack(document: object) -> bytes:
    """Return compressed JSON."""
    return zlib.compress(dump(document).encode(), 1)


def unpack(data: bytes) -> Any:
    return json.loads(zlib.decompress(data))
