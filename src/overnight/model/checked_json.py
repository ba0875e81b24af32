"""Reads JSON objects from elsewhere: each field has a type and a limit. Standard library only."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from overnight import errors
from overnight.model.text import printable

MAX_INTEGER = 1 << 53  # every JSON reader holds it exactly
MAX_DOCUMENT = 64 << 10
MAX_DEPTH = 32  # of any content: encoders and readers call themselves for each level


class Object:
    """A JSON object whose fields are checked where they are read."""

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, dict):
            refuse(where, "an object")
        self.fields: dict[str, Any] = value
        self._where = where

    def get(self, name: str, default: object = None) -> Any:
        value = self.fields.get(name, default)
        return default if value is None else value

    def integer(
        self, name: str, low: int = 0, high: int = MAX_INTEGER, default: int | None = None
    ) -> int:
        value = self.get(name, default)
        if type(value) is not int or not low <= value <= high:
            refuse(f"{self._where}.{name}", f"a whole number from {low} to {high}")
        return value

    def text(
        self,
        name: str,
        longest: int = 255,
        default: str | None = None,
        form: re.Pattern[str] | None = None,
    ) -> str:
        value = self.get(name, default)
        if not isinstance(value, str) or len(value) > longest:
            refuse(f"{self._where}.{name}", f"a text of at most {longest} characters")
        if form and value != default and not form.fullmatch(value):
            refuse(f"{self._where}.{name}", f"of the form {form.pattern}")
        return value

    def word(self, name: str, words: tuple[str, ...], default: str | None = None) -> str:
        value = self.get(name, default)
        if value not in words:
            refuse(f"{self._where}.{name}", f"one of {', '.join(words)}")
        return str(value)

    def items(self, name: str, most: int) -> Iterator[tuple[object, str]]:
        value = self.get(name, [])
        if not isinstance(value, list | tuple) or len(value) > most:
            refuse(f"{self._where}.{name}", f"a list of at most {most}")
        return ((item, f"{name}[{number}]") for number, item in enumerate(value))

    def numbers(self, name: str, high: int, most: int) -> tuple[int, ...]:
        value = self.get(name)
        if (
            not isinstance(value, list | tuple)
            or len(value) > most
            or not all(type(item) is int and 0 <= item <= high for item in value)
        ):
            refuse(f"{self._where}.{name}", f"a list of whole numbers from 0 to {high}")
        return tuple(value)

    def document(self, name: str, most: int = MAX_DOCUMENT) -> dict[str, Any]:
        """Return an object of any content that is not too large; raise for what is not JSON."""
        value = self.get(name, {})
        try:
            fits = is_shallow(value) and len(json.dumps(value, allow_nan=False)) <= most
        except (ValueError, TypeError):
            fits = False
        if not isinstance(value, dict) or not fits:
            limit = f"an object of at most {most >> 10} KB of JSON, {MAX_DEPTH} levels deep"
            refuse(f"{self._where}.{name}", limit)
        return value


def is_shallow(value: object) -> bool:
    """Return whether objects and lists are nested at most MAX_DEPTH deep."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        inner = (
            v.values() if isinstance(v, dict) else v
            for v in level
            if isinstance(v, dict | list | tuple)
        )
        level = [*itertools.chain.from_iterable(inner)]
    return not level


def refuse(where: str, wanted: str) -> NoReturn:
    raise errors.UsageError(
        f"{printable(where, limit=120)} is not {wanted}",
        why="the document does not have the form of the uplink protocol, version 1",
        todo="update the older of agent and server",
    )
