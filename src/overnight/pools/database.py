"""One database, two kinds: SQLite (a file; the default) and PostgreSQL (a fleet's).

A transaction is short, and no provider is called in one. On SQLite writers stand in a queue; on PostgreSQL
rows are locked. `steps` is told of every boundary at which a crash would matter: tests raise there.

`sqlite:///…` is durable against a crash of overnight; `?synchronous=FULL` against a power cut too, which
also ends the members of this machine but not those of a cloud.
"""

from __future__ import annotations

import contextlib
import pathlib
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy as sa
import sqlalchemy.exc
from sqlalchemy import event as hooks

from overnight.pools import migrations, pool_errors, write_queue
from overnight.pools.sql import fast_claim

__all__ = ["Connection", "Database", "IntegrityError", "Steps", "default_url"]

BUSY_SECONDS = fast_claim.BUSY_SECONDS
TURNS_WRITTEN_AHEAD = 512
MIGRATION_LOCK = 0x6F76_6E70  # "ovnp": an advisory lock that only upgrades take
Steps = Callable[[str], None]
Connection = sa.Connection
IntegrityError = sqlalchemy.exc.IntegrityError


def default_url(home: pathlib.Path) -> str:
    """The database in a data home."""
    return f"sqlite:///{fast_claim.default_path(home)}"


def _no_steps(_: str) -> None:
    """Nobody is told."""


class Database:
    """Where pools are kept. Safe to share between threads."""

    def __init__(self, url: str, *, steps: Steps = _no_steps) -> None:
        self.steps = steps
        self.url = _parsed(url)
        self.kind = self.url.get_backend_name()
        self._queue: write_queue.WriteQueue | None = None
        self._level = ""
        self._mine = threading.local()
        self._all_kept: weakref.WeakSet[_Kept] = weakref.WeakSet()
        self._engine = self._sqlite() if self.kind == "sqlite" else self._postgresql()
        self.closed = False
        self._checked = False
        self._check = threading.Lock()

    @property
    def folder(self) -> pathlib.Path | None:
        """Where the file is; None for a server."""
        return pathlib.Path(str(self.url.database)).parent if self.kind == "sqlite" else None

    def _sqlite(self) -> sa.Engine:
        path = pathlib.Path(str(self.url.database))
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            fast_claim.queue_of(path).open()
        except OSError as error:
            raise pool_errors.DatabaseUnavailableError(
                f"the pools' database cannot be kept in {path.parent}",
                why=str(error),
                todo="may you write there? Else name another: --database sqlite:////path/file.db",
            ) from error
        self._level = level = str(self.url.query.get("synchronous", "NORMAL")).upper()
        if level not in ("NORMAL", "FULL"):
            raise pool_errors.BadKnobError("synchronous", level, "NORMAL or FULL")
        self._queue = fast_claim.queue_of(path)
        if not _writes_ahead(path):
            with self._translated("open"), self._queue.turn():
                _write_ahead(path)
        engine = sa.create_engine(
            self.url.set(query={}),
            connect_args={"timeout": BUSY_SECONDS},
            pool_size=8,
            max_overflow=64,
        )

        @hooks.listens_for(engine, "connect")
        def _opened(connection: Any, _: object) -> None:
            connection.isolation_level = None  # BEGIN is ours to say
            _prepare(connection, level)

        @hooks.listens_for(engine, "begin")
        def _begun(connection: sa.Connection) -> None:
            writes = connection.get_execution_options().get("overnight_writes", False)
            connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

        return engine

    def _postgresql(self) -> sa.Engine:
        try:
            return sa.create_engine(self.url, pool_pre_ping=True, pool_size=8, max_overflow=64)
        except ImportError as error:
            raise pool_errors.DatabaseUnavailableError(
                "PostgreSQL cannot be used here",
                why=f"its driver is missing: {error}",
                todo="pip install 'overnight[postgresql]'",
            ) from error

    @contextlib.contextmanager
    def write(self, name: str) -> Iterator[sa.Connection]:
        """One transaction that writes, called `name` in errors and for `steps`."""
        self._ready()
        self.steps(f"{name}: begin")
        with self._translated(name), self._turn() as number, self._writer() as connection:
            yield connection
            self.steps(f"{name}: before commit")
        self.steps(f"{name}: after commit")
        self._tidy(number)

    @contextlib.contextmanager
    def _writer(self) -> Iterator[sa.Connection]:
        with self._engine.connect() as opened:
            connection = opened.execution_options(overnight_writes=True)
            with connection.begin():
                yield connection

    @contextlib.contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """One consistent look; on SQLite it never waits for the writer."""
        self._ready()
        level = {"isolation_level": "REPEATABLE READ"} if self.kind == "postgresql" else {}
        with self._translated("read"), self._engine.connect() as opened:
            connection = opened.execution_options(overnight_writes=False, **level)
            with connection.begin():
                yield connection

    @contextlib.contextmanager
    def quick(self, name: str) -> Iterator[Any]:
        """The driver's own connection, kept by this thread: for what is done thousands of times a second.

        On SQLite it is a transaction that writes; on PostgreSQL every statement stands for itself.
        """
        self._ready()
        self.steps(f"{name}: begin")
        with self._translated(name), self._turn() as number:
            try:
                driver = self._own().driver
                if self.kind == "sqlite":
                    driver.execute("BEGIN IMMEDIATE")
                yield driver
                if self.kind == "sqlite":
                    self.steps(f"{name}: before commit")
                    driver.execute("COMMIT")
            except BaseException as error:
                # In whatever state it is: the next claim takes a new one.
                self._drop()
                dbapi: Any = self._engine.dialect.loaded_dbapi
                if isinstance(error, dbapi.IntegrityError):
                    raise sqlalchemy.exc.IntegrityError(name, None, error) from error
                if isinstance(error, dbapi.Error):
                    raise sqlalchemy.exc.OperationalError(name, None, error) from error
                raise
        self.steps(f"{name}: after commit")
        self._tidy(number)

    def _own(self) -> _Kept:
        kept: _Kept | None = getattr(self._mine, "kept", None)
        if kept is None:
            kept = self._mine.kept = _Kept(self._engine.url, self._level)
            self._all_kept.add(kept)
        return kept

    def _drop(self) -> None:
        kept: _Kept | None = getattr(self._mine, "kept", None)
        if kept is not None:
            self._mine.kept = None
            kept.close()

    def notify(self, channel: str) -> None:
        """Tell those who listen on a server, by this thread's own connection; never fails."""
        for _ in range(2):  # the connection may be of before a restart: then by a new one
            if self.closed:
                return
            try:
                self._own().driver.execute(f"NOTIFY {channel}")
            except Exception:
                self._drop()
            else:
                break
        if self.closed:  # meanwhile, by another thread: nobody else would close it
            self._drop()

    def _turn(self) -> contextlib.AbstractContextManager[int]:
        return contextlib.nullcontext(0) if self._queue is None else self._queue.turn()

    def _tidy(self, number: int) -> None:
        """Move what SQLite wrote ahead into its file, once in so many turns, beside those who write on.

        SQLite would do it in a commit, with everybody in the queue behind it. What comes meanwhile is moved
        in a turn of our own: only when all of it is moved does the log begin anew, and stay short.
        """
        if self._queue is None or (number + 1) % TURNS_WRITTEN_AHEAD:
            return
        with contextlib.suppress(sqlite3.Error):
            driver = self._own().driver
            driver.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            with self._queue.turn():
                driver.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    @contextlib.contextmanager
    def _translated(self, name: str) -> Iterator[None]:
        try:
            yield
        except sqlalchemy.exc.IntegrityError:
            raise
        except sqlalchemy.exc.DBAPIError as error:
            raise pool_errors.DatabaseUnavailableError(
                f"the pools' database cannot be used ({name})",
                why=str(error.orig).strip() or type(error.orig).__name__,
                todo=f"is {self.url.render_as_string(hide_password=True)} there, and reachable?",
            ) from error

    def _ready(self) -> None:
        """The tables are there and up to date; looked at once."""
        if self._checked:
            return
        with self._check:
            if not self._checked:
                if self.revision() != migrations.HEAD:
                    self.upgrade()
                self._checked = True

    def revision(self) -> str:
        """The last migration that was run; '' for an empty database."""
        with self._translated("revision"):
            try:
                with self._engine.connect() as connection:
                    asked = connection.exec_driver_sql("SELECT version_num FROM alembic_version")
                    return str(asked.scalar() or "")
            except (sqlalchemy.exc.ProgrammingError, sqlalchemy.exc.OperationalError) as error:
                # Asked for outright: to look whether the table is there first takes ten times as long.
                if "alembic_version" in str(error.orig):
                    return ""
                raise

    def upgrade(self) -> None:
        """Run the migrations that are missing; one process does it, the others wait."""
        # Only here: Alembic takes a tenth of a second to import.
        import alembic.command
        import alembic.config

        config = alembic.config.Config()
        steps = str(pathlib.Path(__file__).parent / "migrations")
        config.set_main_option("script_location", steps.replace("%", "%%"))
        config.set_main_option("path_separator", "os")
        with self._translated("upgrade"), self._turn(), self._writer() as connection:
            if self.kind == "postgresql":
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(MIGRATION_LOCK)))
            config.attributes["connection"] = connection
            alembic.command.upgrade(config, "head")

    def close(self) -> None:
        """Let every connection go."""
        self.closed = True
        for kept in list(self._all_kept):
            kept.close()
        self._mine = threading.local()
        self._engine.dispose()


def _prepare(connection: Any, level: str) -> None:
    for pragma in (f"synchronous={level}", "foreign_keys=ON", fast_claim.LOG_LIMIT):
        connection.execute(f"PRAGMA {pragma}")


class _Kept:
    """A connection of the driver, closed with the thread or the database that keeps it."""

    def __init__(self, url: sa.URL, level: str) -> None:
        if level:
            self.driver: Any = sqlite3.connect(
                str(url.database), BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            self.driver.row_factory = sqlite3.Row
            _prepare(self.driver, level)
        else:
            import psycopg.rows

            plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
            self.driver = psycopg.connect(
                plain,
                autocommit=True,
                row_factory=psycopg.rows.dict_row,
                prepare_threshold=2,
                connect_timeout=10,
            )

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.driver.close()

    def __del__(self) -> None:
        if hasattr(self, "driver"):
            self.close()


def _writes_ahead(path: pathlib.Path) -> bool:
    """Whether the file does so already.

    SQLite is asked, and the file not looked into: to open and close it ourselves would drop the locks that
    other connections of this process hold on it (they are POSIX's). Whoever closes it next then takes
    itself for the last one and removes the log, and what those connections write is lost.
    """
    try:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            return bool(connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal")
    except sqlite3.Error:
        return False


def _write_ahead(path: pathlib.Path) -> None:
    """Readers beside a writer. The file remembers it; to change it nobody else may be looking."""
    until = time.monotonic() + BUSY_SECONDS
    while True:
        connection = sqlite3.connect(path)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if time.monotonic() >= until:
                raise sqlalchemy.exc.OperationalError("journal_mode", None, error) from error
            time.sleep(0.01)
        except sqlite3.DatabaseError as error:  # some other file
            raise sqlalchemy.exc.DatabaseError("journal_mode", None, error) from error
        finally:
            connection.close()


def _parsed(url: str) -> sa.URL:
    try:
        parsed = sa.make_url(url)
    except sqlalchemy.exc.ArgumentError as error:
        raise _not_a_database(url) from error
    backend = parsed.get_backend_name()
    if backend == "sqlite" and parsed.database and parsed.database != ":memory:":
        return parsed
    if backend in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    raise _not_a_database(url)


def _not_a_database(url: str) -> pool_errors.BadKnobError:
    return pool_errors.BadKnobError(
        "database",
        url.partition("@")[2] or url,
        "sqlite:////path/file.db or postgresql://host/name",
    )
