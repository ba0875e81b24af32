"""Statements that several tables need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa


def insert(to: sa.Connection | str, table: sa.Table) -> Any:
    """Return `INSERT` with `ON CONFLICT`, which SQLAlchemy has for each database separately."""
    # Only the one in use: PostgreSQL's takes 50 ms to import.
    if (to if isinstance(to, str) else to.dialect.name) == "postgresql":
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table)
    from sqlalchemy.dialects import sqlite

    return sqlite.insert(table)


def upsert(connection: sa.Connection, table: sa.Table, values: Mapping[str, object]) -> None:
    """Write a row, new or not."""
    key = table.primary_key.columns
    changes = {name: value for name, value in values.items() if name not in key}
    new = insert(connection, table).values(values)
    connection.execute(new.on_conflict_do_update(index_elements=list(key), set_=changes))


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
