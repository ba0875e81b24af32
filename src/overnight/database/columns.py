"""The parts of tables in migrations, so what they return never changes. Times are µs since 1970."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import sqlalchemy as sa

Instant = sa.BigInteger
ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # SQLite counts INTEGER alone


class Operations(Protocol):
    """The operations of Alembic that migrations use."""

    def create_table(self, table_name: str, *parts: sa.schema.SchemaItem) -> Any: ...

    def add_column(self, table_name: str, column: sa.Column[Any]) -> None: ...

    def create_index(
        self, index_name: str, table_name: str, columns: list[str], **options: Any
    ) -> None: ...

    def execute(self, sqltext: str) -> None: ...


def required(kind: type[sa.types.TypeEngine[Any]], *names: str) -> Iterator[sa.Column[Any]]:
    return (sa.Column(name, kind, nullable=False) for name in names)


def optional(kind: type[sa.types.TypeEngine[Any]], *names: str) -> Iterator[sa.Column[Any]]:
    return (sa.Column(name, kind) for name in names)


def reference(
    name: str, target: str, constraint: str, *, ondelete: str | None = "CASCADE", key: bool = False
) -> sa.Column[str]:
    reference = sa.ForeignKey(target, name=constraint, ondelete=ondelete)
    return sa.Column(name, sa.Text, reference, primary_key=key, nullable=False)


def one_of(constraint: str, column: str, *words: str) -> sa.CheckConstraint:
    listed = ", ".join(f"'{word}'" for word in words)
    return sa.CheckConstraint(f"{column} IN ({listed})", name=constraint)


def partial_index(name: str, where: str, *columns: str, unique: bool = False) -> sa.Index:
    condition = sa.text(where)
    return sa.Index(
        name, *columns, unique=unique, sqlite_where=condition, postgresql_where=condition
    )
