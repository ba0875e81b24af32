"""Tables of a knowledge file, read field by field."""

from __future__ import annotations

from overnight import errors

__all__ = ["Entry"]


class Entry:
    """One table of the file, read field by field; what is wrong is said with its place."""

    def __init__(self, table: object, place: str) -> None:
        self.place = place
        self.table: dict[str, object] = {}
        if not isinstance(table, dict):
            raise self.wrong("it is no table", "write it as [[link]], [[kind]], [[fix]] ...")
        self.table = dict(table)

    def wrong(self, why: str, todo: str) -> errors.UsageError:
        """The error that says what is wrong here."""
        return errors.UsageError(f"{self.place} cannot be used", why=why, todo=todo)

    def text(self, name: str, default: str | None = None) -> str:
        """A text; without a default it must be there."""
        value = self.table.pop(name, default)
        if value is None:
            raise self.wrong(f"it has no `{name}`", f'add {name} = "..."')
        if not isinstance(value, str) or (default is None and not value.strip()):
            raise self.wrong(f"`{name}` is {value!r}, not a text", f'write {name} = "..."')
        return value

    def number(self, name: str, default: float | None, least: float, most: float) -> float:
        """A number within bounds."""
        value = self.table.pop(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(f"`{name}` is {value!r}, not a number", f"give {name} a number")
        if not least <= value <= most:
            raise self.wrong(f"`{name}` is {value:g}", f"give a number from {least:g} to {most:g}")
        return float(value)

    def flag(self, name: str) -> bool:
        """Whether it is said to be so."""
        value = self.table.pop(name, False)
        if not isinstance(value, bool):
            raise self.wrong(f"`{name}` is {value!r}", "write true or false")
        return value

    def span(self, name: str, default: tuple[float, float]) -> tuple[float, float]:
        """Two numbers, the smaller first."""
        value = self.table.pop(name, list(default))
        if (
            not isinstance(value, list)
            or len(value) != 2
            or not all(type(one) in (int, float) and one >= 0 for one in value)
            or not value[0] < value[1]
        ):
            raise self.wrong(
                f"`{name}` is {value!r}", "write two numbers, the smaller first; inf is one"
            )
        return float(value[0]), float(value[1])

    def texts(self, name: str) -> tuple[str, ...]:
        """One text or several."""
        value = self.table.pop(name, [])
        many = [value] if isinstance(value, str) else value
        if not isinstance(many, list) or not all(isinstance(one, str) for one in many):
            raise self.wrong(f"`{name}` is {value!r}", "write a text or a list of texts")
        return tuple(many)

    def entries(self, name: str) -> tuple[Entry, ...]:
        """Tables inside this one."""
        value = self.table.pop(name, [])
        if not isinstance(value, list):
            raise self.wrong(f"`{name}` is {value!r}", "write a list of tables")
        return tuple(
            Entry(one, f"{self.place}, {name} {count}") for count, one in enumerate(value, 1)
        )

    def done(self) -> None:
        """Nothing may be left that nobody asked for."""
        if self.table:
            raise self.wrong(
                f"`{min(self.table)}` is no field of it", "remove it, or mend its spelling"
            )
