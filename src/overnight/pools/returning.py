"""What is done with a member after it was claimed, and by hand: renew, return, terminate, cordon."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import sqlalchemy as sa

from overnight.pools import book, decisions, refusals, schema, shape

if TYPE_CHECKING:
    from overnight.pools import context, upkeep

__all__ = ["Returning"]

SECOND = decisions.SECOND
State = shape.MemberState
claims, members = schema.claims, schema.members


class Returning:
    """The ways back, and out."""

    def __init__(self, control: context.Context, work: upkeep.Upkeep) -> None:
        self._control = control
        self._database = control.database
        self._upkeep = work

    def renew(self, claim_id: str, lease_seconds: int) -> shape.Claim:
        """A lease from now on; up to `lease_max_seconds` after the claim, and never shorter than it was."""
        now = self._control.clock()
        with self._database.write("renew") as connection:
            pool, claim = self._claim(connection, claim_id)
            _must_be_open(claim)
            most = pool.knobs.lease_max_seconds
            if isinstance(lease_seconds, bool) or not 1 <= lease_seconds <= most:
                raise refusals.BadKnobError("lease_seconds", lease_seconds, f"from 1 to {most}")
            if claim.lease_until_us is not None and now >= claim.lease_until_us:
                raise refusals.ClaimEndedError(claim_id, "lease_expired")
            until = min(now + lease_seconds * SECOND, claim.acquired_us + most * SECOND)
            if until <= now:
                raise refusals.LeaseCapError(claim_id, pool.name, most)
            until = max(until, claim.lease_until_us or 0)
            renewed = dataclasses.replace(
                claim, lease_until_us=until, renewals=claim.renewals + 1, stale_us=None
            )
            connection.execute(
                sa.update(claims)
                .where(claims.c.id == claim_id)
                .values(lease_until_us=until, renewals=renewed.renewals, stale_us=None)
            )
            book.add_event(
                connection, "claim_renewed", now, pool=pool, member_id=claim.member_id,
                claim_id=claim_id, detail=f"for {(until - now) // SECOND} s",
            )  # fmt: skip
        return renewed

    def give_back(self, claim_id: str) -> shape.Member:
        """The claim ends. The member is ready again where the pool allows it, else it is recycled."""
        now = self._control.clock()
        with self._database.write("return") as connection:
            pool, claim = self._claim(connection, claim_id)
            if claim.release_reason == "returned":
                return book.find_member(connection, claim.member_id)  # said before
            _must_be_open(claim)
            book.end_claim(connection, pool, claim, reason="returned", now_us=now)
            member = book.find_member(connection, claim.member_id)
            if self._reusable(pool, member, now):
                book.move(
                    connection, pool, member.id, to=State.READY, before=(State.CLAIMED,),
                    reason="returned", now_us=now, acquired_us=None,
                )  # fmt: skip
            else:
                book.move(
                    connection, pool, member.id, to=State.DRAINING, before=(State.CLAIMED,),
                    reason="returned", now_us=now,
                )  # fmt: skip
        self._control.bell.ring()
        self._upkeep.end(pool)
        return self._member(member.id)

    def _reusable(self, pool: shape.Pool, member: shape.Member, now: int) -> bool:
        """Truly stateless, as the pool says; and as good as a new one."""
        heard = max(member.beat_us or 0, member.ready_us or 0)
        return (
            pool.knobs.reuse_without_reset
            and not pool.winds_down
            and not member.cordoned
            and member.generation >= pool.generation
            and member.missing_us is None
            and now - heard < pool.knobs.heartbeat_stale_after_seconds * SECOND
        )

    def terminate(self, member_id: str, *, forget: bool = False) -> shape.Member:
        """End a member, whatever it does; its claim ends too. One that was abandoned is tried anew.

        With `forget` no provider is asked: its machine is known to be gone.
        """
        now = self._control.clock()
        with self._database.write("terminate member") as connection:
            member = book.find_member(connection, member_id)
            pool = book.lock_pool(connection, member.pool_id)
            member = book.find_member(connection, member_id)
            if member.gone_us is not None:
                return member
            self._end_claim_of(connection, pool, member, now)
            everything = tuple(State)
            book.move(
                connection, pool, member_id, to=State.DRAINING, before=everything,
                reason="terminated", now_us=now, abandoned_us=None, cordoned=False,
            )  # fmt: skip
            if forget:
                book.gone(connection, pool, member_id, reason="forgotten", now_us=now)
        self._control.bell.ring()
        self._upkeep.end(pool)
        return self._member(member_id)

    def _end_claim_of(
        self, connection: sa.Connection, pool: shape.Pool, member: shape.Member, now: int
    ) -> None:
        chosen = sa.select(claims).where(
            claims.c.member_id == member.id, claims.c.released_us.is_(None)
        )
        row = connection.execute(chosen).mappings().first()
        if row is not None:
            book.end_claim(connection, pool, book.claim_of(row), reason="terminated", now_us=now)

    def cordon(self, member_id: str, *, held: bool = True) -> shape.Member:
        """Keep a member from being given out, recycled or counted, to look at it; or let it go again.

        One whose claim has ended meanwhile goes only then.
        """
        now = self._control.clock()
        with self._database.write("cordon") as connection:
            member = book.find_member(connection, member_id)
            pool = book.lock_pool(connection, member.pool_id)
            member = book.find_member(connection, member_id)
            if member.gone_us is not None:
                raise refusals.MemberNotFoundError(member_id)
            if member.cordoned is not held:
                connection.execute(
                    sa.update(members).where(members.c.id == member_id).values(cordoned=held)
                )
                kind = "member_cordoned" if held else "member_uncordoned"
                book.add_event(
                    connection, kind, now, pool=pool, member_id=member_id, reason="operator"
                )
        self._control.bell.ring()
        return self._member(member_id)

    def _claim(self, connection: sa.Connection, claim_id: str) -> tuple[shape.Pool, shape.Claim]:
        """A claim and its pool, locked in the order in which everybody locks: the pool first."""
        chosen = sa.select(claims.c.pool_id).where(claims.c.id == claim_id)
        pool_id = connection.execute(chosen).scalar()
        if pool_id is None:
            raise refusals.ClaimNotFoundError(claim_id)
        pool = book.lock_pool(connection, str(pool_id))
        return pool, book.find_claim(connection, claim_id)

    def _member(self, member_id: str) -> shape.Member:
        with self._database.read() as connection:
            return book.find_member(connection, member_id)


def _must_be_open(claim: shape.Claim) -> None:
    if claim.released_us is not None:
        raise refusals.ClaimEndedError(claim.id, claim.release_reason)
