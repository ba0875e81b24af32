"""Tables of a knowledge file, read field by field."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from overnight import errors

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Form = TypeVar("Form", bound="DataclassInstance")


def between(least: float, most: float) -> dict[str, tuple[float, float]]:
    """Return the metadata of a numeric field that `Entry.build` checks."""
    return {"range": (least, most)}


class Entry:
    """One table of the file; an invalid field raises an error that names its place."""

    def __init__(self, table: object, place: str) -> None:
        self.place = place
        self.table: dict[str, object] = {}
        if not isinstance(table, dict):
            raise self.invalid("it is not a table", "write it as [[link]], [[kind]], [[fix]] ...")
        self.table = dict(table)

    def invalid(self, why: str, todo: str) -> errors.UsageError:
        return errors.UsageError(f"{self.place} is invalid", why=why, todo=todo)

    def build(self, form: type[Form], **given: object) -> Form:
        """Take the fields of a dataclass, except those `given`, by type; refuse all others."""
        for field in dataclasses.fields(form):
            if field.name not in given:
                given[field.name] = self._take(field)
        self.finish()
        return form(**given)

    def _take(self, field: dataclasses.Field[Any]) -> object:
        default: Any = None if field.default is dataclasses.MISSING else field.default
        match field.type:
            case "str":
                return self.text(field.name, default)
            case "bool":
                return self.flag(field.name)
            case "float" | "int":
                number = self.number(field.name, default, *field.metadata["range"])
                return round(number) if field.type == "int" else number
            case "tuple[float, float]":
                return self.span(field.name, default)
            case _:
                return self.texts(field.name)

    def one_of(self, name: str, known: Iterable[str], default: str | None = None) -> str:
        value = self.text(name, default)
        if value not in known:
            raise self.invalid(f"`{name}` is {value!r}", f"use one of {', '.join(known)}")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """Take a text; it is required unless there is a default."""
        value = self.table.pop(name, default)
        if value is None:
            raise self.invalid(f"`{name}` is missing", f'add {name} = "..."')
        if not isinstance(value, str) or (default is None and not value.strip()):
            raise self.invalid(f"`{name}` is {value!r}, not a text", f'write {name} = "..."')
        return value

    def number(self, name: str, default: float | None, least: float, most: float) -> float:
        value = self.table.pop(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.invalid(f"`{name}` is {value!r}, not a number", f"give {name} a number")
        if not least <= value <= most:
            raise self.invalid(f"`{name}` is {value:g}", f"use a number from {least:g} to {most:g}")
        return float(value)

    def flag(self, name: str) -> bool:
        value = self.table.pop(name, False)
        if not isinstance(value, bool):
            raise self.invalid(f"`{name}` is {value!r}", "write true or false")
        return value

    def span(self, name: str, default: tuple[float, float]) -> tuple[float, float]:
        """Take two numbers, the smaller first."""
        value = self.table.pop(name, list(default))
        if (
            not isinstance(value, list)
            or len(value) != 2
            or not all(type(bound) in (int, float) and bound >= 0 for bound in value)
            or not value[0] < value[1]
        ):
            raise self.invalid(
                f"`{name}` is {value!r}", "write two numbers, the smaller first; inf is allowed"
            )
        return float(value[0]), float(value[1])

    def texts(self, name: str) -> tuple[str, ...]:
        """Take one text or a list of texts."""
        value = self.table.pop(name, [])
        many = [value] if isinstance(value, str) else value
        if not isinstance(many, list) or not all(isinstance(text, str) for text in many):
            raise self.invalid(f"`{name}` is {value!r}", "write a text or a list of texts")
        return tuple(many)

    def entries(self, name: str) -> tuple[Entry, ...]:
        """Take the tables inside this one."""
        value = self.table.pop(name, [])
        if not isinstance(value, list):
            raise self.invalid(f"`{name}` is {value!r}", "write a list of tables")
        return tuple(
            Entry(table, f"{self.place}, {name} {count}") for count, table in enumerate(value, 1)
        )

    def finish(self) -> None:
        """Refuse fields that nobody took."""
        if self.table:
            raise self.invalid(
                f"`{min(self.table)}` is not a field of it", "remove it, or correct its spelling"
            )
