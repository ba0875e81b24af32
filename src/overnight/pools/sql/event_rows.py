"""Rows of events, and how long records are kept."""

from __future__ import annotations

import dataclasses

import sqlalchemy as sa

from overnight.model.pool import Claim, Pool, PoolEvent, Waiter
from overnight.pools import demand
from overnight.pools.sql import demand_rows, schema, total_rows

events, claims, members = schema.events, schema.claims, schema.members
SHOWN = tuple(events.c[field.name] for field in dataclasses.fields(PoolEvent))
MAX_DETAIL = 2000
REFUSED = "claim_refused"


def add(
    connection: sa.Connection,
    kind: str,
    now_us: int,
    *,
    pool: Pool | None = None,
    member_id: str = "",
    claim_id: str = "",
    reason: str = "",
    detail: str = "",
    took_us: int | None = None,
) -> None:
    """Add an event in the transaction that makes the change; `took_us` goes into the histograms."""
    connection.execute(
        events.insert().values(
            at_us=now_us,
            kind=kind,
            pool_id=pool.id if pool else "",
            pool=pool.name if pool else "",
            member_id=member_id,
            claim_id=claim_id,
            reason=reason,
            detail=detail[:MAX_DETAIL],
            took_us=None if took_us is None else max(0, took_us),
        )
    )


def add_claimed(connection: sa.Connection, pool: Pool, batch: list[Claim]) -> None:
    """Add the events of the members of one request, in one statement."""
    connection.execute(
        events.insert(),
        [
            {
                "at_us": claim.acquired_us, "kind": "member_claimed", "pool_id": pool.id,
                "pool": pool.name, "member_id": claim.member_id, "claim_id": claim.id,
                "reason": "cold" if claim.cold else "claimed", "detail": claim.acquired_by,
                "took_us": max(0, claim.waited_us),
            }
            for claim in batch
        ],
    )  # fmt: skip


def add_missed(
    connection: sa.Connection, pool: Pool, wanted: int, now_us: int, *, reason: str, claim_id: str = ""
) -> None:  # fmt: skip
    """Record unmet demand, so that an empty pool does not look unused. `detail` is the number of members."""
    add(connection, "claim_missed", now_us, pool=pool, claim_id=claim_id, detail=str(wanted), reason=reason)  # fmt: skip


def add_refused(
    connection: sa.Connection, pool: Pool, claim_id: str, wanted: int, now_us: int, *,
    reason: str, missed: str, detail: str,
) -> None:  # fmt: skip
    """Record a claim that got no member; one with the same id, which polls, adds to its demand alone."""
    same = (
        events.c.pool_id == pool.id, events.c.kind == demand_rows.MISSED,
        events.c.at_us > now_us - demand.TOGETHER_US, events.c.claim_id == claim_id,
        events.c.reason == missed,
    )  # fmt: skip
    # It is younger than `total_rows.SETTLED_US`, and so not in the totals yet.
    number = sa.cast(sa.cast(events.c.detail, sa.BigInteger) + wanted, sa.Text)
    if not connection.execute(sa.update(events).where(*same).values(detail=number)).rowcount:
        add(connection, REFUSED, now_us, pool=pool, claim_id=claim_id, reason=reason, detail=detail)
        add_missed(connection, pool, wanted, now_us, reason=missed, claim_id=claim_id)


def add_unserved(
    connection: sa.Connection, pool: Pool, waiter: Waiter, now_us: int, *, reason: str
) -> None:
    """Record a caller that left the queue without a member."""
    add(connection, "waiter_left", now_us, pool=pool, reason=reason, detail=waiter.id)
    add_missed(connection, pool, waiter.wanted, now_us, reason=reason)


def list_recent(
    connection: sa.Connection, pool_id: str, limit: int, *, member_id: str = ""
) -> tuple[PoolEvent, ...]:
    """Read the last events of a pool, or of one of its members, newest first."""
    chosen = sa.select(*SHOWN).where(events.c.pool_id == pool_id)
    if member_id:
        chosen = chosen.where(events.c.member_id == member_id)
    rows = connection.execute(chosen.order_by(events.c.id.desc()).limit(limit)).mappings()
    return tuple(PoolEvent(**row) for row in rows)


def list_after(
    connection: sa.Connection, after: int, limit: int, pool_id: str | None = None
) -> tuple[PoolEvent, ...]:
    """Read the first events after this id, of a pool or of all; after 0 the last ones. Oldest first."""
    order = events.c.id.asc() if after else events.c.id.desc()
    chosen = sa.select(*SHOWN).where(events.c.id > after).order_by(order).limit(limit)
    if pool_id is not None:
        chosen = chosen.where(events.c.pool_id == pool_id)
    found = [PoolEvent(**row) for row in connection.execute(chosen).mappings()]
    return tuple(sorted(found, key=lambda event: event.id))


def list_of_request(connection: sa.Connection, name: str, limit: int) -> tuple[PoolEvent, ...]:
    """Read what happened in a pool while a caller waited, or when a claim missed, newest first.

    Empty without a record of it.
    """
    waited = events.c.kind.in_(("waiter_queued", "waiter_left"))
    own = sa.select(events.c.pool_id, events.c.id, events.c.kind).where(
        sa.or_(
            waited & events.c.detail.startswith(name, autoescape=True),
            (events.c.kind == REFUSED) & (events.c.claim_id == name),
        )
    )
    bounds = connection.execute(own.order_by(events.c.id)).all()
    if not bounds:
        return ()
    pool_id, first = bounds[0].pool_id, bounds[0].id
    # The decision that was in force when the caller came.
    decided = sa.select(sa.func.max(events.c.id)).where(
        events.c.pool_id == pool_id, events.c.id < first,
        events.c.kind.in_(("launch_skipped", "member_warming")),
    )  # fmt: skip
    while_waiting = events.c.id >= first
    if bounds[-1].kind != "waiter_queued":
        while_waiting &= events.c.id <= bounds[-1].id + 1
    chosen = sa.select(*SHOWN).where(
        events.c.pool_id == pool_id,
        sa.or_(while_waiting, events.c.id == decided.scalar_subquery()),
    )
    rows = connection.execute(chosen.order_by(events.c.id.desc()).limit(limit)).mappings()
    return tuple(PoolEvent(**row) for row in rows)


def delete_old_records(connection: sa.Connection, pool_id: str, before_us: int) -> None:
    """Delete old events, ended claims (their member may be reused for ever), and members that are gone."""
    # Not those that are not in the totals yet, nor the last that is: SQLite would use its id again.
    counted = events.c.id < total_rows.read_counted(connection)
    for statement in (
        sa.delete(claims).where(claims.c.pool_id == pool_id, claims.c.released_us < before_us),
        sa.delete(members).where(members.c.pool_id == pool_id, members.c.gone_us < before_us),
        sa.delete(events).where(events.c.pool_id == pool_id, events.c.at_us < before_us, counted),
    ):
        connection.execute(statement)


def delete_orphaned(connection: sa.Connection, before_us: int) -> None:
    """Delete old events of pools that no longer exist."""
    orphaned = events.c.pool_id.not_in(
        sa.select(schema.pools.c.id).where(schema.pools.c.deleted_us.is_(None))
    )
    not_last = events.c.id != total_rows.read_counted(connection)  # as above
    connection.execute(sa.delete(events).where(events.c.at_us < before_us, orphaned, not_last))
