"""The fast path of a claim does the same as the normal path, or nothing."""

from __future__ import annotations

import dataclasses
import pathlib

import pytest
import sqlalchemy as sa
from poolworld import State, World

from overnight.database import engine, migrations
from overnight.model.pool import Grant, Request
from overnight.pools import pool_errors
from overnight.pools.sql import fast_claim, schema


def in_file(world: World, pool: str = "ci", **request_fields: object) -> Grant | None:
    path = pathlib.Path(str(world.plane.context.database.url.database))
    return fast_claim.claim_in_file(path, pool, Request(**request_fields), world.clock.now_us)  # type: ignore[arg-type]


def without_ids(grant: Grant) -> object:
    return dataclasses.replace(grant.claim, id="", member_id="")


def test_both_paths_write_the_same(world: World) -> None:
    world.pool(target=2)
    world.fill()
    request_fields = {"acquired_by": "a", "acquired_for": "b", "lease_seconds": 60}
    [fast] = world.plane.acquire("ci", **request_fields)
    [normal] = world.plane._claims._try_locked("ci", Request(**request_fields))
    assert without_ids(fast) == without_ids(normal)
    assert fast.member.beat_us is not None
    details = world.plane.show("ci")
    assert sorted(details.claims, key=lambda c: c.id) == sorted(
        (fast.claim, normal.claim), key=lambda c: c.id
    )
    events = [e for e in details.events if e.kind == "member_claimed"]
    assert {(e.reason, e.detail, e.pool) for e in events} == {("claimed", "a", "ci")}
    for grant in (fast, normal):
        assert world.plane.member(grant.member.id) == grant.member


def test_the_query_reads_the_index_of_ready_members_in_order(world: World) -> None:
    """Otherwise every claim would sort all ready members."""
    world.pool(target=2)
    world.fill()
    parameters = {
        "pool": "ci", "now": world.clock.now_us, "claim": "c-1", "by": "", "for": "", "until": None,
        "key": None, "lease": 0,
    }  # fmt: skip
    with world.plane.context.database.quick("explain") as driver:
        if world.plane.context.database.kind == "sqlite":
            rows = driver.execute(
                "EXPLAIN QUERY PLAN " + fast_claim.TAKE_SQLITE, parameters
            ).fetchall()
            plan = " ".join(row["detail"] for row in rows)
            assert "TEMP B-TREE" not in plan
        else:
            driver.execute("SET enable_seqscan = off")
            driver.execute("SET enable_sort = off")
            driver.execute("SET enable_bitmapscan = off")
            rows = driver.execute("EXPLAIN " + fast_claim.TAKE_POSTGRESQL, parameters).fetchall()
            plan = " ".join(row["QUERY PLAN"] for row in rows)
            assert "Sort" not in plan
            driver.execute("RESET ALL")
    assert "members_claimable" in plan


@pytest.mark.parametrize("how", ["paused", "silent", "cordoned", "missing", "somebody waits", "too long a lease", "a batch"])  # fmt: skip
def test_special_cases_are_left_to_the_normal_path(world: World, how: str) -> None:
    world.pool(target=1)
    [member] = world.fill()
    request_fields: dict[str, object] = {}
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
            request_fields = {"lease_seconds": 86401}
        case "a batch":
            request_fields = {"count": 2}
    assert world.plane._claims._try_fast("ci", Request(**request_fields)) == ()  # type: ignore[arg-type]
    with pytest.raises(pool_errors.PoolError):
        world.plane.acquire("ci", **request_fields)
    assert world.plane.member(member.id).state is State.READY


def test_a_claim_directly_in_the_file(world: World) -> None:
    if world.plane.context.database.kind != "sqlite":
        assert world.plane.context.database.folder is None  # there is no file
        return
    world.pool(target=3)
    world.fill()
    with world.plane.context.notifier.listen() as wait:
        granted = in_file(world, acquired_by="cli", idempotency_key="k")
        assert granted is not None
        assert wait(5)
    assert world.plane.show("ci").claims[0] == granted.claim
    assert in_file(world, idempotency_key="k") is None  # the normal path has the answer
    assert in_file(world, "nope") is None
    assert in_file(world, count=2) is None
    world.check()
    with world.plane.context.database.write("older") as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '0000'"))
    assert in_file(world) is None
    assert migrations.HEAD != "0000"


def test_no_file_is_created(tmp_path: pathlib.Path) -> None:
    assert fast_claim.claim_in_file(tmp_path / "x.db", "ci", Request(), 0) is None
    (tmp_path / "y.db").touch()
    assert fast_claim.claim_in_file(tmp_path / "y.db", "ci", Request(), 0) is None
    assert not (tmp_path / "x.db").exists()


def test_the_write_ahead_log_of_sqlite_stays_short(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After some turns it is checkpointed into the file, and the log starts again."""
    if world.plane.context.database.kind != "sqlite":
        assert world.plane.context.database.folder is None  # it has no such log
        return
    monkeypatch.setattr(engine, "TURNS_WRITTEN_AHEAD", 4)
    world.pool(target=40)
    world.fill()
    for _ in range(40):
        world.plane.acquire("ci")
    with world.plane.context.database.quick("look") as driver:
        driver.execute("COMMIT")
        _, frames, _ = driver.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        driver.execute("BEGIN")
    assert frames < 40 * 4  # one claim writes eight
    world.check()
