"""The tables as the code uses them: what the migrations create, run once more on metadata.

So a table is defined in one place only, and code and database cannot differ. Packages name their tables in `sql`.
"""

from __future__ import annotations

import importlib
from typing import Any

import sqlalchemy as sa

from overnight.database import columns, migrations

METADATA = sa.MetaData()


class _Recorder(columns.Operations):
    """Does to METADATA what Alembic does to a database."""

    def create_table(self, table_name: str, *parts: sa.schema.SchemaItem) -> None:
        sa.Table(table_name, METADATA, *parts)

    def add_column(self, table_name: str, column: sa.Column[Any]) -> None:
        METADATA.tables[table_name].append_column(column)

    def create_index(
        self, index_name: str, table_name: str, columns: list[str], **options: Any
    ) -> None:
        table = METADATA.tables[table_name]
        sa.Index(index_name, *(table.c[name] for name in columns), **options)

    def execute(self, sqltext: str) -> None:
        """Ignore it: it changes rows."""


for step in migrations.STEPS:
    importlib.import_module(f"{migrations.__name__}.versions.{step}").upgrade(_Recorder())


def table(name: str, **types: sa.types.TypeEngine[Any]) -> sa.Table:
    """Return a table; the columns in `types` are read and written as other values than they are stored."""
    found = METADATA.tables[name]
    for column, kind in types.items():
        found.c[column].type = kind
    return found
