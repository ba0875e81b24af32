"""The fast path of a claim: one ready member, at once, while nobody waits. `claims` does the rest.

Standard library only: loading SQLAlchemy would double the time of `overnight pool acquire`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
from typing import TYPE_CHECKING, Any

from overnight.database import migrations, sqlite_files
from overnight.model.pool import Claim, Grant, Member, Request, new_id
from overnight.model.times import SECOND_US
from overnight.pools import wakeups

if TYPE_CHECKING:
    import pathlib

# On PostgreSQL this is one statement and one round trip; SQLite cannot change two tables in one statement, so
# it takes three in a transaction. The pool is selected first, on its own: only then does the planner read the
# index of ready members in order.
_PICK = """
  WITH p AS MATERIALIZED (
    SELECT id, {now} - {stale} * 1000000 AS since FROM pools
    WHERE (name = {pool} OR id = {pool}) AND status = 'active' AND {lease} <= {most}
      AND NOT EXISTS (SELECT 1 FROM pool_waiters w WHERE w.pool_id = pools.id))
  SELECT m.id FROM pool_members m LEFT JOIN pool_beats b ON b.member_id = m.id
  WHERE m.pool_id = (SELECT id FROM p)
    AND m.state = 'ready' AND m.gone_us IS NULL AND NOT m.cordoned AND m.missing_us IS NULL
    AND {greatest}(COALESCE(b.at_us, 0), m.ready_us) > (SELECT since FROM p)
  ORDER BY m.warming_started_us, m.id LIMIT 1"""
_MEMBER = ", ".join(field.name for field in dataclasses.fields(Member) if field.name != "beat_us")
_BEAT = "(SELECT at_us FROM pool_beats WHERE member_id = pool_members.id) AS beat_us"
_CLAIM = """id, pool_id, member_id, acquired_by, acquired_for, acquired_us, lease_until_us, renewals,
  batch_id, batch_place, idempotency_key, waited_us, cold, release_reason"""
_EVENT = "at_us, kind, pool_id, pool, member_id, claim_id, reason, detail, took_us"

TAKE_SQLITE = f"""
UPDATE pool_members SET state = 'claimed', acquired_us = :now, reason = 'claimed' WHERE id = ({
    _PICK.format(
        pool=":pool",
        now=":now",
        greatest="MAX",
        stale="json_extract(knobs, '$.heartbeat_stale_after_seconds')",
        lease=":lease",
        most="json_extract(knobs, '$.lease_max_seconds')",
    )
}) RETURNING {_MEMBER}, {_BEAT}"""  # noqa: S608  joins constant names only, here and below
CLAIM_SQLITE = f"""
INSERT INTO pool_claims ({_CLAIM}) VALUES
(:claim, :pool_id, :member, :by, :for, :now, :until, 0, '', 0, :key, 0, FALSE, '')"""  # noqa: S608
EVENT_SQLITE = f"""
INSERT INTO pool_events ({_EVENT})
SELECT :now, 'member_claimed', id, name, :member, :claim, 'claimed', :by, 0
FROM pools WHERE id = :pool_id"""  # noqa: S608

TAKE_POSTGRESQL = f"""
WITH picked AS ({
    _PICK.format(
        pool="%(pool)s",
        now="%(now)s::bigint",
        greatest="GREATEST",
        stale="(knobs->>'heartbeat_stale_after_seconds')::bigint",
        lease="%(lease)s::bigint",
        most="(knobs->>'lease_max_seconds')::bigint",
    )
} FOR UPDATE OF m SKIP LOCKED),
moved AS (
  UPDATE pool_members SET state = 'claimed', acquired_us = %(now)s, reason = 'claimed'
  WHERE id = (SELECT id FROM picked) RETURNING {_MEMBER}),
made AS (
  INSERT INTO pool_claims ({_CLAIM})
  SELECT %(claim)s, pool_id, id, %(by)s, %(for)s, %(now)s, %(until)s, 0, '', 0, %(key)s, 0, FALSE, ''
  FROM moved),
logged AS (
  INSERT INTO pool_events ({_EVENT})
  SELECT %(now)s, 'member_claimed', m.pool_id, p.name, m.id, %(claim)s, 'claimed', %(by)s, 0
  FROM moved m JOIN pools p ON p.id = m.pool_id)
SELECT {_MEMBER}, (SELECT at_us FROM pool_beats WHERE member_id = moved.id) AS beat_us
FROM moved"""  # noqa: S608


def serves(request: Request) -> bool:
    """Whether a request is for the fast path; the control plane serves or refuses the others."""
    lease = request.lease_seconds
    return request.count == 1 and (lease is None or lease > 0) and request.idempotency_key != ""


def take(driver: Any, kind: str, claim_id: str, pool: str, request: Request, now_us: int) -> Any:
    """Take the oldest ready member and write the claim, in the driver's transaction; None if there is none."""
    # Nothing that could be done before or after: on SQLite all other writers wait meanwhile.
    lease = request.lease_seconds
    values: dict[str, Any] = {
        "pool": pool,
        "claim": claim_id,
        "by": request.acquired_by,
        "for": request.acquired_for,
        "now": now_us,
        "until": None if lease is None else now_us + lease * SECOND_US,
        "key": request.idempotency_key,
        "lease": lease or 0,
    }
    if kind == "postgresql":
        return driver.execute(TAKE_POSTGRESQL, values).fetchone()
    row = driver.execute(TAKE_SQLITE, values).fetchone()
    if row is not None:
        values |= {"member": row["id"], "pool_id": row["pool_id"]}
        driver.execute(CLAIM_SQLITE, values)
        driver.execute(EVENT_SQLITE, values)
    return row


def build_grant(claim_id: str, request: Request, row: Any) -> Grant:
    """Return what was taken, once it is committed."""
    member = Member.from_row(dict(row))
    return Grant(member, build_claim(claim_id, request, member, member.acquired_us or 0))


def build_claim(claim_id: str, request: Request, member: Member, now_us: int) -> Claim:
    lease = request.lease_seconds
    return Claim(
        id=claim_id,
        pool_id=member.pool_id,
        member_id=member.id,
        acquired_by=request.acquired_by,
        acquired_for=request.acquired_for,
        acquired_us=now_us,
        lease_until_us=None if lease is None else now_us + lease * SECOND_US,
        idempotency_key=request.idempotency_key,
    )


def claim_in_file(path: pathlib.Path, pool: str, request: Request, now_us: int) -> Grant | None:
    """Claim from a SQLite file without the control plane; None if anything is unusual: nothing is changed."""
    claim_id = new_id("c")
    if not serves(request) or not path.is_file():
        return None
    with contextlib.closing(
        sqlite3.connect(path, sqlite_files.BUSY_SECONDS, isolation_level=None)
    ) as driver:
        driver.row_factory = sqlite3.Row
        try:
            revision = driver.execute("SELECT version_num FROM alembic_version").fetchone()
            if revision is None or revision[0] != migrations.HEAD:
                return None
            driver.execute("PRAGMA foreign_keys=ON")
            driver.execute("PRAGMA synchronous=NORMAL")
            driver.execute(f"PRAGMA {sqlite_files.LOG_LIMIT}")
            with sqlite_files.queue_of(path).turn():
                driver.execute("BEGIN IMMEDIATE")
                row = take(driver, "sqlite", claim_id, pool, request, now_us)
                driver.execute("COMMIT")
        except sqlite3.Error:
            return None  # closing rolls back; the control plane reports what is wrong
    if row is None:
        return None
    wakeups.LocalNotifier(path.parent).notify()
    return build_grant(claim_id, request, row)
