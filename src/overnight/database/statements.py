"""Statements that several tables need."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

Row = Mapping[str, object]


def insert(connection: sa.Connection, table: sa.Table) -> Any:
    """Return `INSERT` with `ON CONFLICT`, which SQLAlchemy has for each database separately."""
    return _insert(connection.dialect.name, table)


def _insert(dialect: str, table: sa.Table) -> Any:
    # Only the one in use: PostgreSQL's takes 50 ms to import.
    if dialect == "postgresql":
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table)
    from sqlalchemy.dialects import sqlite

    return sqlite.insert(table)


def add_missing(connection: sa.Connection, table: sa.Table, *rows: Row) -> None:
    """Write new rows; those with a key that is there already stay as they are."""
    if rows:
        connection.execute(_add_missing(connection.dialect.name, table), rows)


def upsert(connection: sa.Connection, table: sa.Table, *rows: Row) -> None:
    """Write rows with the same columns, new or not."""
    if rows:
        connection.execute(_upsert(connection.dialect.name, table, (*rows[0],)), rows)


# Built once: building a statement takes longer than running it.
@functools.cache
def _add_missing(dialect: str, table: sa.Table) -> Any:
    return _insert(dialect, table).on_conflict_do_nothing()


@functools.cache
def _upsert(dialect: str, table: sa.Table, names: tuple[str, ...]) -> Any:
    new, key = _insert(dialect, table), table.primary_key.columns
    changes = {name: new.excluded[name] for name in names if name not in key}
    return new.on_conflict_do_update(index_elements=list(key), set_=changes)


def update(
    table: sa.Table,
    connection: sa.Connection,
    key: str,
    *where: sa.ColumnElement[bool],
    **values: object,
) -> bool:
    """Change the row with this primary key; False if it does not match the conditions."""
    [column] = table.primary_key
    statement = sa.update(table).where(column == key, *where).values(**values)
    return connection.execute(statement).rowcount == 1
