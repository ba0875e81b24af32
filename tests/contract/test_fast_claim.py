"""The fast way of a claim does what the usual way does, or nothing."""

from __future__ import annotations

import dataclasses
import pathlib

import pytest
import sqlalchemy as sa
from poolworld import State, World

from overnight.model.pool import Grant, Request
from overnight.pools import database, migrations, pool_errors
from overnight.pools.sql import fast_claim, schema


def in_file(world: World, pool: str = "ci", **asked: object) -> Grant | None:
    path = pathlib.Path(str(world.plane.context.database.url.database))
    return fast_claim.claim_in_file(path, pool, Request(**asked), world.clock.now_us)  # type: ignore[arg-type]


def without_ids(grant: Grant) -> object:
    return dataclasses.replace(grant.claim, id="", member_id="")


def test_both_ways_write_the_same(world: World) -> None:
    world.pool(target=2)
    world.fill()
    asked = {"acquired_by": "a", "acquired_for": "b", "lease_seconds": 60}
    [fast] = world.plane.acquire("ci", **asked)
    [usual] = world.plane._claims._try_now("ci", Request(**asked))
    assert without_ids(fast) == without_ids(usual)
    assert fast.member.beat_us is not None
    shown = world.plane.show("ci")
    assert sorted(shown.claims, key=lambda c: c.id) == sorted(
        (fast.claim, usual.claim), key=lambda c: c.id
    )
    events = [e for e in shown.events if e.kind == "member_claimed"]
    assert {(e.reason, e.detail, e.pool) for e in events} == {("claimed", "a", "ci")}
    for grant in (fast, usual):
        assert world.plane.member(grant.member.id) == grant.member


def test_it_reads_the_index_of_ready_members_in_its_order(world: World) -> None:
    """Without, every claim would sort every ready member."""
    world.pool(target=2)
    world.fill()
    said = {
        "pool": "ci", "now": world.clock.now_us, "claim": "c-1", "by": "", "for": "", "until": None,
        "key": None, "lease": 0,
    }  # fmt: skip
    with world.plane.context.database.quick("explain") as driver:
        if world.plane.context.database.kind == "sqlite":
            rows = driver.execute("EXPLAIN QUERY PLAN " + fast_claim.TAKE_SQLITE, said).fetchall()
            plan = " ".join(row["detail"] for row in rows)
            assert "TEMP B-TREE" not in plan
        else:
            driver.execute("SET enable_seqscan = off")
            driver.execute("SET enable_sort = off")
            driver.execute("SET enable_bitmapscan = off")
            rows = driver.execute("EXPLAIN " + fast_claim.TAKE_POSTGRESQL, said).fetchall()
            plan = " ".join(row["QUERY PLAN"] for row in rows)
            assert "Sort" not in plan
            driver.execute("RESET ALL")
    assert "members_claimable" in plan


@pytest.mark.parametrize("how", ["paused", "silent", "cordoned", "missing", "somebody waits", "too long a lease", "a batch"])  # fmt: skip
def test_what_is_unusual_is_left_to_the_usual_way(world: World, how: str) -> None:
    world.pool(target=1)
    [member] = world.fill()
    asked: dict[str, object] = {}
    match how:
        case "paused":
            world.plane.update("ci", status="paused")
        case "silent":
            world.clock.forward(180)
        case "cordoned":
            world.plane.set_cordoned(member.id, cordoned=True)
        case "missing":
            world.provider.machines.clear()
            world.plane.sweep("scripted")
        case "somebody waits":
            with world.plane.context.database.write("wait") as connection:
                connection.execute(
                    schema.waiters.insert().values(
                        id="w", pool_id=member.pool_id, priority=0, wanted=1, queued_us=0,
                        seen_us=world.clock.now_us, acquired_by="",
                    )
                )  # fmt: skip
        case "too long a lease":
            asked = {"lease_seconds": 86401}
        case "a batch":
            asked = {"count": 2}
    assert world.plane._claims._try_fast("ci", Request(**asked)) == ()  # type: ignore[arg-type]
    with pytest.raises(pool_errors.PoolError):
        world.plane.acquire("ci", **asked)
    assert world.plane.member(member.id).state is State.READY


def test_from_the_file_alone(world: World) -> None:
    if world.plane.context.database.kind != "sqlite":
        assert world.plane.context.database.folder is None  # there is no file
        return
    world.pool(target=3)
    world.fill()
    with world.plane.context.notifier.listen() as listener:
        granted = in_file(world, acquired_by="cli", idempotency_key="k")
        assert granted is not None
        assert listener.wait(5)
    assert world.plane.show("ci").claims[0] == granted.claim
    assert in_file(world, idempotency_key="k") is None  # the usual way has the answer
    assert in_file(world, "nope") is None
    assert in_file(world, count=2) is None
    world.check()
    with world.plane.context.database.write("older") as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '0000'"))
    assert in_file(world) is None
    assert migrations.HEAD != "0000"


def test_no_file_is_made(tmp_path: pathlib.Path) -> None:
    assert fast_claim.claim_in_file(tmp_path / "x.db", "ci", Request(), 0) is None
    (tmp_path / "y.db").touch()
    assert fast_claim.claim_in_file(tmp_path / "y.db", "ci", Request(), 0) is None
    assert not (tmp_path / "x.db").exists()


def test_what_sqlite_writes_ahead_stays_short(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is moved into the file once in so many turns, and the log begins anew."""
    if world.plane.context.database.kind != "sqlite":
        assert world.plane.context.database.folder is None  # it has no such log
        return
    monkeypatch.setattr(database, "TURNS_WRITTEN_AHEAD", 4)
    world.pool(target=40)
    world.fill()
    for _ in range(40):
        world.plane.acquire("ci")
    with world.plane.context.database.quick("look") as driver:
        driver.execute("COMMIT")
        _, frames, _ = driver.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        driver.execute("BEGIN")
    assert frames < 40 * 4  # a claim alone writes eight
    world.check()
