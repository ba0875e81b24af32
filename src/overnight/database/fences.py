"""Rows that have one driver at a time.

Such a table has the columns `id`, `fence`, `driver_until_us` and `next_us`. Each driver that takes a row adds one to its
fence and names that fence in every write, so a write of an earlier driver changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy as sa

from overnight.database import statements


class FenceLostError(Exception):
    """Another driver has the row."""


def take(connection: sa.Connection, table: sa.Table, key: str, fence: int, **changes: object) -> None:  # fmt: skip
    """Become the driver of a row that was read with this fence."""
    _update(connection, table, key, fence, fence=fence + 1, **changes)


def save(connection: sa.Connection, table: sa.Table, row: Mapping[str, object]) -> None:
    """Write the columns of a row as its driver."""
    values = dict(row)
    key, fence = str(values.pop("id")), values.pop("fence")
    assert isinstance(fence, int)
    _update(connection, table, key, fence, **values)


def keep(connection: sa.Connection, table: sa.Table, key: str, fence: int, until_us: int) -> None:
    """Extend the lease of the driver."""
    _update(connection, table, key, fence, driver_until_us=until_us)


def is_due(table: sa.Table, now_us: int) -> sa.ColumnElement[bool]:
    """Return the condition of rows that a driver may take now."""
    return sa.and_(table.c.driver_until_us <= now_us, table.c.next_us <= now_us)


def _update(
    connection: sa.Connection, table: sa.Table, key: str, known: int, **values: object
) -> None:
    if not statements.update(table, connection, key, table.c.fence == known, **values):
        raise FenceLostError(key)
