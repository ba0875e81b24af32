"""Rows of claims."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import sqlalchemy as sa

from overnight.database import statements
from overnight.model.pool import Claim, Pool
from overnight.pools import pool_errors
from overnight.pools.sql import event_rows, schema

claims = schema.claims
_update = functools.partial(statements.update, claims)


def _read(connection: sa.Connection, chosen: sa.Select[Any]) -> list[Claim]:
    return [
        Claim(**{name: value for name, value in row.items() if name != "batch_place"})
        for row in connection.execute(chosen).mappings()
    ]


def find(connection: sa.Connection, claim_id: str) -> Claim:
    """Read and lock a claim, also one that has ended; raises ClaimNotFoundError."""
    chosen = sa.select(claims).where(claims.c.id == claim_id).with_for_update()
    for claim in _read(connection, chosen):
        return claim
    raise pool_errors.ClaimNotFoundError(claim_id)


def find_pool_id(connection: sa.Connection, claim_id: str) -> str:
    """Return the pool of a claim; raises ClaimNotFoundError."""
    chosen = sa.select(claims.c.pool_id).where(claims.c.id == claim_id)
    pool_id = connection.execute(chosen).scalar()
    if pool_id is None:
        raise pool_errors.ClaimNotFoundError(claim_id)
    return str(pool_id)


def list_open(connection: sa.Connection, pool_id: str) -> list[Claim]:
    """Read the claims that have not ended, oldest first."""
    chosen = sa.select(claims).where(claims.c.pool_id == pool_id, claims.c.released_us.is_(None))
    return _read(connection, chosen.order_by(claims.c.acquired_us, claims.c.id))


def list_recent(connection: sa.Connection, limit: int, **column: str) -> list[Claim]:
    """Read the last claims of a pool or member, ended ones too, newest first."""
    chosen = sa.select(claims).filter_by(**column)
    newest = claims.c.acquired_us.desc()
    return _read(connection, chosen.order_by(newest, claims.c.id).limit(limit))


def find_last(connection: sa.Connection, member_id: str) -> Claim | None:
    """Read the open claim on a member, otherwise the one that ended last; None if it was never claimed."""
    ended_us = sa.func.coalesce(claims.c.released_us, sa.literal(2**62))
    chosen = sa.select(claims).where(claims.c.member_id == member_id)
    return next(iter(_read(connection, chosen.order_by(ended_us.desc()).limit(1))), None)


def list_of_key(connection: sa.Connection, pool_id: str, key: str) -> list[Claim]:
    """Read what a request with this idempotency key got."""
    chosen = sa.select(claims).where(claims.c.pool_id == pool_id, claims.c.idempotency_key == key)
    return _read(connection, chosen.order_by(claims.c.batch_place))


def insert(connection: sa.Connection, batch: list[Claim]) -> None:
    connection.execute(
        claims.insert(),
        [{**dataclasses.asdict(claim), "batch_place": place} for place, claim in enumerate(batch)],
    )


def renew(connection: sa.Connection, claim: Claim) -> None:
    """Write the lease of a claim that is locked."""
    changed = ("lease_until_us", "renewals", "stale_us")
    _update(connection, claim.id, **{name: getattr(claim, name) for name in changed})


def flag_stale(connection: sa.Connection, claim_id: str, now_us: int) -> bool:
    """Flag a claim as stale; False if it was flagged before."""
    return _update(connection, claim_id, claims.c.stale_us.is_(None), stale_us=now_us)


def end(connection: sa.Connection, pool: Pool, claim: Claim, *, reason: str, now_us: int) -> bool:
    """End an open claim and add the event; False if it had ended. The row stays a while."""
    changes = {"released_us": now_us, "release_reason": reason}
    if not _update(connection, claim.id, claims.c.released_us.is_(None), **changes):
        return False
    event_rows.add(
        connection, "claim_ended", now_us, pool=pool, member_id=claim.member_id,
        claim_id=claim.id, reason=reason,
    )  # fmt: skip
    return True


def end_of_member(
    connection: sa.Connection, pool: Pool, member_id: str, *, reason: str, now_us: int
) -> None:
    """End the open claim on a member, if there is one."""
    chosen = sa.select(claims).where(
        claims.c.member_id == member_id, claims.c.released_us.is_(None)
    )
    for claim in _read(connection, chosen):
        end(connection, pool, claim, reason=reason, now_us=now_us)
