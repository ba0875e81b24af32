"""Rows of members, with their last heartbeat."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from overnight.database import statements
from overnight.model.pool import Member, MemberState, Pool
from overnight.model.times import SECOND_US
from overnight.pools import pool_errors
from overnight.pools.sql import event_rows, schema

if TYPE_CHECKING:
    from overnight import pools

State = MemberState
members, beats = schema.members, schema.beats
LIVE = members.c.gone_us.is_(None)
# As a literal: PostgreSQL uses the partial index on ready members only then.
READY: sa.ColumnElement[str] = sa.literal_column("'ready'")
# The times and counters that a change of state sets.
STAMPS: Mapping[State, str] = {
    State.READY: "ready_us",
    State.CLAIMED: "acquired_us",
    State.DRAINING: "ended_us",
    State.ERRORED: "ended_us",
}
_update = functools.partial(statements.update, members)


def _select() -> sa.Select[Any]:
    return sa.select(members, beats.c.at_us.label("beat_us")).select_from(
        members.outerjoin(beats, beats.c.member_id == members.c.id)
    )


def _read(connection: sa.Connection, chosen: sa.Select[Any]) -> list[Member]:
    return [Member.from_row(row) for row in connection.execute(chosen).mappings()]


def find(connection: sa.Connection, member_id: str) -> Member:
    """Read a member, also one that is gone; raises MemberNotFoundError."""
    for member in _read(connection, _select().where(members.c.id == member_id)):
        return member
    raise pool_errors.MemberNotFoundError(member_id)


def list_live(connection: sa.Connection, pool_id: str) -> list[Member]:
    """Read the members that are not gone, oldest first."""
    chosen = _select().where(members.c.pool_id == pool_id, LIVE)
    return _read(connection, chosen.order_by(members.c.warming_started_us, members.c.id))


def list_of_provider(connection: sa.Connection, provider: str) -> dict[str, Member]:
    """Read the members of a provider that are not gone, by id."""
    chosen = _select().where(members.c.provider == provider, LIVE)
    return {member.id: member for member in _read(connection, chosen)}


def list_of_host(connection: sa.Connection, host: str) -> list[Member]:
    return _read(connection, _select().where(members.c.host == host, LIVE))


def list_claimable(
    connection: sa.Connection, pool: Pool, count: int, now_us: int, *, lock: bool = False
) -> list[Member]:
    """Read the oldest members that can be claimed; `lock` waits for what other claims have locked."""
    since_us = now_us - pool.settings.heartbeat_stale_after_seconds * SECOND_US
    # A member that has just come up has not sent a heartbeat yet.
    heard = sa.func.coalesce(beats.c.at_us, members.c.ready_us)
    chosen = (
        _select()
        .where(
            members.c.pool_id == pool.id,
            members.c.state == READY,
            LIVE,
            members.c.cordoned.is_(sa.false()),
            members.c.missing_us.is_(None),
            sa.or_(heard > since_us, members.c.ready_us > since_us),
        )
        .order_by(members.c.warming_started_us, members.c.id)
        .limit(count)
    )
    if lock:
        chosen = chosen.with_for_update(of=members)
    return _read(connection, chosen)


def insert_warming(
    connection: sa.Connection, pool: Pool, member_id: str, host: str | None, now_us: int
) -> None:
    """Write the intent to launch a member."""
    connection.execute(
        members.insert().values(
            id=member_id, pool_id=pool.id, state=State.WARMING, generation=pool.generation,
            provider=pool.provider, address="", region="", host=host, cordoned=False, reason="",
            warming_started_us=now_us, attempts=0, next_attempt_us=0,
        )
    )  # fmt: skip


def move(
    connection: sa.Connection,
    pool: Pool,
    member_id: str,
    *,
    to: State,
    before: tuple[State, ...],
    reason: str,
    now_us: int,
    detail: str = "",
    took_us: int | None = None,
    **values: object,
) -> bool:
    """Change a member's state and add the event; False if it is no longer in one of `before`."""
    stamped: dict[str, Any] = {STAMPS[to]: now_us} if to in STAMPS else {}
    if to in (State.DRAINING, State.ERRORED):
        stamped |= {"attempts": 0, "next_attempt_us": now_us}
    changes = {"state": to, "reason": reason, **stamped, **values}
    if not _update(connection, member_id, members.c.state.in_(before), LIVE, **changes):
        return False
    event_rows.add(
        connection, f"member_{to}", now_us, pool=pool, member_id=member_id, reason=reason,
        detail=detail, took_us=took_us,
    )  # fmt: skip
    return True


def set_claimed(connection: sa.Connection, member_ids: list[str], now_us: int) -> None:
    """Mark members that are locked as claimed; the caller adds the events."""
    connection.execute(
        sa.update(members)
        .where(members.c.id.in_(member_ids))
        .values(state=State.CLAIMED, acquired_us=now_us, reason="claimed")
    )


def set_gone(
    connection: sa.Connection, pool: Pool, member_id: str, *, reason: str, now_us: int
) -> bool:
    """Record that a member's machine no longer exists; False if that was known. The row stays a while."""
    statement = sa.update(members).where(members.c.id == member_id, LIVE).values(gone_us=now_us)
    began = connection.execute(statement.returning(members.c.warming_started_us)).scalar()
    if began is None:
        return False
    event_rows.add(
        connection, "member_gone", now_us, pool=pool, member_id=member_id, reason=reason,
        took_us=now_us - began,
    )  # fmt: skip
    return True


def set_cordoned(connection: sa.Connection, member_id: str, *, cordoned: bool) -> None:
    _update(connection, member_id, cordoned=cordoned)


def set_missing(connection: sa.Connection, member: Member, missing_us: int | None) -> bool:
    """Record since when the provider lists no machine (None: it does); False if another sweep was first."""
    unchanged = members.c.missing_us.is_not_distinct_from(member.missing_us)
    values = {"missing_us": missing_us, "host": member.host}
    return _update(connection, member.id, LIVE, unchanged, **values)


def set_abandoned(connection: sa.Connection, member_id: str, now_us: int) -> bool:
    """Record that every attempt to terminate failed; False if that was recorded, or it is gone."""
    return _update(
        connection, member_id, LIVE, members.c.abandoned_us.is_(None), abandoned_us=now_us
    )


def set_beat(connection: sa.Connection, member_id: str, phase: str, now_us: int) -> None:
    values = {"member_id": member_id, "at_us": now_us, "phase": phase}
    statements.upsert(connection, beats, values)


def begin_attempt(
    connection: sa.Connection, member: Member, *, attempts: int, next_attempt_us: int
) -> bool:
    """Record an attempt to terminate; False if the member has changed since it was read."""
    unchanged = (
        members.c.state == member.state,
        members.c.attempts == member.attempts,
        members.c.next_attempt_us == member.next_attempt_us,
        members.c.machine_id.is_not_distinct_from(member.machine_id),
        members.c.cordoned == member.cordoned,
        LIVE,
    )
    changes = {"attempts": attempts, "next_attempt_us": next_attempt_us}
    return _update(connection, member.id, *unchanged, **changes)


def add_machine(connection: sa.Connection, pool: Pool, machine: pools.Machine, now_us: int) -> bool:
    """Give a member its machine; False if the member is gone or has another one."""
    ending = members.c.state.in_((State.DRAINING, State.ERRORED))
    if not _update(
        connection, machine.member_id, LIVE, members.c.machine_id.is_(None),
        machine_id=machine.id, address=machine.address, region=machine.region, launched_us=now_us,
        # A member that is already ending can be terminated from now on.
        next_attempt_us=sa.case((ending, now_us), else_=0),
    ):  # fmt: skip
        # Launcher and sweep both do this: the second one adds only an address that the first did not know.
        known = sa.case((members.c.address == "", machine.address), else_=members.c.address)
        return _update(
            connection, machine.member_id, LIVE, members.c.machine_id == machine.id,
            address=known,
        )  # fmt: skip
    event_rows.add(
        connection, "member_launched", now_us, pool=pool, member_id=machine.member_id,
        detail=machine.id,
    )  # fmt: skip
    return True
