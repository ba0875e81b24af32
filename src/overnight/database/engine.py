"""The database: SQLite (a file, the default) or PostgreSQL (for a fleet).

Transactions are short, and no provider is called inside one. On SQLite writers queue; on PostgreSQL rows are
locked. `steps` is called at every boundary where a crash would matter: tests raise there.

`sqlite:///…` survives a crash of overnight; with `?synchronous=FULL` also a power cut, which members in a
cloud survive too, unlike those of this machine.
"""

from __future__ import annotations

import contextlib
import os
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

from overnight import errors
from overnight.database import database_errors, migrations, sqlite_files, write_queue
from overnight.model import files, secrets

TURNS_WRITTEN_AHEAD = 512
RESERVE_BYTES = 1 << 20  # a transaction that revokes a credential writes some pages of 4 KiB
MIGRATION_LOCK = 0x6F76_6E70  # "ovnp": an advisory lock that only upgrades take
Steps = Callable[[str], None]
Connection = sa.Connection
IntegrityError = sqlalchemy.exc.IntegrityError


def default_url(home: pathlib.Path) -> str:
    return f"sqlite:///{sqlite_files.default_path(home)}"


class Database:
    """The database. Safe to share between threads."""

    def __init__(self, url: str, *, steps: Steps = lambda _: None) -> None:
        self.steps = steps
        self.url = _parsed(url)
        self.kind = self.url.get_backend_name()
        self._queue: write_queue.WriteQueue | None = None
        self._level = ""
        self._reserve: pathlib.Path | None = None  # of a file
        self._local = threading.local()
        self._connections: weakref.WeakSet[_DriverConnection] = weakref.WeakSet()
        self._engine = self._sqlite() if self.kind == "sqlite" else self._postgresql()
        self.closed = False
        self._checked = False
        self._check = threading.Lock()

    @property
    def folder(self) -> pathlib.Path | None:
        """The folder of the file; None for a server."""
        return pathlib.Path(str(self.url.database)).parent if self.kind == "sqlite" else None

    def _sqlite(self) -> sa.Engine:
        path = pathlib.Path(str(self.url.database))
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Only a new file: to close one that SQLite has open would drop its locks (fcntl(2)).
            with contextlib.suppress(FileExistsError):
                os.close(files.open_private(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
            sqlite_files.queue_of(path).open()
        except OSError as error:
            raise database_errors.DatabaseUnavailableError(
                f"cannot create the database in {path.parent}",
                why=str(error),
                todo="check the permissions, or choose another file: --database sqlite:////path/file.db",
            ) from error
        self._level = level = str(self.url.query.get("synchronous", "NORMAL")).upper()
        if level not in ("NORMAL", "FULL"):
            raise database_errors.BadUrlError("synchronous", level, "NORMAL or FULL")
        self._queue = sqlite_files.queue_of(path)
        self._reserve = path.with_name(f"{path.name}-reserve")
        if not _writes_ahead(path):
            with self._translated("open"), self._queue.turn():
                _write_ahead(path)
        engine = sa.create_engine(
            self.url.set(query={}),
            connect_args={"timeout": sqlite_files.BUSY_SECONDS},
            pool_size=8,
            max_overflow=64,
        )

        @hooks.listens_for(engine, "connect")
        def _opened(connection: Any, _: object) -> None:
            connection.isolation_level = None  # transactions are begun explicitly
            _prepare(connection, level)

        @hooks.listens_for(engine, "begin")
        def _begun(connection: sa.Connection) -> None:
            writes = connection.get_execution_options().get("overnight_writes", False)
            connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

        return engine

    def _postgresql(self) -> sa.Engine:
        try:
            from overnight.database import postgresql

            engine = sa.create_engine(
                self.url,
                pool_pre_ping=True,
                pool_size=8,
                max_overflow=64,
                pool_timeout=postgresql.CALL_SECONDS,
            )
        except ImportError as error:
            raise database_errors.DatabaseUnavailableError(
                "PostgreSQL cannot be used",
                why=f"its driver is missing: {error}",
                todo="pip install 'overnight[postgresql]'",
            ) from error

        @hooks.listens_for(engine, "do_connect")
        def _connect(_dialect: Any, _record: Any, given: list[Any], named: dict[str, Any]) -> Any:
            return postgresql.connect(*given, **named)

        return engine

    @contextlib.contextmanager
    def write(self, name: str) -> Iterator[sa.Connection]:
        """Open a transaction that writes; errors and `steps` show `name`."""
        self._ready()
        self.steps(f"{name}: begin")
        with self._translated(name), self._turn() as number, self._writer() as connection:
            yield connection
            self.steps(f"{name}: before commit")
        self.steps(f"{name}: after commit")
        self._checkpoint(number)

    @contextlib.contextmanager
    def write_always(self, name: str) -> Iterator[sa.Connection]:
        """Open a transaction that writes, also on a full disk: a reserve makes room for it."""
        self._ready()
        if self._reserve:
            self._reserve.unlink(missing_ok=True)
        try:
            with self.write(name) as connection:
                yield connection
        finally:
            self._keep_reserve()

    def _keep_reserve(self) -> None:
        """Write the reserve again, as far as there is room."""
        if self._reserve:
            with contextlib.suppress(OSError):
                descriptor = files.open_private(self._reserve, os.O_WRONLY | os.O_CREAT)
                with os.fdopen(descriptor, "wb") as file:
                    os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES)

    @contextlib.contextmanager
    def _writer(self) -> Iterator[sa.Connection]:
        with self._engine.connect() as opened:
            connection = opened.execution_options(overnight_writes=True)
            with connection.begin():
                yield connection

    @contextlib.contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """Open a consistent read; on SQLite it never waits for the writer."""
        self._ready()
        level = {"isolation_level": "REPEATABLE READ"} if self.kind == "postgresql" else {}
        with self._translated("read"), self._engine.connect() as opened:
            connection = opened.execution_options(overnight_writes=False, **level)
            with connection.begin():
                yield connection

    @contextlib.contextmanager
    def quick(self, name: str) -> Iterator[Any]:
        """Yield the driver's connection of this thread, for what is done thousands of times a second.

        On SQLite it is a transaction that writes; on PostgreSQL every statement is its own transaction.
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
                # Its state is unknown: the next claim opens a new one.
                self._drop()
                dbapi: Any = self._engine.dialect.loaded_dbapi
                if isinstance(error, dbapi.IntegrityError):
                    raise sqlalchemy.exc.IntegrityError(name, None, error) from error
                if isinstance(error, dbapi.Error):
                    raise sqlalchemy.exc.OperationalError(name, None, error) from error
                raise
        self.steps(f"{name}: after commit")
        self._checkpoint(number)

    def _own(self) -> _DriverConnection:
        kept: _DriverConnection | None = getattr(self._local, "kept", None)
        if kept is None:
            kept = self._local.kept = _DriverConnection(self._engine.url, self._level)
            self._connections.add(kept)
        return kept

    def _drop(self) -> None:
        kept: _DriverConnection | None = getattr(self._local, "kept", None)
        if kept is not None:
            self._local.kept = None
            kept.close()

    def notify(self, channel: str) -> None:
        """Send NOTIFY on this thread's connection; never fails."""
        for _ in range(2):  # the server may have been restarted: retry on a new connection
            if self.closed:
                return
            try:
                self._own().driver.execute(f"NOTIFY {channel}")
            except Exception:
                self._drop()
            else:
                break
        if self.closed:  # meanwhile, by another thread: close ours
            self._drop()

    def _turn(self) -> contextlib.AbstractContextManager[int]:
        return contextlib.nullcontext(0) if self._queue is None else self._queue.turn()

    def _checkpoint(self, number: int) -> None:
        """Checkpoint SQLite's write-ahead log every TURNS_WRITTEN_AHEAD turns, beside other writers.

        SQLite would do it inside a commit, with all writers waiting. What is written meanwhile is moved in a
        turn of our own: only a completely moved log restarts, and stays short.
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
        except (
            sqlalchemy.exc.DBAPIError,
            sqlalchemy.exc.TimeoutError,
            write_queue.TurnError,
        ) as error:
            cause = getattr(error, "orig", error)
            why = self._mask(str(cause).strip()) or type(cause).__name__
            todo = f"check that {secrets.mask_url(str(self.url))} exists and is reachable"
            if self._reserve and (full := files.find_disk_problem(self._reserve.parent)):
                why, todo = f"{why}: {errors.reason(full)}", "free disk space"
            raise database_errors.DatabaseUnavailableError(
                f"the database failed ({name})", why=why, todo=todo
            ) from error

    def _mask(self, text: str) -> str:
        """Mask the URL's secrets in the text of a driver."""
        query = self.url.query.items()
        for value in (
            self.url.password,
            *(value for name, value in query if secrets.named_secret(name)),
        ):
            if isinstance(value, str) and len(value) > 1:
                text = text.replace(value, secrets.MASK)
        return text

    def _ready(self) -> None:
        """Make sure, once, that the tables exist and are up to date."""
        if self._checked:
            return
        with self._check:
            if not self._checked:
                if self.revision() != migrations.HEAD:
                    self.upgrade()
                self._keep_reserve()
                self._checked = True

    def revision(self) -> str:
        """Return the last migration that was run; '' for an empty database."""
        with self._translated("revision"):
            try:
                with self._engine.connect() as connection:
                    rows = connection.exec_driver_sql("SELECT version_num FROM alembic_version")
                    return str(rows.scalar() or "")
            except (sqlalchemy.exc.ProgrammingError, sqlalchemy.exc.OperationalError) as error:
                # Checking first whether the table exists takes ten times as long.
                if "alembic_version" in str(error.orig):
                    return ""
                raise

    def upgrade(self) -> None:
        """Run missing migrations; one process does it, others wait."""
        # Imported here: Alembic takes a tenth of a second.
        import alembic.command
        import alembic.config

        config = alembic.config.Config()
        steps = str(pathlib.Path(__file__).parent / "migrations")
        config.set_main_option("script_location", steps.replace("%", "%%"))
        config.set_main_option("path_separator", "os")
        with self._translated("upgrade"), self._turn(), self._writer() as connection:
            config.attributes["connection"] = connection
            if self.kind == "postgresql":
                driver: Any = connection.connection.dbapi_connection
                connection.detach()  # not used again
                driver.seconds = None  # any time
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(MIGRATION_LOCK)))
            alembic.command.upgrade(config, "head")

    def close(self) -> None:
        self.closed = True
        for kept in list(self._connections):
            kept.close()
        self._local = threading.local()
        self._engine.dispose()


def _prepare(connection: Any, level: str) -> None:
    for pragma in (f"synchronous={level}", "foreign_keys=ON", sqlite_files.LOG_LIMIT):
        connection.execute(f"PRAGMA {pragma}")


class _DriverConnection:
    """A driver connection, closed with its thread or its database."""

    def __init__(self, url: sa.URL, level: str) -> None:
        if level:
            self.driver: Any = sqlite3.connect(
                str(url.database),
                sqlite_files.BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
            self.driver.row_factory = sqlite3.Row
            _prepare(self.driver, level)
        else:
            import psycopg.rows

            from overnight.database import postgresql

            plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
            self.driver = postgresql.connect(
                plain, autocommit=True, row_factory=psycopg.rows.dict_row, prepare_threshold=2
            )

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.driver.close()

    def __del__(self) -> None:
        if hasattr(self, "driver"):
            self.close()


def _writes_ahead(path: pathlib.Path) -> bool:
    """Whether the file is in WAL mode."""
    # Asks SQLite: opening and closing the file here would drop the POSIX locks that other connections of this
    # process hold. The next one to close would take itself for the last, delete the log, and lose their writes.
    try:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            return bool(connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal")
    except sqlite3.Error:
        return False


def _write_ahead(path: pathlib.Path) -> None:
    """Switch the file to WAL mode, so that readers do not block the writer; needs exclusive access."""
    until = time.monotonic() + sqlite_files.BUSY_SECONDS
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
    with contextlib.suppress(sqlalchemy.exc.ArgumentError, ValueError):
        parsed = sa.make_url(url)
        backend = parsed.get_backend_name()
        if backend == "sqlite" and parsed.database and parsed.database != ":memory:":
            return parsed
        before, at, after = url.partition("@")
        if backend in ("postgresql", "postgres"):
            if "@" in after or (at and "?" in before):  # errors of the driver would show the rest
                wanted = "a URL that has %40 for @ and %3F for ? in a password"
                raise database_errors.BadUrlError("database", secrets.mask_url(url), wanted)
            return parsed.set(drivername="postgresql+psycopg")
    wanted = "sqlite:////path/file.db or postgresql://host/name"
    raise database_errors.BadUrlError("database", secrets.mask_url(url), wanted)
