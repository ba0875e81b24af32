from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import sqlalchemy as sa


def insert(connection: sa.Connection, table: sa.Table) -> Any:
    """Return `INSERT` with `ON CONFLICT`, which SQLAlchemy has for each database separately."""
    # Only the one in use: PostgreSQL's takes 50 ms to import.
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table)
    from sqlalchemy.dialects import sqlite

    return sqlite.insert(table)
