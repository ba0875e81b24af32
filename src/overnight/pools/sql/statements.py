"""Every statement that is more than a row by its key, named. Locks are those of PostgreSQL; SQLite leaves
them out, as its writers come one at a time.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from overnight.pools.sql import schema

__all__ = [
    "a_pool",
    "a_pool_locked",
    "asked_since",
    "claimable",
    "claims_of_key",
    "forget_records",
    "last_asked",
    "live_members",
    "open_claims",
    "recent_claims",
    "recent_events",
    "recent_warm_ups",
    "taken",
    "waiters_in_order",
    "waiting",
    "with_beats",
]

members, beats, claims, waiters, pools, events = (
    schema.members,
    schema.beats,
    schema.claims,
    schema.waiters,
    schema.pools,
    schema.events,
)
LIVE = members.c.gone_us.is_(None)
# Written out: an index on ready members is used only where the word itself stands in the statement.
READY: sa.ColumnElement[str] = sa.literal_column("'ready'")
MISSED: sa.ColumnElement[str] = sa.literal_column("'claim_missed'")


def a_pool(name_or_id: str) -> sa.Select[Any]:
    """One pool, by what the operator calls it."""
    return sa.select(pools).where(sa.or_(pools.c.name == name_or_id, pools.c.id == name_or_id))


def a_pool_locked(pool_id: str) -> sa.Select[Any]:
    """The pool's row, kept from whoever else would launch, drain or change it.

    `NO KEY`: a plain FOR UPDATE would also hold up members that are inserted with a reference to it.
    """
    return sa.select(pools).where(pools.c.id == pool_id).with_for_update(key_share=True)


def with_beats() -> sa.Select[Any]:
    """Members with their last heartbeat."""
    return sa.select(members, beats.c.at_us.label("beat_us")).select_from(
        members.outerjoin(beats, beats.c.member_id == members.c.id)
    )


def live_members(pool_id: str) -> sa.Select[Any]:
    """What a pool holds, the oldest first."""
    return (
        with_beats()
        .where(members.c.pool_id == pool_id, LIVE)
        .order_by(members.c.warming_started_us, members.c.id)
    )


def claimable(pool_id: str, *, heard_since_us: int, count: int) -> sa.Select[Any]:
    """The oldest ready members whose agents were heard, and that nothing holds back."""
    # A member that has just come up has not beaten yet.
    heard = sa.func.coalesce(beats.c.at_us, members.c.ready_us)
    return (
        with_beats()
        .where(
            members.c.pool_id == pool_id,
            members.c.state == READY,
            LIVE,
            members.c.cordoned.is_(sa.false()),
            members.c.missing_us.is_(None),
            sa.or_(heard > heard_since_us, members.c.ready_us > heard_since_us),
        )
        .order_by(members.c.warming_started_us, members.c.id)
        .limit(count)
    )


def taken(chosen: sa.Select[Any], *, wait: bool) -> sa.Select[Any]:
    """The same, locked. Those that another claim holds are skipped; with `wait` they are waited for
    instead, and what is left when the others are done is certain.
    """
    return chosen.with_for_update(skip_locked=not wait, of=members)


def open_claims(pool_id: str) -> sa.Select[Any]:
    """Claims that have not ended."""
    return (
        sa.select(claims)
        .where(claims.c.pool_id == pool_id, claims.c.released_us.is_(None))
        .order_by(claims.c.acquired_us, claims.c.id)
    )


def recent_claims(pool_id: str, limit: int) -> sa.Select[Any]:
    """The last claims, ended ones too, the newest first."""
    return (
        sa.select(claims)
        .where(claims.c.pool_id == pool_id)
        .order_by(claims.c.acquired_us.desc(), claims.c.id)
        .limit(limit)
    )


def claims_of_key(pool_id: str, key: str) -> sa.Select[Any]:
    """What a request with this idempotency key got."""
    return (
        sa.select(claims)
        .where(claims.c.pool_id == pool_id, claims.c.idempotency_key == key)
        .order_by(claims.c.batch_place)
    )


def waiters_in_order(pool_id: str, seen_since_us: int) -> sa.Select[Any]:
    """The queue: by priority, then by age; those who left without a word are not in it."""
    return (
        sa.select(waiters)
        .where(waiters.c.pool_id == pool_id, waiters.c.seen_us > seen_since_us)
        .order_by(waiters.c.priority.desc(), waiters.c.queued_us, waiters.c.id)
    )


def waiting(pool_id: str, seen_since_us: int) -> sa.Select[Any]:
    """How many members the queue asks for."""
    return sa.select(sa.func.coalesce(sa.func.sum(waiters.c.wanted), 0)).where(
        waiters.c.pool_id == pool_id, waiters.c.seen_us > seen_since_us
    )


def asked_since(pool_id: str, first_us: int, second_us: int) -> tuple[sa.Select[Any], ...]:
    """How many members were asked for after each of two instants: served, missed, and waited for.

    A claim counts from when it was asked for. The first instant is the earlier one.
    """

    def counted(
        when: sa.ColumnElement[Any], many: Any, table: sa.Table, *where: sa.ColumnElement[bool]
    ) -> sa.Select[Any]:
        lately = sa.case((when > second_us, many), else_=0)
        return sa.select(
            sa.func.coalesce(sa.func.sum(many), 0), sa.func.coalesce(sa.func.sum(lately), 0)
        ).where(table.c.pool_id == pool_id, when > first_us, *where)

    asked = claims.c.acquired_us - claims.c.waited_us
    return (
        # The second condition says nothing new, but there is an index for it.
        counted(asked, sa.literal(1), claims, claims.c.acquired_us > first_us),
        counted(
            events.c.at_us, sa.cast(events.c.detail, sa.Integer), events, events.c.kind == MISSED
        ),
        counted(waiters.c.queued_us, waiters.c.wanted, waiters),
    )


def last_asked(pool_id: str) -> tuple[sa.Select[Any], ...]:
    """When a member was last asked for: served, missed, and waited for."""
    return (
        sa.select(sa.func.max(claims.c.acquired_us)).where(claims.c.pool_id == pool_id),
        sa.select(sa.func.max(events.c.at_us)).where(
            events.c.pool_id == pool_id, events.c.kind == MISSED
        ),
        sa.select(sa.func.max(waiters.c.queued_us)).where(waiters.c.pool_id == pool_id),
    )


def recent_warm_ups(pool_id: str, limit: int) -> sa.Select[Any]:
    """How long the last members took until they were first ready, in µs."""
    # `ready_us` of a member is later where it was returned and used again.
    return (
        sa.select(events.c.at_us - members.c.warming_started_us)
        .where(
            events.c.member_id == members.c.id,
            events.c.pool_id == pool_id,
            events.c.kind == "member_ready",
            events.c.reason == "phase_ready",
        )
        .order_by(events.c.id.desc())
        .limit(limit)
    )


def recent_events(pool_id: str | None, limit: int) -> sa.Select[Any]:
    """The last events, the newest first; of all pools where none is named."""
    chosen = sa.select(events).order_by(events.c.id.desc()).limit(limit)
    return chosen if pool_id is None else chosen.where(events.c.pool_id == pool_id)


def claims_of_member(member_id: str, limit: int) -> sa.Select[Any]:
    """Who had a member, the newest first."""
    return (
        sa.select(claims)
        .where(claims.c.member_id == member_id)
        .order_by(claims.c.acquired_us.desc(), claims.c.id)
        .limit(limit)
    )


def events_of_member(pool_id: str, member_id: str, limit: int) -> sa.Select[Any]:
    """What happened to a member, the newest first."""
    return (
        sa.select(events)
        .where(events.c.pool_id == pool_id, events.c.member_id == member_id)
        .order_by(events.c.id.desc())
        .limit(limit)
    )


def forget_records(pool_id: str, before_us: int) -> tuple[sa.Delete, ...]:
    """Old records: members that are surely gone, with their claims; claims that ended, of members that
    are used again and again; and events.
    """
    return (
        sa.delete(claims).where(claims.c.pool_id == pool_id, claims.c.released_us < before_us),
        sa.delete(members).where(members.c.pool_id == pool_id, members.c.gone_us < before_us),
        sa.delete(events).where(events.c.pool_id == pool_id, events.c.at_us < before_us),
    )
