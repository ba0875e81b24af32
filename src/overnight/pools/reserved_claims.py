"""Claims of reservations: one named member each, with an end of their own.

`lease_max_seconds` and `claimed_ttl_seconds` limit what callers of a pool may ask for. A reservation may last longer,
up to `MAX_SECONDS`; its claims have a lease, so the reaper ends them when it is not renewed. No interface offers these
operations to callers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from overnight.model.pool import Claim, Member, MemberState, Pool, PoolStatus, Request, new_id
from overnight.model.reservation import MAX_SECONDS
from overnight.model.times import SECOND_US
from overnight.pools import claims, pool_errors
from overnight.pools.sql import claim_rows, event_rows, member_rows, pool_rows

if TYPE_CHECKING:
    from overnight.database import engine
    from overnight.pools import context


class ReservedClaims:
    def __init__(self, control: context.Context) -> None:
        self._control = control
        self._database = control.database

    def reserve(
        self, name: str, member_id: str, *, key: str, by: str, purpose: str, until_us: int
    ) -> Claim:
        """Claim this member; the same key returns the same claim. Raises MemberStateError if it is not ready."""
        with self._database.write("reserve member") as connection:
            pool, now = pool_rows.lock(connection, name), self._control.clock()
            for claim in claim_rows.list_of_key(connection, pool.id, key):
                if claim.released_us is not None:
                    raise pool_errors.ClaimEndedError(claim.id, claim.release_reason)
                return claim
            if pool.status is not PoolStatus.ACTIVE:
                raise pool_errors.PoolNotActiveError(pool.name, pool.status)
            _check_claimable(connection, pool, member_rows.find(connection, member_id), now)
            claim = Claim(
                id=new_id("c"), pool_id=pool.id, member_id=member_id, acquired_by=by,
                acquired_for=purpose, acquired_us=now, idempotency_key=key,
                lease_until_us=min(until_us, now + MAX_SECONDS * SECOND_US),
            )  # fmt: skip
            member_rows.set_claimed(connection, [member_id], now)
            claim_rows.insert(connection, [claim])
            event_rows.add_claimed(connection, pool, [claim])
            _add_event(connection, pool, claim, now)
        self._control.notifier.notify()
        return claim

    def extend(self, claim_id: str, until_us: int) -> Claim | None:
        """Set the end of a claim that `reserve` made, at most MAX_SECONDS after it began; None if it has ended."""
        with self._database.write("extend reserved claim") as connection:
            pool_id = claim_rows.find_pool_id(connection, claim_id)
            pool = pool_rows.lock(connection, pool_id, deleted=True)
            claim, now = claim_rows.find(connection, claim_id), self._control.clock()
            if claim.released_us is not None or now >= (claim.lease_until_us or 0):
                return None
            until_us = min(until_us, claim.acquired_us + MAX_SECONDS * SECOND_US)
            if until_us == claim.lease_until_us:
                return claim
            renewals = claim.renewals + 1
            claim = dataclasses.replace(claim, lease_until_us=until_us, renewals=renewals)
            claim_rows.renew(connection, claim)
            _add_event(connection, pool, claim, now)
        return claim

    def find(self, name: str, key: str) -> Claim | None:
        """Return the claim with this key, also one that has ended; raises PoolNotFoundError."""
        with self._database.read() as connection:
            pool = pool_rows.find(connection, name)
            return next(iter(claim_rows.list_of_key(connection, pool.id, key)), None)

    def list_open(self, name: str) -> Sequence[Claim]:
        """List every open claim of a pool, also those of callers; raises PoolNotFoundError."""
        with self._database.read() as connection:
            return claim_rows.list_open(connection, pool_rows.find(connection, name).id)


def _check_claimable(
    connection: engine.Connection, pool: Pool, member: Member, now_us: int
) -> None:
    """Raise MemberStateError unless the member can be claimed, and callers in the queue are left what is theirs."""
    ready = member_rows.list_claimable(connection, pool, pool.max_size, now_us, lock=True)
    if member.pool_id != pool.id or member.id not in [each.id for each in ready]:
        silent = member.state is MemberState.READY and "ready, but cordoned, missing or silent"
        raise pool_errors.MemberStateError(
            f"member {member.id} of pool {pool.name} cannot be claimed",
            why=f"it is {silent or member.state}",
            todo=f"overnight pool member {member.id}",
        )
    ahead = claims.count_ahead(connection, pool, Request(), None, now_us)
    if len(ready) <= ahead:
        raise pool_errors.MemberStateError(
            f"every ready member of pool {pool.name} is for callers who wait",
            why=f"callers already in the queue asked for {ahead}",
            todo=f"raise its target: `overnight pool update {pool.name} --target N`",
        )


def _add_event(connection: engine.Connection, pool: Pool, claim: Claim, now_us: int) -> None:
    seconds = ((claim.lease_until_us or now_us) - now_us) // SECOND_US
    event_rows.add(
        connection, "claim_reserved", now_us, pool=pool, member_id=claim.member_id,
        claim_id=claim.id, reason="reservation",
        detail=f"for {seconds} s; lease_max_seconds of {pool.settings.lease_max_seconds} does not apply",
    )  # fmt: skip
