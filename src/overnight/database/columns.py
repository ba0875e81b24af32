"""The parts of tables. Migrations use them too, so what they return never changes.

Times are µs since 1970.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

METADATA = sa.MetaData()
Instant = sa.BigInteger
ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # SQLite counts INTEGER alone


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
