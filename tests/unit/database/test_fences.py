"""Rows that have one driver: every write names the fence of its driver."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from overnight.database import fences, statements

TABLE = sa.Table(
    "driven",
    sa.MetaData(),
    sa.Column("id", sa.Text, primary_key=True),
    *(sa.Column(name, sa.BigInteger) for name in ("fence", "driver_until_us", "next_us", "note")),
)
ROW = {"id": "a", "fence": 1, "driver_until_us": 100, "next_us": 50, "note": 0}


@pytest.fixture
def connection() -> Iterator[sa.Connection]:
    engine = sa.create_engine("sqlite://")
    TABLE.metadata.create_all(engine)
    with engine.begin() as opened:
        statements.add_missing(opened, TABLE, ROW, {**ROW, "id": "b"})
        yield opened


def read(connection: sa.Connection, key: str = "a") -> dict[str, object]:
    row = connection.execute(sa.select(TABLE).where(TABLE.c.id == key)).one()
    return dict(row._mapping)


def test_of_two_that_read_a_row_one_becomes_its_driver(connection: sa.Connection) -> None:
    fences.take(connection, TABLE, "a", 1, driver_until_us=200)
    with pytest.raises(fences.FenceLostError):
        fences.take(connection, TABLE, "a", 1, driver_until_us=300)
    assert read(connection) == {**ROW, "fence": 2, "driver_until_us": 200}
    assert read(connection, "b") == {**ROW, "id": "b"}


@pytest.mark.parametrize("fence", [1, 3])
def test_a_driver_with_another_fence_writes_nothing(connection: sa.Connection, fence: int) -> None:
    """An earlier driver; and one of a fence that is not there yet, as in a restored database."""
    fences.take(connection, TABLE, "a", 1)
    before = read(connection)
    with pytest.raises(fences.FenceLostError):
        fences.save(connection, TABLE, {**before, "fence": fence, "note": 9})
    with pytest.raises(fences.FenceLostError):
        fences.keep(connection, TABLE, "a", fence, 900)
    assert read(connection) == before
    fences.save(connection, TABLE, {**before, "note": 5})
    fences.keep(connection, TABLE, "a", 2, 900)
    assert read(connection) == {**before, "note": 5, "driver_until_us": 900}


@pytest.mark.parametrize(("now", "is_due"), [(49, False), (99, False), (100, True), (101, True)])
def test_a_row_is_due_when_its_driver_is_gone_and_its_time_has_come(
    connection: sa.Connection, now: int, is_due: bool
) -> None:
    fences.keep(connection, TABLE, "b", 1, 40)  # the driver of the other one is gone sooner
    due = {row.id for row in connection.execute(sa.select(TABLE).where(fences.is_due(TABLE, now)))}
    assert due == ({"a"} if is_due else set()) | ({"b"} if now >= 50 else set())
    exact = sa.select(TABLE).where(TABLE.c.id == "b", fences.is_due(TABLE, 50))
    assert connection.execute(exact).first() is not None


def test_an_update_has_all_of_its_conditions(connection: sa.Connection) -> None:
    conditions = (TABLE.c.fence == 1, TABLE.c.note == 7)
    assert not statements.update(TABLE, connection, "a", *conditions, note=1)
    assert not statements.update(TABLE, connection, "nowhere", note=1)
    assert statements.update(TABLE, connection, "a", TABLE.c.fence == 1, TABLE.c.note == 0, note=1)
    assert (read(connection)["note"], read(connection, "b")["note"]) == (1, 0)


def test_known_rows_stay_or_are_written_anew(connection: sa.Connection) -> None:
    statements.add_missing(connection, TABLE, {**ROW, "note": 8})
    assert read(connection)["note"] == 0
    statements.upsert(connection, TABLE, {"id": "a", "note": 8}, {"id": "c", "note": 9})
    assert read(connection) == {**ROW, "note": 8}
    assert read(connection, "c")["note"] == 9
    for nothing in (statements.add_missing, statements.upsert):
        nothing(connection, TABLE)
