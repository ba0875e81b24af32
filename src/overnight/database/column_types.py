"""Values that columns hold as text or bytes: hashes, words, documents."""

from __future__ import annotations

import enum
import hashlib
import json
import zlib
from typing import Any

import sqlalchemy as sa


def hash_secret(secret: str) -> str:
    """Return what is stored of a secret of at least 24 random bytes."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def dump_json(document: object) -> str:
    r"""Return JSON that both databases store and every reader can encode.

    >>> dump_json({"a\0": "\ud800"})
    '{"a\\u0000":"?"}'
    """
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace").decode()


class Word(sa.types.TypeDecorator[enum.StrEnum]):
    """A value of an enumeration."""

    impl = sa.Text
    cache_ok = True

    def __init__(self, kind: type[enum.StrEnum]) -> None:
        super().__init__()
        self.kind = kind

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> enum.StrEnum:  # noqa: ARG002
        return self.kind(value)


class Document(sa.types.TypeDecorator[Any]):
    """JSON as text."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> str:  # noqa: ARG002
        return dump_json(value)

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> Any:  # noqa: ARG002
        return json.loads(value)


class PackedDocument(sa.types.TypeDecorator[Any]):
    """Compressed JSON."""

    impl = sa.LargeBinary
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> bytes:  # noqa: ARG002
        return zlib.compress(dump_json(value).encode(), 1)

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> Any:  # noqa: ARG002
        return json.loads(zlib.decompress(value))
