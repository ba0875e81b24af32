"""Reads dataclasses from JSON documents by their type hints, strictly; the inverse of `dataclasses.asdict`.

A field whose type is a dataclass may also be written inline: `begin_us` and `end_us` instead of a `window`.
Unknown keys are ignored: a later version may add some.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import functools
import types
import typing
from typing import Any, TypeVar, cast

from overnight import errors

T = TypeVar("T")
Names = tuple[tuple[str, Any], ...]
WANTED: dict[type, str] = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", type(None): "null"}  # fmt: skip


class ShapeError(ValueError):
    """A document is not of the expected form; names the place."""

    def __init__(self, where: str, wanted: str) -> None:
        super().__init__(f"{where or 'the document'} is not {wanted}")


def decode(kind: type[T], value: object, **names: Any) -> T:
    """Return a value of this type; `names` are those in hints that modules import for type checkers only."""
    return cast("T", _decode(kind, value, "", tuple(names.items())))


def _decode(kind: Any, value: object, where: str, names: Names) -> Any:
    if kind is Any or kind is object:
        return value
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _decode_union(arguments, value, where, names)
    if origin is tuple:
        return _decode_tuple(arguments, value, where, names)
    if origin in (dict, collections.abc.Mapping):
        items = _expect(dict, value, where, "an object").items()
        return {name: _decode(arguments[1], item, f"{where}.{name}", names) for name, item in items}
    if dataclasses.is_dataclass(kind):
        return _decode_fields(kind, value, where, names)
    if isinstance(kind, type) and issubclass(kind, tuple):  # a NamedTuple
        given, hints = _expect(dict, value, where, "an object"), _hints(kind, names)
        return kind(*(_decode(hints[n], given.get(n), f"{where}.{n}", names) for n in hints))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        try:
            return kind(value)
        except ValueError:
            raise ShapeError(where, f"one of {', '.join(map(str, kind))}") from None
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise ShapeError(where, WANTED[kind])
    return value


def _expect(kind: type[T], value: object, where: str, wanted: str) -> T:
    if not isinstance(value, kind):
        raise ShapeError(where, wanted)
    return value


def _decode_union(kinds: tuple[Any, ...], value: object, where: str, names: Names) -> Any:
    if type(value) in kinds:  # the exact type first: 1.0 is a float, not an int
        return value
    problem = ShapeError(where, "of a known type")
    for kind in kinds:
        try:
            return _decode(kind, value, where, names)
        except ShapeError as error:
            problem = error if dataclasses.is_dataclass(kind) else problem
    raise problem


def _decode_tuple(kinds: tuple[Any, ...], value: object, where: str, names: Names) -> Any:
    items = _expect(list, value, where, "a list")
    if kinds[1:] == (...,):
        kinds = kinds[:1] * len(items)
    if len(kinds) != len(items):
        raise ShapeError(where, f"a list of {len(kinds)}")
    pairs = enumerate(zip(kinds, items, strict=True))
    return tuple(_decode(kind, item, f"{where}[{n}]", names) for n, (kind, item) in pairs)


def _decode_fields(kind: Any, value: object, where: str, names: Names) -> Any:
    given = _expect(dict, value, where, "an object")
    hints, values = _hints(kind, names), {}
    for field in dataclasses.fields(kind):
        hint, at = hints[field.name], f"{where}.{field.name}".lstrip(".")
        inner = next(filter(dataclasses.is_dataclass, (hint, *typing.get_args(hint))), None)
        if field.name in given:
            values[field.name] = _decode(hint, given[field.name], at, names)
        elif inner and typing.get_origin(hint) is not tuple and _is_inline(inner, given, names):
            values[field.name] = _decode(inner, given, where, names)
        elif field.default is field.default_factory is dataclasses.MISSING:
            raise ShapeError(at, "there")
    try:
        return kind(**values)
    except errors.OvernightError as error:
        raise ShapeError(where, f"valid: {error.what}") from error


def _is_inline(kind: Any, given: dict[str, object], names: Names) -> bool:
    """Return whether an object has what a dataclass requires; null counts where the field may be None."""
    hints, fields = _hints(kind, names), dataclasses.fields(kind)
    required = [f.name for f in fields if f.default is f.default_factory is dataclasses.MISSING]
    filled = (n in given and (given[n] is not None or type(None) in typing.get_args(hints[n])) for n in required)  # fmt: skip
    return all(filled)


@functools.cache
def _hints(kind: type, names: Names) -> dict[str, Any]:
    return typing.get_type_hints(kind, localns=dict(names))
