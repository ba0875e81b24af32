"""Transactions of SQLite: what is left after a failure, a full disk, or a close."""

from __future__ import annotations

import json
import os
import pathlib
import sqlite3
import threading
import time
from collections.abc import Iterator

import pytest
import sqlalchemy as sa
import sqlalchemy.exc

from overnight.database import (
    column_types,
    database_errors,
    engine,
    migrations,
    sqlite_files,
    write_queue,
)
from overnight.pools.sql import shared_values


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "pools.db"


@pytest.fixture
def where(path: pathlib.Path) -> Iterator[engine.Database]:
    opened = engine.Database(f"sqlite:///{path}")
    yield opened
    opened.close()


def open_files(path: pathlib.Path) -> int:
    """Return how often this process has the file itself open."""
    links = [pathlib.Path(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]  # noqa: PTH208
    return sum(link.is_symlink() and os.readlink(link) == str(path) for link in links)  # noqa: PTH115


def test_the_reserve_is_there_before_and_after_each_revocation(
    where: engine.Database, path: pathlib.Path
) -> None:
    reserve = path.with_name("pools.db-reserve")

    def allocated() -> int:
        return reserve.stat().st_blocks * 512 if reserve.exists() else 0

    with where.read():
        assert allocated() >= engine.RESERVE_BYTES
    with where.write_always("revoke"):
        assert not reserve.exists()  # its room is for this transaction
    assert allocated() >= engine.RESERVE_BYTES
    with pytest.raises(ZeroDivisionError), where.write_always("revoke"):
        raise ZeroDivisionError
    assert allocated() >= engine.RESERVE_BYTES
    reserve.unlink()  # it could not be written on a full disk
    with where.write_always("revoke") as connection:
        shared_values.put(connection, "word", "a")
    assert allocated() >= engine.RESERVE_BYTES


def test_a_quick_transaction_that_fails_leaves_nothing_and_the_next_one_is_new(
    where: engine.Database,
) -> None:
    insert = f"INSERT INTO {shared_values.table.name} (name, value) VALUES (?, ?)"
    with pytest.raises(ZeroDivisionError), where.quick("claim") as driver:
        assert 1 / (driver.execute(insert, ("a", "1")).rowcount - 1)
    with where.quick("claim") as driver:
        assert driver.execute("PRAGMA foreign_keys").fetchone()[0] == 1
        driver.execute(insert, ("b", "2"))
    with where.read() as connection:
        assert [shared_values.get(connection, name) for name in "ab"] == ["", "2"]
    with pytest.raises(sqlalchemy.exc.IntegrityError), where.quick("claim") as driver:
        driver.execute(insert, ("b", "3"))
    with pytest.raises(database_errors.DatabaseUnavailableError), where.quick("claim") as driver:
        driver.execute("SELECT no_such_column")


def test_a_write_that_another_process_holds_up_is_an_error_of_the_database(
    where: engine.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def give_up(*_: object) -> None:
        raise write_queue.TurnError("another process")

    with where.read():
        pass
    monkeypatch.setattr(write_queue.WriteQueue, "turn", give_up)
    for transaction in (where.write, where.quick, where.write_always):
        with pytest.raises(database_errors.DatabaseUnavailableError) as caught, transaction("x"):  # type: ignore[attr-defined]
            pass
        assert caught.value.why == "another process"


def test_a_close_closes_every_connection(path: pathlib.Path) -> None:
    where = engine.Database(f"sqlite:///{path}")
    with where.quick("claim"), where.read():
        pass
    assert open_files(path) > 0
    where.close()
    assert open_files(path) == 0
    with where.quick("claim"):  # another one: it is opened again
        assert open_files(path) == 1
    where.close()
    assert open_files(path) == 0


def test_an_empty_database_has_no_revision_and_a_damaged_one_is_an_error(
    path: pathlib.Path,
) -> None:
    where = engine.Database(f"sqlite:///{path}")
    assert where.revision() == ""
    with where.read():
        pass
    assert where.revision() == migrations.HEAD
    where.close()
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE alembic_version RENAME COLUMN version_num TO other")
    damaged = engine.Database(f"sqlite:///{path}")
    with pytest.raises(database_errors.DatabaseUnavailableError, match=r"failed \(revision\)"):
        damaged.revision()
    damaged.close()


def test_a_file_that_another_program_has_locked_for_a_moment_is_opened(path: pathlib.Path) -> None:
    """It is not in WAL mode yet, and the switch needs it alone."""
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("CREATE TABLE t (x)")
    other.execute("BEGIN EXCLUSIVE")
    threading.Timer(0.3, other.execute, ["COMMIT"]).start()
    began = time.monotonic()
    where = engine.Database(f"sqlite:///{path}")
    assert time.monotonic() - began < sqlite_files.BUSY_SECONDS
    with where.write("x") as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
    where.close()
    other.close()


@pytest.mark.parametrize("secret", ["ab", "a-long-password"])
def test_a_short_password_is_masked_in_errors_of_the_driver_too(secret: str) -> None:
    where = engine.Database(
        f"postgresql://me:{secret}@db/x?connect_timeout=37&sslpassword=x{secret}"
    )
    masked = where._mask(f"no {secret} and no x{secret} within 37 s")
    where.close()
    assert secret not in masked
    assert masked.endswith("within 37 s")


@pytest.mark.parametrize(
    "url", ["postgresql://me:pa?ss@db/x", "postgresql://me:p@ss@db/x", "sqlite://", "sqlite:///:memory:"]
)  # fmt: skip
def test_a_url_that_would_be_read_otherwise_is_refused(url: str) -> None:
    with pytest.raises(database_errors.BadUrlError):
        engine.Database(url)


def test_texts_that_no_database_takes_are_stored_as_question_marks() -> None:
    engine_ = sa.create_engine("sqlite://")
    kinds = (column_types.Document(), column_types.PackedDocument())
    table = sa.Table(
        "t", sa.MetaData(), *(sa.Column(f"c{n}", kind) for n, kind in enumerate(kinds))
    )
    table.metadata.create_all(engine_)
    given = {"a\0": "\ud800", "ü": [1, None]}
    with engine_.begin() as connection:
        connection.execute(table.insert().values(c0=given, c1=given))
        row = connection.execute(sa.select(table)).one()
        text = connection.exec_driver_sql("SELECT c0 FROM t").scalar_one()
    assert tuple(row) == ({"a\0": "?", "ü": [1, None]},) * 2
    assert json.loads(text) == row[0]
    text.encode()


@pytest.mark.parametrize("level", ["OFF", "EXTRA", "NORMAL; DROP TABLE fleet_hosts"])
def test_a_level_that_is_not_safe_is_refused(path: pathlib.Path, level: str) -> None:
    with pytest.raises(database_errors.BadUrlError, match="synchronous"):
        engine.Database(f"sqlite:///{path}?synchronous={level}")


@pytest.mark.parametrize("name", ["write", "quick"])
def test_a_transaction_waits_for_a_program_outside_of_the_queue_and_keeps_it_out(
    where: engine.Database, path: pathlib.Path, name: str
) -> None:
    """A transaction counts from its begin: its reads must not change before it writes."""
    with where.read():
        pass
    other = sqlite3.connect(path, 0, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    threading.Timer(0.2, other.execute, ["COMMIT"]).start()
    with getattr(where, name)("x"), pytest.raises(sqlite3.OperationalError, match="locked"):
        other.execute("BEGIN IMMEDIATE")
    with where.read():
        other.execute("BEGIN IMMEDIATE")  # a read keeps nobody out
        other.execute("COMMIT")
    other.close()


@pytest.mark.parametrize("name", ["write", "quick"])
def test_the_log_of_many_writes_stays_short(
    where: engine.Database, path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(engine, "TURNS_WRITTEN_AHEAD", 4)
    with where.write("make") as connection:
        connection.exec_driver_sql("CREATE TABLE large (x BLOB)")
    for _ in range(30):
        with getattr(where, name)("x") as driver:
            run = driver.execute if name == "quick" else driver.exec_driver_sql
            run("INSERT INTO large VALUES (zeroblob(100000))")
    assert path.with_name("pools.db-wal").stat().st_size < 1_500_000
