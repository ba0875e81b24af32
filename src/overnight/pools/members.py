"""What is done with a member after it was claimed, and by hand: renew, return, terminate, cordon."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import sqlalchemy as sa

from overnight.model.pool import Claim, Member, MemberState, Pool
from overnight.pools import decisions, pool_errors
from overnight.pools.sql import records, schema

if TYPE_CHECKING:
    from overnight.pools import context, maintenance

__all__ = ["MemberActions"]

SECOND = decisions.SECOND
State = MemberState
claims, members = schema.claims, schema.members


class MemberActions:
    """The ways back, and out."""

    def __init__(self, control: context.Context, work: maintenance.Maintenance) -> None:
        self._control = control
        self._database = control.database
        self._upkeep = work

    def renew(self, claim_id: str, lease_seconds: int) -> Claim:
        """A lease from now on; up to `lease_max_seconds` after the claim, and never shorter than it was."""
        now = self._control.clock()
        with self._database.write("renew") as connection:
            pool, claim = self._claim(connection, claim_id)
            _must_be_open(claim)
            most = pool.settings.lease_max_seconds
            if isinstance(lease_seconds, bool) or not 1 <= lease_seconds <= most:
                raise pool_errors.BadKnobError("lease_seconds", lease_seconds, f"from 1 to {most}")
            if claim.lease_until_us is not None and now >= claim.lease_until_us:
                raise pool_errors.ClaimEndedError(claim_id, "lease_expired")
            until = min(now + lease_seconds * SECOND, claim.acquired_us + most * SECOND)
            if until <= now:
                raise pool_errors.LeaseCapError(claim_id, pool.name, most)
            until = max(until, claim.lease_until_us or 0)
            renewed = dataclasses.replace(
                claim, lease_until_us=until, renewals=claim.renewals + 1, stale_us=None
            )
            connection.execute(
                sa.update(claims)
                .where(claims.c.id == claim_id)
                .values(lease_until_us=until, renewals=renewed.renewals, stale_us=None)
            )
            records.add_event(
                connection, "claim_renewed", now, pool=pool, member_id=claim.member_id,
                claim_id=claim_id, detail=f"for {(until - now) // SECOND} s",
            )  # fmt: skip
        return renewed

    def give_back(self, claim_id: str) -> Member:
        """The claim ends. The member is ready again where the pool allows it, else it is recycled."""
        now = self._control.clock()
        with self._database.write("return") as connection:
            pool, claim = self._claim(connection, claim_id)
            if claim.release_reason == "returned":
                return records.find_member(connection, claim.member_id)  # said before
            _must_be_open(claim)
            records.end_claim(connection, pool, claim, reason="returned", now_us=now)
            member = records.find_member(connection, claim.member_id)
            if self._reusable(pool, member, now):
                records.move(
                    connection, pool, member.id, to=State.READY, before=(State.CLAIMED,),
                    reason="returned", now_us=now, acquired_us=None,
                )  # fmt: skip
            else:
                records.move(
                    connection, pool, member.id, to=State.DRAINING, before=(State.CLAIMED,),
                    reason="returned", now_us=now,
                )  # fmt: skip
        self._control.notifier.notify()
        self._upkeep.end(pool)
        return self._member(member.id)

    def _reusable(self, pool: Pool, member: Member, now: int) -> bool:
        """Truly stateless, as the pool says; and as good as a new one."""
        heard = max(member.beat_us or 0, member.ready_us or 0)
        return (
            pool.settings.reuse_without_reset
            and not pool.winds_down
            and not member.cordoned
            and member.generation >= pool.generation
            and member.missing_us is None
            and now - heard < pool.settings.heartbeat_stale_after_seconds * SECOND
        )

    def terminate(self, member_id: str, *, forget: bool = False) -> Member:
        """End a member, whatever it does; its claim ends too. One that was abandoned is tried anew.

        With `forget` no provider is asked: its machine is known to be gone.
        """
        now = self._control.clock()
        with self._database.write("terminate member") as connection:
            member = records.find_member(connection, member_id)
            pool = records.lock_pool(connection, member.pool_id)
            member = records.find_member(connection, member_id)
            if member.gone_us is not None:
                return member
            self._end_claim_of(connection, pool, member, now)
            everything = tuple(State)
            records.move(
                connection, pool, member_id, to=State.DRAINING, before=everything,
                reason="terminated", now_us=now, abandoned_us=None, cordoned=False,
            )  # fmt: skip
            if forget:
                records.gone(connection, pool, member_id, reason="forgotten", now_us=now)
        self._control.notifier.notify()
        self._upkeep.end(pool)
        return self._member(member_id)

    def _end_claim_of(
        self, connection: sa.Connection, pool: Pool, member: Member, now: int
    ) -> None:
        chosen = sa.select(claims).where(
            claims.c.member_id == member.id, claims.c.released_us.is_(None)
        )
        row = connection.execute(chosen).mappings().first()
        if row is not None:
            records.end_claim(
                connection, pool, records.claim_of(row), reason="terminated", now_us=now
            )

    def cordon(self, member_id: str, *, held: bool = True) -> Member:
        """Keep a member from being given out, recycled or counted, to look at it; or let it go again.

        One whose claim has ended meanwhile goes only then.
        """
        now = self._control.clock()
        with self._database.write("cordon") as connection:
            member = records.find_member(connection, member_id)
            pool = records.lock_pool(connection, member.pool_id)
            member = records.find_member(connection, member_id)
            if member.gone_us is not None:
                raise pool_errors.MemberNotFoundError(member_id)
            if member.cordoned is not held:
                connection.execute(
                    sa.update(members).where(members.c.id == member_id).values(cordoned=held)
                )
                kind = "member_cordoned" if held else "member_uncordoned"
                records.add_event(
                    connection, kind, now, pool=pool, member_id=member_id, reason="operator"
                )
        self._control.notifier.notify()
        return self._member(member_id)

    def _claim(self, connection: sa.Connection, claim_id: str) -> tuple[Pool, Claim]:
        """A claim and its pool, locked in the order in which everybody locks: the pool first."""
        chosen = sa.select(claims.c.pool_id).where(claims.c.id == claim_id)
        pool_id = connection.execute(chosen).scalar()
        if pool_id is None:
            raise pool_errors.ClaimNotFoundError(claim_id)
        pool = records.lock_pool(connection, str(pool_id))
        return pool, records.find_claim(connection, claim_id)

    def _member(self, member_id: str) -> Member:
        with self._database.read() as connection:
            return records.find_member(connection, member_id)


def _must_be_open(claim: Claim) -> None:
    if claim.released_us is not None:
        raise pool_errors.ClaimEndedError(claim.id, claim.release_reason)
