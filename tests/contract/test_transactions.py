"""Transactions and connections: one state in a read, a deadline for every call, notifications that arrive."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pooldatabases
import pytest

from overnight.pools.sql import shared_values

if TYPE_CHECKING:
    from overnight.database import engine


@pytest.fixture
def databases(url: str) -> Iterator[tuple[engine.Database, engine.Database]]:
    pooldatabases.prepare(url)
    opened = pooldatabases.opened(url), pooldatabases.opened(url)
    yield opened
    for each in opened:
        each.close()


def test_a_read_sees_one_state(databases: tuple[engine.Database, engine.Database]) -> None:
    first, second = databases
    with first.read() as connection:
        assert shared_values.get(connection, "word") == ""
        with second.write("word") as other:
            shared_values.put(other, "word", "new")
        assert shared_values.get(connection, "word") == ""
    with first.read() as connection:
        assert shared_values.get(connection, "word") == "new"


def test_a_call_has_a_deadline_and_its_connection_is_not_used_again(
    databases: tuple[engine.Database, engine.Database],
) -> None:
    where = databases[0]
    if where.kind == "sqlite":
        assert where._queue is not None  # test_write_queue has its deadline
        return
    import psycopg

    driver = where._own().driver
    assert driver.seconds == 20.0
    driver.seconds = 0.3
    with pytest.raises(psycopg.Error):
        driver.execute("SELECT 1 / 0")
    assert not driver.closed  # it answered
    began = time.monotonic()
    with pytest.raises(psycopg.OperationalError):
        driver.execute("SELECT pg_sleep(30)")
    assert time.monotonic() - began < 20
    assert driver.closed  # the late answer must not be that of the next call
    where._drop()
    assert where._own().driver.execute("SELECT 1 AS one").fetchone() == {"one": 1}


def test_a_notification_arrives_also_after_the_connection_was_lost(
    databases: tuple[engine.Database, engine.Database], url: str
) -> None:
    where = databases[0]
    where.notify("overnight_test")  # never fails
    if where.kind == "sqlite":
        return
    import psycopg

    with psycopg.connect(url, autocommit=True) as listener:
        listener.execute("LISTEN overnight_test")
        for _ in range(2):
            pid = where._own().driver.info.backend_pid
            listener.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
            where.notify("overnight_test")
        received = list(listener.notifies(timeout=20, stop_after=2))
    assert [each.channel for each in received] == ["overnight_test"] * 2


def test_a_deadline_of_a_connection_may_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    from overnight.database import postgresql

    asked: list[object] = []
    monkeypatch.setattr(
        postgresql.Connection, "connect", lambda *_, connect_timeout: asked.append(connect_timeout)
    )
    postgresql.connect("postgresql://x/y")
    postgresql.connect("postgresql://x/y", connect_timeout=2)
    assert asked == [postgresql.CONNECT_SECONDS, 2]
