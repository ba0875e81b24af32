"""Claims: acquire (at once, in the queue, or cold), renew, return.

The fast way is one short transaction that locks nothing but the members it takes. Where somebody waits,
claims come one at a time, so that nobody overtakes: what is ready belongs to those ahead first.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from typing import TYPE_CHECKING

import sqlalchemy as sa
import sqlalchemy.exc

from overnight.model.pool import (
    Claim,
    Grant,
    Member,
    MemberState,
    Pool,
    PoolStatus,
    Request,
    member_of,
    new_id,
)
from overnight.pools import decisions, pool_errors, queue_place
from overnight.pools.sql import fast_claim, records, schema, statements

if TYPE_CHECKING:
    from collections.abc import Callable

    from overnight.pools import context

__all__ = ["ClaimBroker"]

SECOND = decisions.SECOND
State = MemberState
# How often somebody who waits looks by the clock, should the bell not be heard.
LOOK_SECONDS = 0.25


class ClaimBroker:
    """The claims of one control plane."""

    def __init__(self, control: context.Context, fill: Callable[[str], object]) -> None:
        """`fill` launches what a pool wants, at once: what a cold claim does not leave to the reaper."""
        self._control = control
        self._database = control.database
        self._fill = fill

    def acquire(self, name: str, asked: Request) -> tuple[Grant, ...]:
        """Ready members, all or none; raises what the contract says when there are none."""
        began = self._control.clock()
        if quickly := self._quickly(name, asked):
            return quickly
        granted = self._at_once(name, asked)
        if isinstance(granted, tuple):
            return granted
        if not asked.cold and asked.wait_seconds <= 0:
            raise granted
        return self._in_the_queue(name, asked, began)

    # at once

    def _quickly(self, name: str, asked: Request) -> tuple[Grant, ...]:
        """The usual case in the fewest steps; none where anything at all is unusual."""
        made = fast_claim.order(name, asked)
        if made is None:
            return ()
        try:
            with self._database.quick("acquire quickly") as driver:
                row = fast_claim.take(driver, self._database.kind, made, self._control.clock())
        except sqlalchemy.exc.IntegrityError:
            return ()  # the key was used before
        if row is None:
            return ()
        self._control.notifier.notify(urgent=False)
        return (fast_claim.granted(made, row),)

    def _at_once(self, name: str, asked: Request) -> tuple[Grant, ...] | pool_errors.PoolError:
        """The grants, or why there are none."""
        try:
            with self._database.write("acquire") as connection:
                pool, now = records.find_pool(connection, name), self._control.clock()
                _check(pool, asked)
                if asked.idempotency_key and (known := self._known(connection, pool, asked)):
                    return known
                _must_be_active(pool)
                if self._ahead(connection, pool, asked.priority, None, now):
                    raise _NotNowError
                members = self._pick(connection, pool, asked.count, now, wait=False)
                if len(members) < asked.count:
                    raise _NotNowError
                granted = self._give(connection, pool, members, asked, now, waited=0)
        except _NotNowError:
            # Another claim held what we saw, or somebody waits: again, one at a time, for certain.
            return self._in_turn(name, asked, waiter=None, waited_since=None)
        except sqlalchemy.exc.IntegrityError:
            if asked.idempotency_key is None:
                raise
            # The same request was made at the same moment; it has the answer.
            with self._database.read() as connection:
                pool = records.find_pool(connection, name)
                if known := self._known(connection, pool, asked):
                    return known
            raise
        self._control.notifier.notify()
        return granted

    def _in_turn(
        self, name: str, asked: Request, *, waiter: str | None, waited_since: int | None
    ) -> tuple[Grant, ...] | pool_errors.PoolError:
        """With the pool's lock: those ahead are left what is theirs."""
        with self._database.write("acquire in turn") as connection:
            pool, now = records.lock_pool(connection, name), self._control.clock()
            if asked.idempotency_key and (known := self._known(connection, pool, asked)):
                self._leave(connection, waiter)
                return known
            # Changed while we waited, perhaps: more than it can have would hold up all behind us.
            _check(pool, asked)
            if pool.status is not PoolStatus.ACTIVE:
                return pool_errors.PoolNotActiveError(pool.name, pool.status)
            ahead = self._ahead(connection, pool, asked.priority, waiter, now)
            rows = self._pick(connection, pool, ahead + asked.count, now, wait=True)
            if len(rows) < ahead + asked.count:
                why = self._why_none(connection, pool, asked, now, ahead)
                if waiter is None and not (asked.cold or asked.wait_seconds > 0):
                    _missed(connection, pool, asked, why, now)
                return why
            waited = 0 if waited_since is None else now - waited_since
            granted = self._give(connection, pool, rows[: asked.count], asked, now, waited=waited)
            self._leave(connection, waiter)
        self._control.notifier.notify()
        return granted

    def _pick(
        self, connection: sa.Connection, pool: Pool, count: int, now: int, *, wait: bool
    ) -> list[Member]:
        since = now - pool.settings.heartbeat_stale_after_seconds * SECOND
        chosen = statements.taken(
            statements.claimable(pool.id, heard_since_us=since, count=count), wait=wait
        )
        return [member_of(row) for row in connection.execute(chosen).mappings()]

    def _give(
        self,
        connection: sa.Connection,
        pool: Pool,
        members: list[Member],
        asked: Request,
        now: int,
        *,
        waited: int,
    ) -> tuple[Grant, ...]:
        """Members become claimed, and the claims are written, in the same transaction."""
        batch = new_id("b") if len(members) > 1 else ""
        until = None if asked.lease_seconds is None else now + asked.lease_seconds * SECOND
        granted = tuple(
            Grant(
                dataclasses.replace(member, state=State.CLAIMED, acquired_us=now, reason="claimed"),
                Claim(
                    id=new_id("c"),
                    pool_id=pool.id,
                    member_id=member.id,
                    acquired_by=asked.acquired_by,
                    acquired_for=asked.acquired_for,
                    acquired_us=now,
                    lease_until_us=until,
                    batch_id=batch,
                    idempotency_key=asked.idempotency_key,
                    waited_us=waited,
                    cold=asked.cold and waited > 0,
                ),
            )
            for member in members
        )
        connection.execute(
            sa.update(schema.members)
            .where(schema.members.c.id.in_([grant.member.id for grant in granted]))
            .values(state=State.CLAIMED, acquired_us=now, reason="claimed")
        )
        connection.execute(
            schema.claims.insert(),
            [
                {**dataclasses.asdict(grant.claim), "batch_place": place}
                for place, grant in enumerate(granted)
            ],
        )
        connection.execute(
            schema.events.insert(),
            [
                {
                    "at_us": now, "kind": "member_claimed", "pool_id": pool.id, "pool": pool.name,
                    "member_id": grant.member.id, "claim_id": grant.claim.id,
                    "reason": "cold" if grant.claim.cold else "claimed",
                    "detail": asked.acquired_by,
                }
                for grant in granted
            ],
        )  # fmt: skip
        return granted

    def _known(self, connection: sa.Connection, pool: Pool, asked: Request) -> tuple[Grant, ...]:
        """What the same request got before."""
        rows = connection.execute(statements.claims_of_key(pool.id, str(asked.idempotency_key)))
        found = [records.claim_of(row) for row in rows.mappings()]
        if found and (
            len(found) != asked.count
            or {(c.acquired_by, c.acquired_for) for c in found}
            != {(asked.acquired_by, asked.acquired_for)}
            or not all(_leased_as(c, asked) for c in found)
        ):
            raise pool_errors.KeyReusedError(str(asked.idempotency_key))
        for claim in found:
            if claim.released_us is not None:
                # Its member is gone, or somebody else's by now: not to be worked on.
                raise pool_errors.ClaimEndedError(claim.id, claim.release_reason)
        return tuple(Grant(records.find_member(connection, c.member_id), c) for c in found)

    def _ahead(
        self, connection: sa.Connection, pool: Pool, priority: int, me: str | None, now: int
    ) -> int:
        """How many members those before us in the queue ask for."""
        since = now - pool.settings.waiter_stale_seconds * SECOND
        wanted = 0
        for row in connection.execute(statements.waiters_in_order(pool.id, since)).mappings():
            if row["id"] == me or row["priority"] < priority:
                break
            wanted += int(row["wanted"])
        return wanted

    def _why_none(
        self,
        connection: sa.Connection,
        pool: Pool,
        asked: Request,
        now: int,
        ahead: int,
    ) -> pool_errors.PoolError:
        view = records.view(connection, pool, now)
        held = decisions.counts(view)
        ready = [m for m in view.members if m.state is State.READY and m.serves]
        limit = pool.settings.heartbeat_stale_after_seconds * SECOND
        heard = {m.id: now - max(m.beat_us or 0, m.ready_us or 0) for m in ready}
        silent = tuple((name, age / SECOND) for name, age in heard.items() if age >= limit)
        if ready and len(silent) == len(ready):
            return pool_errors.NoLiveReadyMembersError(pool.name, silent)
        why = ""
        if ready and ahead:
            why = f"{ahead} are asked for by those who wait already"
        elif pool.breaker_opened_us is not None:
            why = f"its breaker is open: {pool.last_failure}"
        elif held.members >= pool.max_size and not held.warming:
            why = f"it has all {held.members} members that it may have, {held.claimed} of them claimed"
        return pool_errors.NoReadyMembersError(
            pool.name, target=pool.target_size, ready=held.ready, warming=held.warming,
            wanted=asked.count, why=why,
        )  # fmt: skip

    # in the queue

    def _in_the_queue(self, name: str, asked: Request, began: int) -> tuple[Grant, ...]:
        waiter, pool = self._queue_up(name, asked, began)
        limit = asked.wait_seconds
        if asked.cold and limit <= 0:
            limit = float(pool.settings.warming_timeout_seconds)
        deadline = time.monotonic() + limit
        try:
            with self._control.notifier.listen() as listener:
                self._control.notifier.notify()
                return self._wait(pool, asked, waiter, began, deadline, listener.wait)
        except (
            pool_errors.PoolNotFoundError
        ):  # deleted meanwhile; by the name that the caller knows
            raise pool_errors.PoolNotFoundError(pool.name) from None
        finally:
            self._give_up(pool, asked, waiter)

    def _queue_up(self, name: str, asked: Request, began: int) -> tuple[str, Pool]:
        waiter = new_id("w")
        with self._database.write("queue up") as connection:
            pool, now = records.find_pool(connection, name), self._control.clock()
            connection.execute(
                schema.waiters.insert().values(
                    id=waiter, pool_id=pool.id, priority=asked.priority, wanted=asked.count,
                    queued_us=began, seen_us=now, acquired_by=asked.acquired_by,
                )
            )  # fmt: skip
            records.add_event(
                connection, "waiter_queued", now, pool=pool, reason="cold" if asked.cold else "wait",
                detail=f"{waiter} {asked.acquired_by}",
            )  # fmt: skip
        return waiter, pool

    def _wait(
        self,
        pool: Pool,
        asked: Request,
        waiter: str,
        began: int,
        deadline: float,
        pause: Callable[[float], bool],
    ) -> tuple[Grant, ...]:
        place = queue_place.QueuePlace(self._control, waiter, pool.settings.waiter_stale_seconds)
        over = False
        while True:
            granted = self._in_turn(pool.id, asked, waiter=waiter, waited_since=began)
            if isinstance(granted, tuple):
                return granted
            if over or isinstance(granted, pool_errors.PoolNotActiveError):
                raise granted  # as things are now, not as they were when the wait began
            # Looking costs no lock; only when there is something for us is it taken.
            while not over and not self._something_for(pool.id, asked, waiter):
                left = deadline - time.monotonic()
                over = left <= 0 or (asked.cold and self._hopeless(pool.id, asked, place))
                pause(0 if over else min(left, LOOK_SECONDS, place.every))
                place.keep()

    def _something_for(self, pool_id: str, asked: Request, waiter: str) -> bool:
        with self._database.read() as connection:
            pool, now = records.find_pool(connection, pool_id), self._control.clock()
            if pool.status is not PoolStatus.ACTIVE or asked.count > pool.max_size:
                return True  # to be told so
            ahead = self._ahead(connection, pool, asked.priority, waiter, now)
            since = now - pool.settings.heartbeat_stale_after_seconds * SECOND
            wanted = ahead + asked.count
            chosen = statements.claimable(pool.id, heard_since_us=since, count=wanted)
            return len(connection.execute(chosen).all()) == wanted

    def _hopeless(self, pool_id: str, asked: Request, place: queue_place.QueuePlace) -> bool:
        """Launch for a cold claim what is wanted; True when nothing is coming and nobody said to wait."""
        with place.kept():  # else what is launched for us would look like too much
            self._fill(pool_id)
        with self._database.read() as connection:
            view = records.view(
                connection, records.find_pool(connection, pool_id), self._control.clock()
            )
        return asked.wait_seconds <= 0 and not any(member.serves for member in view.members)

    def _leave(self, connection: sa.Connection, waiter: str | None) -> None:
        if waiter is not None:
            connection.execute(sa.delete(schema.waiters).where(schema.waiters.c.id == waiter))

    def _give_up(self, pool: Pool, asked: Request, waiter: str) -> None:
        """Out of the queue, if we still stand in it."""
        with contextlib.suppress(pool_errors.PoolError):
            with self._database.read() as connection:
                chosen = sa.select(schema.waiters.c.id).where(schema.waiters.c.id == waiter)
                if connection.execute(chosen).scalar() is None:
                    return
            with self._database.write("leave the queue") as connection:
                now = self._control.clock()
                self._leave(connection, waiter)
                records.add_event(
                    connection, "waiter_left", now, pool=pool, reason="gave_up", detail=waiter
                )
                _missed(connection, pool, asked, None, now)


def _missed(
    connection: sa.Connection,
    pool: Pool,
    asked: Request,
    why: pool_errors.PoolError | None,
    now: int,
) -> None:
    """Written down: an empty pool must not look like one that nobody wants. `detail` is how many."""
    records.add_event(
        connection, "claim_missed", now, pool=pool, detail=str(asked.count),
        reason="gave_up" if why is None else why.kind.replace("-", "_"),
    )  # fmt: skip


def _leased_as(claim: Claim, asked: Request) -> bool:
    """Whether a claim has the lease that is asked for; of one that was renewed nobody can tell."""
    if claim.renewals:
        return True
    until = claim.lease_until_us
    return asked.lease_seconds == (None if until is None else (until - claim.acquired_us) // SECOND)


class _NotNowError(Exception):
    """Nothing was changed; the slower way is taken."""


def _check(pool: Pool, asked: Request) -> None:
    if not 1 <= asked.count <= pool.max_size:
        raise pool_errors.BadKnobError("count", asked.count, f"from 1 to max_size {pool.max_size}")
    if asked.lease_seconds is not None and not 1 <= asked.lease_seconds <= (
        pool.settings.lease_max_seconds
    ):
        raise pool_errors.BadKnobError(
            "lease_seconds", asked.lease_seconds, f"from 1 to {pool.settings.lease_max_seconds}"
        )


def _must_be_active(pool: Pool) -> None:
    if pool.status is not PoolStatus.ACTIVE:
        raise pool_errors.PoolNotActiveError(pool.name, pool.status)
