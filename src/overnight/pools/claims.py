"""Acquire members: at once, in the queue, or cold.

The fast path takes one member while nobody waits, and locks nothing else. All other claims are served one at
a time under the pool's lock, so that nobody overtakes: callers ahead are served first.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from overnight.database import database_errors, engine
from overnight.model.pool import (
    Claim,
    Grant,
    Member,
    MemberState,
    Pool,
    PoolStatus,
    Request,
    Waiter,
    new_id,
)
from overnight.model.times import SECOND_US
from overnight.pools import decisions, misses, pool_errors, requests
from overnight.pools.sql import (
    claim_rows,
    event_rows,
    fast_claim,
    member_rows,
    pool_rows,
    shared_values,
    waiter_rows,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from overnight.pools import context, wakeups

POLL_SECONDS = 0.25  # how often a waiting caller polls, should a notification be lost
Grants = tuple[Grant, ...]
IsGone = Callable[[], bool]


class ClaimBroker:
    def __init__(self, control: context.Context, replenish: Callable[[str], object]) -> None:
        """`replenish` launches what a pool wants at once: a cold claim does not wait for the reaper."""
        self._control = control
        self._database = control.database
        self._replenish = replenish

    def acquire(self, name: str, /, *, is_gone: IsGone = lambda: False, **given: object) -> Grants:
        """Claim ready members, all or none; raises the reason when there are not enough.

        A wait ends when `is_gone`, as if its time were over: the caller does not wait any more.
        """
        request = requests.build(given)
        began = self._control.clock()
        if grants := self._try_fast(name, request):
            return grants
        try:
            result = self._try_locked(name, request)
        except engine.IntegrityError:
            # The same request was made at the same moment, on the fast path: repeat what it got.
            result = self._try_locked(name, request)
        if isinstance(result, tuple):
            return result
        if not _may_wait(request) or isinstance(result, pool_errors.PoolNotActiveError):
            raise result
        return self._wait_in_queue(name, request, began, is_gone)

    # at once

    def _try_fast(self, name: str, request: Request) -> Grants:
        """Serve the usual case in the fewest steps; empty if anything is unusual."""
        if not fast_claim.serves(request):
            return ()
        claim_id, kind = new_id("c"), self._database.kind
        try:
            with self._database.quick("acquire quickly") as driver:
                now = self._control.clock()
                row = fast_claim.take(driver, kind, claim_id, name, request, now)
        except engine.IntegrityError:
            return ()  # the idempotency key was used before
        if row is None:
            return ()
        self._control.notifier.notify(urgent=False)
        return (fast_claim.build_grant(claim_id, request, row),)

    def _try_locked(
        self, name: str, request: Request, waiter: Waiter | None = None
    ) -> Grants | pool_errors.PoolError:
        """Return the grants, or the reason why there are none; callers ahead are left what is theirs."""
        with self._database.write("acquire in turn") as connection:
            pool, now = pool_rows.lock(connection, name), self._control.clock()
            if repeated := _find_repeated(connection, pool, request):
                if waiter is not None:
                    waiter_rows.delete(connection, waiter.id)
                return repeated
            # The pool may have changed meanwhile: a request larger than the pool would block the queue.
            requests.check(pool, request)
            if pool.status is not PoolStatus.ACTIVE:
                return pool_errors.PoolNotActiveError(pool.name, pool.status)
            ahead = count_ahead(connection, pool, request, waiter, now)
            wanted = ahead + request.count
            members = member_rows.list_claimable(connection, pool, wanted, now, lock=True)
            if len(members) < wanted:
                return self._miss(connection, pool, request, waiter, ahead)
            waited_us = 0 if waiter is None else now - waiter.queued_us
            grants = grant(
                connection, pool, members[: request.count], request, now, waited_us=waited_us
            )
            if waiter is not None:
                waiter_rows.delete(connection, waiter.id)
        self._control.notifier.notify()
        return grants

    def _miss(
        self,
        connection: engine.Connection,
        pool: Pool,
        request: Request,
        waiter: Waiter | None,
        ahead: int,
    ) -> pool_errors.PoolError:
        """Return why there is no member, and record it for a caller that does not wait."""
        now = self._control.clock()
        name = waiter.id if waiter else misses.name(pool.id, request, now)
        view, seen = pool_rows.view(connection, pool, now), shared_values.read_seen(connection)
        miss = misses.explain(view, request, name, ahead, seen)
        if waiter is None and not _may_wait(request):
            event_rows.add_refused(
                connection, pool, name, request.count, now, reason=miss.reason,
                missed=miss.error.kind.replace("-", "_"),
                detail=f"{miss.numbers}{misses.BY}{request.acquired_by}",
            )  # fmt: skip
        return miss.error

    # in the queue

    def _wait_in_queue(self, name: str, request: Request, began: int, is_gone: IsGone) -> Grants:
        waiter, pool = self._enter_queue(name, request, began)
        try:
            with self._control.notifier.listen() as pause, self._keep_place(pool, waiter):
                self._control.notifier.notify()
                return self._wait(pool, request, waiter, pause, is_gone)
        except pool_errors.PoolNotFoundError:  # deleted meanwhile; report the name, not the id
            raise pool_errors.PoolNotFoundError(pool.name) from None
        finally:
            self._leave_unserved(pool, waiter)

    def _enter_queue(self, name: str, request: Request, began: int) -> tuple[Waiter, Pool]:
        waiter_id = new_id("w")
        with self._database.write("queue up") as connection:
            pool, now = pool_rows.find(connection, name), self._control.clock()
            waiter = Waiter(
                id=waiter_id, pool_id=pool.id, priority=request.priority, wanted=request.count,
                queued_us=began, seen_us=now, acquired_by=request.acquired_by,
            )  # fmt: skip
            waiter_rows.insert(connection, waiter)
            event_rows.add(
                connection, "waiter_queued", now, pool=pool,
                reason="cold" if request.cold else "wait",
                detail=f"{waiter_id} {request.acquired_by}",
            )  # fmt: skip
        return waiter, pool

    def _wait(
        self, pool: Pool, request: Request, waiter: Waiter, pause: wakeups.Wait, is_gone: IsGone
    ) -> Grants:
        limit = request.wait_seconds
        if request.cold and limit <= 0:
            limit = float(pool.settings.warming_timeout_seconds)
        deadline = time.monotonic() + limit
        over = False
        while True:
            result = self._try_locked(pool.id, request, waiter)
            if isinstance(result, tuple):
                return result
            if over or isinstance(result, pool_errors.PoolNotActiveError):
                raise result  # the reason as it is now, not when the wait began
            # Polling takes no lock; it is taken only when there is something for us.
            while not over and not self._is_our_turn(pool.id, request, waiter):
                left = 0.0 if is_gone() else deadline - time.monotonic()
                over = left <= 0 or (request.cold and self._is_hopeless(pool.id, request))
                pause(0 if over else min(left, POLL_SECONDS))

    def _is_our_turn(self, pool_id: str, request: Request, waiter: Waiter) -> bool:
        with self._database.read() as connection:
            pool, now = pool_rows.find(connection, pool_id), self._control.clock()
            if pool.status is not PoolStatus.ACTIVE or request.count > pool.max_size:
                return True  # to be refused
            wanted = count_ahead(connection, pool, request, waiter, now) + request.count
            return len(member_rows.list_claimable(connection, pool, wanted, now)) == wanted

    def _is_hopeless(self, pool_id: str, request: Request) -> bool:
        """Launch for a cold claim; True when no member is coming and no wait was requested."""
        self._replenish(pool_id)
        with self._database.read() as connection:
            pool = pool_rows.find(connection, pool_id)
            view = pool_rows.view(connection, pool, self._control.clock())
        return request.wait_seconds <= 0 and not any(member.serves for member in view.members)

    @contextlib.contextmanager
    def _keep_place(self, pool: Pool, waiter: Waiter) -> Iterator[None]:
        """Report that the caller still waits, from another thread: a launch may take long.

        After `waiter_stale_seconds` without a report what is launched for us would look like a surplus.
        """
        over = threading.Event()

        def report_until_over() -> None:
            while not over.wait(pool.settings.waiter_stale_seconds / 3):
                with contextlib.suppress(database_errors.DatabaseUnavailableError):  # next time
                    self._report(waiter)

        name = f"place of {waiter.id}"
        reporting = threading.Thread(target=report_until_over, name=name, daemon=True)
        reporting.start()
        try:
            yield
        finally:
            over.set()
            reporting.join()

    def _report(self, waiter: Waiter) -> None:
        with self._database.write("still waiting") as connection:
            waiter_rows.touch(connection, waiter.id, self._control.clock())

    def _leave_unserved(self, pool: Pool, waiter: Waiter) -> None:
        """Leave the queue, unless a grant has removed us from it."""
        with contextlib.suppress(database_errors.DatabaseUnavailableError):
            with self._database.read() as connection:
                if not waiter_rows.exists(connection, waiter.id):
                    return
            with self._database.write("leave the queue") as connection:
                now = self._control.clock()
                if waiter_rows.delete(connection, waiter.id):
                    event_rows.add_unserved(connection, pool, waiter, now, reason="gave_up")


def grant(
    connection: engine.Connection,
    pool: Pool,
    members: list[Member],
    request: Request,
    now: int,
    *,
    waited_us: int = 0,
) -> Grants:
    """Mark the members as claimed and write the claims, in the same transaction."""
    batch = new_id("b") if len(members) > 1 else ""
    cold = request.cold and waited_us > 0
    claims = [
        dataclasses.replace(
            fast_claim.build_claim(new_id("c"), request, member, now),
            batch_id=batch, waited_us=waited_us, cold=cold,
        )
        for member in members
    ]  # fmt: skip
    member_rows.set_claimed(connection, [member.id for member in members], now)
    claim_rows.insert(connection, claims)
    event_rows.add_claimed(connection, pool, claims)
    return tuple(
        Grant(
            dataclasses.replace(
                member, state=MemberState.CLAIMED, acquired_us=now, reason="claimed"
            ),
            claim,
        )
        for member, claim in zip(members, claims, strict=True)
    )


def _find_repeated(connection: engine.Connection, pool: Pool, request: Request) -> Grants:
    """Return what the same request got before; empty for a new one."""
    key = request.idempotency_key
    if not key:
        return ()
    claims = claim_rows.list_of_key(connection, pool.id, key)
    if claims and (
        len(claims) != request.count
        or {(c.acquired_by, c.acquired_for) for c in claims}
        != {(request.acquired_by, request.acquired_for)}
        or not all(_has_lease_of(claim, request) for claim in claims)
    ):
        raise pool_errors.KeyReusedError(key)
    for claim in claims:
        if claim.released_us is not None:
            # Its member is gone or belongs to somebody else by now: the caller must not use it.
            raise pool_errors.ClaimEndedError(claim.id, claim.release_reason)
    return tuple(Grant(member_rows.find(connection, c.member_id), c) for c in claims)


def _may_wait(request: Request) -> bool:
    return request.cold or request.wait_seconds > 0


def count_ahead(
    connection: engine.Connection, pool: Pool, request: Request, own: Waiter | None, now: int
) -> int:
    """Count the members that callers ahead of us in the queue ask for."""
    since = now - pool.settings.waiter_stale_seconds * SECOND_US
    ours = decisions.queue_key(pool, request.priority, now if own is None else own.queued_us)
    wanted = 0
    for waiter in waiter_rows.list_queue(connection, pool, since):
        key = decisions.queue_key(pool, waiter.priority, waiter.queued_us)
        if (own and waiter.id == own.id) or key > ours:
            break
        wanted += waiter.wanted
    return wanted


def _has_lease_of(claim: Claim, request: Request) -> bool:
    """Whether a claim has the requested lease; this is unknown for a renewed one."""
    if claim.renewals:
        return True
    until = claim.lease_until_us
    lease = None if until is None else (until - claim.acquired_us) // SECOND_US
    return request.lease_seconds == lease
