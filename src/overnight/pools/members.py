"""Operations on claimed members, and by hand: renew, return, terminate, cordon."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from overnight.model.pool import LAUNCH, Claim, Member, MemberState, Pool
from overnight.model.text import plural
from overnight.model.times import SECOND_US
from overnight.pools import pool_errors
from overnight.pools.sql import claim_rows, event_rows, member_rows, pool_rows, shared_values

if TYPE_CHECKING:
    from overnight.database import engine
    from overnight.pools import context, maintenance

State = MemberState


class MemberActions:
    def __init__(self, control: context.Context, work: maintenance.Maintenance) -> None:
        self._control = control
        self._database = control.database
        self._maintenance = work

    def renew(self, claim_id: str, lease_seconds: int) -> Claim:
        """Extend a lease from now on: at most `lease_max_seconds` after the claim, never shorter than before."""
        now = self._control.clock()
        with self._database.write("renew") as connection:
            pool, claim = self._claim(connection, claim_id)
            return renew(connection, pool, claim, lease_seconds, now)

    def give_back(self, claim_id: str) -> Member:
        """End a claim. The member is ready again where the pool allows it, otherwise it is recycled."""
        now = self._control.clock()
        with self._database.write("return") as connection:
            pool, claim = self._claim(connection, claim_id)
            if claim.release_reason == "returned":
                return member_rows.find(connection, claim.member_id)  # repeated
            _must_be_open(claim)
            claim_rows.end(connection, pool, claim, reason="returned", now_us=now)
            member = member_rows.find(connection, claim.member_id)
            reuse = _is_reusable(pool, member, now)
            member_rows.move(
                connection, pool, member.id, before=(State.CLAIMED,), reason="returned", now_us=now,
                to=State.READY if reuse else State.DRAINING,
                acquired_us=None if reuse else member.acquired_us,
            )  # fmt: skip
        return self._finish(pool, member.id)

    def return_member(self, pool_name: str, member_id: str) -> Member:
        """End the claim on a member of a pool, whoever holds it."""
        with self._database.read() as connection:
            pool = pool_rows.find(connection, pool_name)
            member = member_rows.find(connection, member_id)
            claim = claim_rows.find_last(connection, member_id)
        if member.pool_id != pool.id:
            raise pool_errors.MemberStateError(
                f"member {member_id} is not in pool {pool.name}",
                why="it belongs to another pool",
                todo=f"overnight pool member {member_id}",
            )
        if claim is None:
            raise pool_errors.MemberStateError(
                f"member {member_id} is not claimed",
                why=f"it is {member.state}",
                todo=f"to remove it: `overnight pool terminate {member_id}`",
            )
        return self.give_back(claim.id)

    def terminate(self, member_id: str, *, forget: bool = False, confirmed: bool = True) -> Member:
        """Terminate a member in any state and end its claim; raises for a claim unless `confirmed`.

        With `forget` the provider is not called: the machine is known to be gone.
        """
        now = self._control.clock()
        with self._database.write("terminate member") as connection:
            member, pool = _lock(connection, member_id)
            if member.gone_us is not None:
                return member
            claim = claim_rows.find_last(connection, member_id)
            if not confirmed and claim is not None and claim.released_us is None:
                raise pool_errors.ClaimsAffectedError(
                    f"member {member_id} is claimed by {claim.acquired_by or 'a caller'} ({claim.id})",
                    why="terminating it ends the claim",
                )
            claim_rows.end_of_member(connection, pool, member_id, reason="terminated", now_us=now)
            member_rows.move(
                connection, pool, member_id, to=State.DRAINING, before=tuple(State),
                reason="terminated", now_us=now, abandoned_us=None, cordoned=False,
            )  # fmt: skip
            if forget:
                member_rows.set_gone(connection, pool, member_id, reason="forgotten", now_us=now)
        return self._finish(pool, member_id)

    def forget(self, host: str, *, confirmed: bool = True) -> int:
        """Give up the members on a host that is gone for good, and end their claims; return how many."""
        with self._database.read() as connection:
            members = member_rows.list_of_host(connection, host)
        if not members:
            wanted = "the host of a member, as `overnight pool show POOL` names it"
            raise pool_errors.BadKnobError("host", host, wanted)
        if not confirmed:
            claimed = sum(member.state is State.CLAIMED for member in members)
            raise pool_errors.ClaimsAffectedError(
                f"{host} has {plural(len(members), 'member')}, {claimed} claimed",
                why="they are given up, and their claims end",
            )
        for member in members:
            self.terminate(member.id, forget=True)
        with self._database.write("forget") as connection:
            for provider in {member.provider for member in members}:
                shared_values.put(connection, shared_values.orphans_name(provider, host), "0")
        return len(members)

    def cancel(self, task: str) -> Member:
        """Cancel a launch, or give up a teardown: the row stays, and names the machine that may still run."""
        member_id, _, operation = task.partition(":")
        now = self._control.clock()
        with self._database.write("cancel task") as connection:
            member, pool = _lock(connection, member_id)
            if member.task != task:
                raise pool_errors.TaskNotFoundError(task, member)
            if operation == LAUNCH:
                # Its machine is terminated as soon as it is known, however late the launch returns.
                member_rows.move(
                    connection, pool, member_id, to=State.DRAINING, before=(State.WARMING,),
                    reason="cancelled", now_us=now, cordoned=False,
                )  # fmt: skip
            else:
                member_rows.set_abandoned(connection, member_id, now)
                event_rows.add(
                    connection, "member_abandoned", now, pool=pool, member_id=member_id,
                    reason="cancelled", detail=f"after {plural(member.attempts, 'attempt')}; its machine may still run",
                )  # fmt: skip
        return self._finish(pool, member_id)

    def _finish(self, pool: Pool, member_id: str) -> Member:
        """Wake the reaper, terminate what is due, and return the member as it is then."""
        self._control.notifier.notify()
        self._maintenance.terminate_due(pool)
        return self.find(member_id)

    def set_cordoned(self, member_id: str, *, cordoned: bool) -> Member:
        """Hold a member for inspection (not claimed, recycled or counted), or release it again."""
        now = self._control.clock()
        with self._database.write("cordon") as connection:
            member, pool = _lock(connection, member_id)
            if member.gone_us is not None:
                raise pool_errors.MemberNotFoundError(member_id)
            if member.cordoned is not cordoned:
                member_rows.set_cordoned(connection, member_id, cordoned=cordoned)
                kind = "member_cordoned" if cordoned else "member_uncordoned"
                event_rows.add(
                    connection, kind, now, pool=pool, member_id=member_id, reason="operator"
                )
        self._control.notifier.notify()
        return self.find(member_id)

    def _claim(self, connection: engine.Connection, claim_id: str) -> tuple[Pool, Claim]:
        """Lock a claim and its pool; everybody locks the pool first."""
        pool_id = claim_rows.find_pool_id(connection, claim_id)
        pool = pool_rows.lock(connection, pool_id, deleted=True)
        return pool, claim_rows.find(connection, claim_id)

    def find_claim(self, claim_id: str) -> Claim:
        """Return a claim, also one that has ended."""
        with self._database.read() as connection:
            return claim_rows.find(connection, claim_id)

    def find(self, member_id: str) -> Member:
        """Return a member, also one that is gone."""
        with self._database.read() as connection:
            return member_rows.find(connection, member_id)


def renew(
    connection: engine.Connection, pool: Pool, claim: Claim, lease_seconds: int, now: int
) -> Claim:
    """Extend the lease of a claim whose pool is locked."""
    _must_be_open(claim)
    most = pool.settings.lease_max_seconds
    if isinstance(lease_seconds, bool) or not 1 <= lease_seconds <= most:
        raise pool_errors.BadKnobError("lease_seconds", lease_seconds, f"from 1 to {most}")
    if claim.lease_until_us is not None and now >= claim.lease_until_us:
        raise pool_errors.ClaimEndedError(claim.id, "lease_expired")
    until = min(now + lease_seconds * SECOND_US, claim.acquired_us + most * SECOND_US)
    if until <= now:
        raise pool_errors.LeaseCapError(claim.id, pool.name, most)
    until = max(until, claim.lease_until_us or 0)
    renewed = dataclasses.replace(
        claim, lease_until_us=until, renewals=claim.renewals + 1, stale_us=None
    )
    claim_rows.renew(connection, renewed)
    event_rows.add(
        connection, "claim_renewed", now, pool=pool, member_id=claim.member_id,
        claim_id=claim.id, detail=f"for {(until - now) // SECOND_US} s",
    )  # fmt: skip
    return renewed


def _is_reusable(pool: Pool, member: Member, now: int) -> bool:
    """Whether the pool allows reuse, and the member is as good as a new one."""
    return (
        pool.settings.reuse_without_reset
        and not pool.winds_down
        and not member.cordoned
        and member.generation >= pool.generation
        and member.missing_us is None
        and now - member.heard_us < pool.settings.heartbeat_stale_after_seconds * SECOND_US
    )


def _must_be_open(claim: Claim) -> None:
    if claim.released_us is not None:
        raise pool_errors.ClaimEndedError(claim.id, claim.release_reason)


def _lock(connection: engine.Connection, member_id: str) -> tuple[Member, Pool]:
    """Return a member as it is while its pool is locked, and the pool."""
    pool_id = member_rows.find(connection, member_id).pool_id
    pool = pool_rows.lock(connection, pool_id, deleted=True)
    return member_rows.find(connection, member_id), pool
