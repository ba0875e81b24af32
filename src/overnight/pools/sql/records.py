"""Rows and values: reading them, and the few ways in which a row may change. Always in a transaction."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from overnight.model.pool import (
    Autoscale,
    Claim,
    LifecycleClass,
    Member,
    MemberState,
    Pool,
    PoolSettings,
    PoolStatus,
    member_of,
    new_id,
)
from overnight.pools import decisions, pool_errors
from overnight.pools.sql import schema, statements

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "add_event",
    "autoscale_of",
    "claim_of",
    "end_claim",
    "find_autoscale",
    "find_pool",
    "lock_pool",
    "move",
    "owner",
    "pool_of",
    "regions_used",
    "save_autoscale",
    "save_pool",
    "use_regions",
    "view",
]

State = MemberState
REGION_USED = "region_used"


def pool_of(row: sa.RowMapping) -> Pool:
    """The value of a row."""
    values = dict(row)
    values["settings"] = PoolSettings(**values.pop("knobs"))
    values["status"] = PoolStatus(values["status"])
    values["lifecycle_class"] = LifecycleClass(values["lifecycle_class"])
    values["preferred_regions"] = tuple(values["preferred_regions"])
    return Pool(**values)


def pool_row(pool: Pool) -> dict[str, Any]:
    """The row of a value."""
    return {
        **{name: value for name, value in vars(pool).items() if name != "settings"},
        "preferred_regions": list(pool.preferred_regions),
        "labels": dict(pool.labels),
        "knobs": dataclasses.asdict(pool.settings),
    }


def claim_of(row: sa.RowMapping) -> Claim:
    """The value of a row."""
    return Claim(**{name: value for name, value in row.items() if name != "batch_place"})


def find_pool(connection: sa.Connection, name_or_id: str) -> Pool:
    """A pool by name or id."""
    row = connection.execute(statements.a_pool(name_or_id)).mappings().first()
    if row is None:
        raise pool_errors.PoolNotFoundError(name_or_id)
    return pool_of(row)


def lock_pool(connection: sa.Connection, name_or_id: str) -> Pool:
    """The same, kept from others until the transaction ends."""
    found = find_pool(connection, name_or_id)
    row = connection.execute(statements.a_pool_locked(found.id)).mappings().first()
    if row is None:  # deleted while we waited for the lock
        raise pool_errors.PoolNotFoundError(name_or_id)
    return pool_of(row)


def save_pool(connection: sa.Connection, pool: Pool) -> None:
    """Write a pool that is locked."""
    connection.execute(
        sa.update(schema.pools).where(schema.pools.c.id == pool.id).values(pool_row(pool))
    )


def autoscale_of(row: sa.RowMapping) -> Autoscale:
    """The value of a row."""
    memory = tuple((float(when), int(size)) for when, size in row["memory"])
    return Autoscale(**{**row, "openings": tuple(row["openings"]), "memory": memory})


def find_autoscale(connection: sa.Connection, pool_id: str) -> Autoscale | None:
    """A pool's policy; None when its size is set by hand."""
    found = sa.select(schema.autoscales).where(schema.autoscales.c.pool_id == pool_id)
    row = connection.execute(found).mappings().first()
    return None if row is None else autoscale_of(row)


def save_autoscale(connection: sa.Connection, policy: Autoscale) -> None:
    """Write the policy of a pool that is locked, whether there was one or not."""
    values = {
        **{field.name: getattr(policy, field.name) for field in dataclasses.fields(policy)},
        "openings": list(policy.openings),
        "memory": [list(one) for one in policy.memory],
    }
    upsert = _insert(connection)(schema.autoscales).values(values)
    connection.execute(
        upsert.on_conflict_do_update(index_elements=[schema.autoscales.c.pool_id], set_=values)
    )


def view(connection: sa.Connection, pool: Pool, now_us: int) -> decisions.View:
    """What a pool holds."""
    seen_since = now_us - pool.settings.waiter_stale_seconds * decisions.SECOND
    return decisions.View(
        pool=pool,
        members=[
            member_of(r) for r in connection.execute(statements.live_members(pool.id)).mappings()
        ],
        claims=[
            claim_of(r) for r in connection.execute(statements.open_claims(pool.id)).mappings()
        ],
        waiting=int(connection.execute(statements.waiting(pool.id, seen_since)).scalar_one()),
        now_us=now_us,
    )


def find_member(connection: sa.Connection, member_id: str) -> Member:
    """A member by id, gone ones too."""
    row = (
        connection.execute(statements.with_beats().where(schema.members.c.id == member_id))
        .mappings()
        .first()
    )
    if row is None:
        raise pool_errors.MemberNotFoundError(member_id)
    return member_of(row)


def find_claim(connection: sa.Connection, claim_id: str) -> Claim:
    """A claim by id, ended ones too."""
    found = sa.select(schema.claims).where(schema.claims.c.id == claim_id).with_for_update()
    row = connection.execute(found).mappings().first()
    if row is None:
        raise pool_errors.ClaimNotFoundError(claim_id)
    return claim_of(row)


def add_event(
    connection: sa.Connection,
    kind: str,
    now_us: int,
    *,
    pool: Pool | None = None,
    member_id: str = "",
    claim_id: str = "",
    reason: str = "",
    detail: str = "",
) -> None:
    """Tell of a transition, in the transaction that makes it."""
    connection.execute(
        schema.events.insert().values(
            at_us=now_us,
            kind=kind,
            pool_id=pool.id if pool else "",
            pool=pool.name if pool else "",
            member_id=member_id,
            claim_id=claim_id,
            reason=reason,
            detail=detail[:2000],
        )
    )


# What a change of state writes besides the state.
STAMPS: Mapping[State, tuple[str, ...]] = {
    State.READY: ("ready_us",),
    State.CLAIMED: ("acquired_us",),
    State.DRAINING: ("ended_us",),
    State.ERRORED: ("ended_us",),
}


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
    **values: object,
) -> bool:
    """Change a member's state, if it still is in one of those `before`; tells of it. False: it is not."""
    stamped = dict.fromkeys(STAMPS.get(to, ()), now_us)
    if to in (State.DRAINING, State.ERRORED):
        stamped |= {"attempts": 0, "next_attempt_us": now_us}
    done = connection.execute(
        sa.update(schema.members)
        .where(
            schema.members.c.id == member_id,
            schema.members.c.state.in_(before),
            schema.members.c.gone_us.is_(None),
        )
        .values(state=to, reason=reason, **{**stamped, **values})
    )
    if done.rowcount != 1:
        return False
    add_event(
        connection,
        f"member_{to}",
        now_us,
        pool=pool,
        member_id=member_id,
        reason=reason,
        detail=detail,
    )
    return True


def gone(
    connection: sa.Connection, pool: Pool, member_id: str, *, reason: str, now_us: int
) -> bool:
    """A member's machine is no more; the record stays for a while and counts for nothing."""
    done = connection.execute(
        sa.update(schema.members)
        .where(schema.members.c.id == member_id, schema.members.c.gone_us.is_(None))
        .values(gone_us=now_us)
    )
    if done.rowcount != 1:
        return False
    add_event(connection, "member_gone", now_us, pool=pool, member_id=member_id, reason=reason)
    return True


def end_claim(
    connection: sa.Connection, pool: Pool, claim: Claim, *, reason: str, now_us: int
) -> bool:
    """End an open claim; the record stays. False: it had ended."""
    done = connection.execute(
        sa.update(schema.claims)
        .where(schema.claims.c.id == claim.id, schema.claims.c.released_us.is_(None))
        .values(released_us=now_us, release_reason=reason)
    )
    if done.rowcount != 1:
        return False
    add_event(
        connection,
        "claim_ended",
        now_us,
        pool=pool,
        member_id=claim.member_id,
        claim_id=claim.id,
        reason=reason,
    )
    return True


def owner(connection: sa.Connection) -> str:
    """What the machines of this database are tagged with; made once."""
    found = setting(connection, "owner")
    if found:
        return found
    set_setting(connection, "owner", new_id("overnight"), keep=True)
    return setting(connection, "owner")


def setting(connection: sa.Connection, name: str) -> str:
    """A word that the control plane keeps; '' when it has none."""
    found = sa.select(schema.control.c.value).where(schema.control.c.name == name)
    return str(connection.execute(found).scalar() or "")


def set_setting(connection: sa.Connection, name: str, value: str, *, keep: bool = False) -> None:
    """Keep a word; with `keep`, the one that is there stays."""
    upsert = _insert(connection)(schema.control).values(name=name, value=value)
    columns = [schema.control.c.name]
    if keep:
        connection.execute(upsert.on_conflict_do_nothing(index_elements=columns))
    else:
        connection.execute(
            upsert.on_conflict_do_update(index_elements=columns, set_={"value": value})
        )


def use_regions(connection: sa.Connection, pool: Pool) -> None:
    """Keep where machines of this pool may be: they are looked for there from now on, for ever."""
    for region in (pool.region, *pool.preferred_regions):
        if region:
            set_setting(connection, f"{REGION_USED} {pool.provider} {region}", "yes", keep=True)


def regions_used(connection: sa.Connection, provider: str) -> tuple[str, ...]:
    """Every region that a pool of this provider has ever named."""
    begin = f"{REGION_USED} {provider} "
    names = sa.select(schema.control.c.name).where(
        schema.control.c.name.startswith(begin, autoescape=True)
    )
    found = connection.execute(names).scalars()
    return tuple(sorted(str(name).removeprefix(begin) for name in found))


def set_beat(connection: sa.Connection, member_id: str, phase: str, now_us: int) -> None:
    """A member was heard."""
    upsert = _insert(connection)(schema.beats).values(
        member_id=member_id, at_us=now_us, phase=phase
    )
    connection.execute(
        upsert.on_conflict_do_update(
            index_elements=[schema.beats.c.member_id], set_={"at_us": now_us, "phase": phase}
        )
    )


def _insert(connection: sa.Connection) -> Any:
    """`INSERT … ON CONFLICT`, which each database spells for itself."""
    # Only the one that is used: PostgreSQL's takes 50 ms to import.
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects import postgresql

        return postgresql.insert
    from sqlalchemy.dialects import sqlite

    return sqlite.insert
