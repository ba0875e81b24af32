"""The demand on a pool, as its rows record it: claims served, missed and still waiting, and warm-ups."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from overnight.model.pool import Past
from overnight.pools.sql import schema

claims, events, members, waiters = schema.claims, schema.events, schema.members, schema.waiters
# As a literal: PostgreSQL uses the partial index on missed claims only then.
MISSED: sa.ColumnElement[str] = sa.literal_column("'claim_missed'")
# A claim counts from when it was requested.
REQUESTED_US = claims.c.acquired_us - claims.c.waited_us
# Not members.ready_us, which is later for a member that was returned and used again.
WARM_UP_US = events.c.at_us - members.c.warming_started_us
FIRST_READY = (
    events.c.member_id == members.c.id,
    events.c.kind == "member_ready",
    events.c.reason == "phase_ready",
)


def read_past(
    connection: sa.Connection, pool_id: str, begin_us: int, end_us: int, *, unchanged_us: int
) -> Past:
    """Read every request since `begin_us`, and how long members took until they were first ready."""
    # The second condition adds nothing, but it has an index.
    chosen = sa.select(REQUESTED_US, claims.c.waited_us).where(
        claims.c.pool_id == pool_id, claims.c.acquired_us >= begin_us, begin_us <= REQUESTED_US
    )
    served = [(int(at), int(waited)) for at, waited in connection.execute(chosen)]
    missed = []
    chosen_events = sa.select(events.c.at_us, events.c.detail).where(
        events.c.pool_id == pool_id, events.c.kind == MISSED, events.c.at_us >= begin_us
    )
    for at, count in connection.execute(chosen_events):
        missed += [int(at)] * int(count)
    warm_ups = sa.select(WARM_UP_US).where(
        *FIRST_READY, members.c.pool_id == pool_id, events.c.at_us >= begin_us
    )
    member_us, ready_us = _sum_times(connection, pool_id, unchanged_us, end_us)
    held = sa.select(
        sa.func.coalesce(sa.func.sum(claims.c.released_us - claims.c.acquired_us), 0),
        sa.func.count(),
    ).where(
        claims.c.pool_id == pool_id,
        claims.c.acquired_us >= begin_us,
        claims.c.released_us.is_not(None),
    )
    held_us, ended = connection.execute(held).one()
    return Past(
        begin_us=begin_us,
        end_us=end_us,
        unchanged_us=unchanged_us,
        member_us=member_us,
        ready_us=ready_us,
        held_us=int(held_us),
        ended=int(ended),
        asked_us=tuple(sorted([at for at, _ in served] + missed)),
        warm_ups_us=tuple(sorted(int(took) for took in connection.execute(warm_ups).scalars())),
        missed_us=tuple(sorted(missed)),
        waited_us=tuple(sorted(at for at, waited in served if waited)),
    )


def _sum_times(
    connection: sa.Connection, pool_id: str, begin_us: int, end_us: int
) -> tuple[int, int]:
    """Add up the times of the members: all of it, and while they were ready."""

    def sum_of(first: sa.ColumnElement[Any], *ends: sa.ColumnElement[Any]) -> Any:
        begin = sa.case((first > begin_us, first), else_=begin_us)
        end = sa.func.coalesce(*ends, end_us)
        return sa.func.coalesce(sa.func.sum(sa.case((end > begin, end - begin), else_=0)), 0)

    row = members.c
    chosen = sa.select(
        sum_of(row.warming_started_us, row.gone_us),
        # A member that was returned to be used again counts from then on.
        sum_of(sa.func.coalesce(row.ready_us, end_us), row.acquired_us, row.ended_us, row.gone_us),
    ).where(row.pool_id == pool_id, sa.or_(row.gone_us.is_(None), row.gone_us > begin_us))
    total, ready = connection.execute(chosen).one()
    return int(total), int(ready)


def count_requested(
    connection: sa.Connection, pool_id: str, since_us: int, lately_us: int
) -> tuple[int, int]:
    """Count the members requested after each of two instants (the earlier first): served, missed, waiting."""

    def counted(
        when: sa.ColumnElement[Any], many: Any, table: sa.Table, *where: sa.ColumnElement[bool]
    ) -> sa.Select[Any]:
        lately = sa.case((when > lately_us, many), else_=0)
        return sa.select(
            sa.func.coalesce(sa.func.sum(many), 0), sa.func.coalesce(sa.func.sum(lately), 0)
        ).where(table.c.pool_id == pool_id, when > since_us, *where)

    missed = sa.cast(events.c.detail, sa.Integer)
    counts = [
        connection.execute(chosen).one()
        for chosen in (
            counted(REQUESTED_US, sa.literal(1), claims, claims.c.acquired_us > since_us),
            counted(events.c.at_us, missed, events, events.c.kind == MISSED),
            counted(waiters.c.queued_us, waiters.c.wanted, waiters),
        )
    ]
    return sum(int(both) for both, _ in counts), sum(int(lately) for _, lately in counts)


def find_last_request(connection: sa.Connection, pool_id: str) -> int | None:
    """Return when a member was last requested, whether served, missed or waiting; None for never."""
    instants = [
        connection.execute(chosen).scalar()
        for chosen in (
            sa.select(sa.func.max(claims.c.acquired_us)).where(claims.c.pool_id == pool_id),
            sa.select(sa.func.max(events.c.at_us)).where(
                events.c.pool_id == pool_id, events.c.kind == MISSED
            ),
            sa.select(sa.func.max(waiters.c.queued_us)).where(waiters.c.pool_id == pool_id),
        )
    ]
    return max((int(at) for at in instants if at is not None), default=None)


def list_warm_ups(connection: sa.Connection, pool_id: str, limit: int) -> list[int]:
    """Read how long the last members took until they were first ready, in µs."""
    chosen = (
        sa.select(WARM_UP_US)
        .where(*FIRST_READY, events.c.pool_id == pool_id)
        .order_by(events.c.id.desc())
        .limit(limit)
    )
    return [int(took) for took in connection.execute(chosen).scalars()]
