"""The fast way of a claim: one ready member, at once, where nobody waits. Anything else is `claiming`'s.

Standard library only, so that a command that claims does not load what it does not use: with SQLAlchemy it
would take twice as long.
"""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING, Any

from overnight.model.pool import Claim, Grant, Request, member_of, new_id
from overnight.pools import migrations, wakeups, write_queue

if TYPE_CHECKING:
    import pathlib

__all__ = ["claim_in_file", "default_path", "granted", "order", "queue_of", "take"]

SECOND = 1_000_000
BUSY_SECONDS = 30
# `Database` sees to the log that SQLite writes ahead; only where nobody did for long, a commit does.
LOG_LIMIT = "wal_autocheckpoint=16000"

# The fast way of a claim: one member, at once, where nobody waits. On PostgreSQL it is one statement and one
# round trip; SQLite cannot change two tables in one, so it has three in a transaction.
# The pool comes first, and by itself: only then is the index of ready members read in its order.
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
_MEMBER = """id, pool_id, state, generation, provider, machine_id, address, region, cordoned, reason,
  warming_started_us, launched_us, ready_us, acquired_us, missing_us, ended_us, attempts,
  next_attempt_us, abandoned_us, gone_us"""
_BEAT = "(SELECT at_us FROM pool_beats WHERE member_id = pool_members.id) AS beat_us"
_CLAIM = """id, pool_id, member_id, acquired_by, acquired_for, acquired_us, lease_until_us, renewals,
  batch_id, batch_place, idempotency_key, waited_us, cold, release_reason"""
_EVENT = "at_us, kind, pool_id, pool, member_id, claim_id, reason, detail"

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
}) RETURNING {_MEMBER}, {_BEAT}"""  # noqa: S608  only names of ours are put together, here and below
CLAIM_SQLITE = f"""
INSERT INTO pool_claims ({_CLAIM}) VALUES
(:claim, :pool_id, :member, :by, :for, :now, :until, 0, '', 0, :key, 0, FALSE, '')"""  # noqa: S608
TELL_SQLITE = f"""
INSERT INTO pool_events ({_EVENT})
SELECT :now, 'member_claimed', id, name, :member, :claim, 'claimed', :by
FROM pools WHERE id = :pool_id"""  # noqa: S608

QUICK_POSTGRESQL = f"""
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
told AS (
  INSERT INTO pool_events ({_EVENT})
  SELECT %(now)s, 'member_claimed', m.pool_id, p.name, m.id, %(claim)s, 'claimed', %(by)s
  FROM moved m JOIN pools p ON p.id = m.pool_id)
SELECT {_MEMBER}, (SELECT at_us FROM pool_beats WHERE member_id = moved.id) AS beat_us
FROM moved"""  # noqa: S608


def default_path(home: pathlib.Path) -> pathlib.Path:
    """Where the database of a data home is."""
    return home / "pools" / "pools.db"


def queue_of(path: pathlib.Path) -> write_queue.WriteQueue:
    """The queue in which those who write to a file stand."""
    return write_queue.WriteQueue(path.with_name(path.name + "-writers"))


def order(name: str, asked: Request) -> dict[str, Any] | None:
    """What a claim says to the database, made before its turn; None: it is not for the fast way."""
    lease = asked.lease_seconds
    if asked.count != 1 or (lease is not None and lease < 1) or asked.idempotency_key == "":
        return None  # refused, or done, by the other way
    return {
        "pool": name,
        "claim": new_id("c"),
        "by": asked.acquired_by,
        "for": asked.acquired_for,
        "until": None,
        "key": asked.idempotency_key,
        "lease": lease or 0,
    }


def take(driver: Any, kind: str, made: dict[str, Any], now_us: int) -> Any:
    """Take the oldest ready member and write the claim, in the transaction of the driver; None: not so.

    What can be done before or after is not done here: on SQLite everybody else stands in the queue.
    """
    made["now"] = now_us
    if made["lease"]:
        made["until"] = now_us + made["lease"] * SECOND
    if kind == "postgresql":
        return driver.execute(QUICK_POSTGRESQL, made).fetchone()
    row = driver.execute(TAKE_SQLITE, made).fetchone()
    if row is not None:
        made["member"], made["pool_id"] = row["id"], row["pool_id"]
        driver.execute(CLAIM_SQLITE, made)
        driver.execute(TELL_SQLITE, made)
    return row


def granted(made: dict[str, Any], row: Any) -> Grant:
    """What was taken, once it is committed."""
    member = member_of(dict(row))
    return Grant(
        member,
        Claim(
            id=made["claim"],
            pool_id=member.pool_id,
            member_id=member.id,
            acquired_by=made["by"],
            acquired_for=made["for"],
            acquired_us=made["now"],
            lease_until_us=made["until"],
            idempotency_key=made["key"],
        ),
    )


def claim_in_file(path: pathlib.Path, name: str, asked: Request, now_us: int) -> Grant | None:
    """The same on a SQLite file by itself; None where anything is unusual, and nothing was changed."""
    made = order(name, asked)
    if made is None or not path.is_file():
        return None
    with contextlib.closing(sqlite3.connect(path, BUSY_SECONDS, isolation_level=None)) as driver:
        driver.row_factory = sqlite3.Row
        try:
            revision = driver.execute("SELECT version_num FROM alembic_version").fetchone()
            if revision is None or revision[0] != migrations.HEAD:
                return None
            driver.execute("PRAGMA foreign_keys=ON")
            driver.execute("PRAGMA synchronous=NORMAL")
            driver.execute(f"PRAGMA {LOG_LIMIT}")
            with queue_of(path).turn():
                driver.execute("BEGIN IMMEDIATE")
                row = take(driver, "sqlite", made, now_us)
                driver.execute("COMMIT")
        except sqlite3.Error:
            return None  # closing it undoes what was begun; the usual way says what is wrong
    if row is None:
        return None
    wakeups.LocalNotifier(path.parent).notify()
    return granted(made, row)
