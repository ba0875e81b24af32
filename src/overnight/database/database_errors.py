"""Errors of the database."""

from __future__ import annotations

from overnight import errors


class BadUrlError(errors.UsageError):
    """The URL of the database, or a parameter in it, is not valid."""

    def __init__(self, name: str, value: str, wanted: str) -> None:
        super().__init__(
            f"invalid {name}: {value!r}",
            why=f"{name} must be {wanted}",
            todo=f"set {name} to a valid value: {wanted}",
        )


class DatabaseUnavailableError(errors.CannotError):
    """The database cannot be reached."""
