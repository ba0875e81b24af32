"""Carries out what `decisions` says: recycle, replenish, and the end of machines.

The provider is never called in a transaction. Before a launch there is a row that says so; after it the
row gets the machine. Before an attempt to terminate it is written that one is made. A crash in between
leaves a row that the next tick, or the sweep, brings to its end.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import math
import secrets
from typing import TYPE_CHECKING

import sqlalchemy as sa

from overnight import pools
from overnight.model.pool import CAPACITY, Member, MemberState, Pool, new_id
from overnight.pools import decisions, pool_errors
from overnight.pools.sql import records, schema, statements

if TYPE_CHECKING:
    from overnight.pools import context, provider_client

__all__ = ["Maintenance", "apply_failure", "order", "record_machine"]

SECOND = decisions.SECOND
State = MemberState
ENDING = (State.DRAINING, State.ERRORED)


def apply_failure(connection: sa.Connection, pool: Pool, reason: str, now_us: int) -> Pool:
    """Count a failure of a pool that is locked; tells when its breaker opens."""
    changed, opened = decisions.after_failure(pool, reason, now_us)
    records.save_pool(connection, changed)
    if opened:
        detail = f"{changed.failures} failures in a row"
        records.add_event(
            connection, "breaker_opened", now_us, pool=pool, reason=reason, detail=detail
        )
    return changed


class Maintenance:
    """The two phases of the reaper, for one pool at a time."""

    def __init__(self, control: context.Context) -> None:
        self._control = control
        self._database = control.database

    # recycle

    def recycle(self, name: str) -> int:
        """End what is stale and what is too much, and try again what would not end; how many changed."""
        changed = 0
        now = self._control.clock()
        with self._database.write("recycle") as connection:
            pool = records.lock_pool(connection, name)
            for instruction in decisions.recycle(records.view(connection, pool, now)):
                done = self.apply(connection, pool, instruction, now)
                changed += done
                if done and isinstance(instruction, decisions.Fail) and instruction.counts:
                    pool = apply_failure(connection, pool, instruction.reason, now)
            self._prune(connection, pool, now)
        if changed:
            self._control.notifier.notify()
        self.end(pool)
        return changed

    def apply(
        self,
        connection: sa.Connection,
        pool: Pool,
        instruction: decisions.Instruction,
        now: int,
    ) -> bool:
        """Write what one instruction changes in the rows; False when things have changed since."""
        match instruction:
            case decisions.Retire(member_id, reason):
                return records.move(
                    connection, pool, member_id,
                    to=State.DRAINING, before=CAPACITY, reason=reason, now_us=now,
                )  # fmt: skip
            case decisions.Fail(member_id, reason):
                return records.move(
                    connection, pool, member_id,
                    to=State.ERRORED, before=(State.WARMING,), reason=reason, now_us=now,
                )  # fmt: skip
            case decisions.EndClaim(claim_id, member_id, reason):
                claim = records.find_claim(connection, claim_id)
                return records.end_claim(connection, pool, claim, reason=reason, now_us=now) and (
                    records.move(
                        connection, pool, member_id,
                        to=State.DRAINING, before=(State.CLAIMED,), reason=reason, now_us=now,
                    )
                )  # fmt: skip
            case decisions.FlagClaim(claim_id, reason):
                return self._flag(connection, pool, claim_id, reason, now)
            case decisions.Abandon(member_id):
                return self._abandon(connection, pool, member_id, now)
        return False

    def _flag(
        self, connection: sa.Connection, pool: Pool, claim_id: str, reason: str, now: int
    ) -> bool:
        claims = schema.claims
        done = connection.execute(
            sa.update(claims)
            .where(claims.c.id == claim_id, claims.c.stale_us.is_(None))
            .values(stale_us=now)
        )
        if done.rowcount:
            records.add_event(
                connection, "claim_stale", now, pool=pool, claim_id=claim_id, reason=reason
            )
        return bool(done.rowcount)

    def _abandon(self, connection: sa.Connection, pool: Pool, member_id: str, now: int) -> bool:
        members = schema.members
        done = connection.execute(
            sa.update(members)
            .where(members.c.id == member_id, members.c.abandoned_us.is_(None))
            .values(abandoned_us=now)
        )
        if done.rowcount:
            records.add_event(
                connection, "member_abandoned", now, pool=pool, member_id=member_id,
                reason="terminate_failed",
                detail=f"after {pool.settings.terminate_attempts} attempts; its machine may still run",
            )  # fmt: skip
        return bool(done.rowcount)

    def _prune(self, connection: sa.Connection, pool: Pool, now: int) -> None:
        """Old records go: only of members whose machines are surely gone."""
        for statement in statements.forget_records(
            pool.id, now - pool.settings.record_retention_seconds * SECOND
        ):
            connection.execute(statement)
        left = now - pool.settings.waiter_stale_seconds * 10 * SECOND
        connection.execute(
            sa.delete(schema.waiters).where(
                schema.waiters.c.pool_id == pool.id, schema.waiters.c.seen_us < left
            )
        )

    # the end of machines

    def end(self, pool: Pool) -> int:
        """Ask the provider to end what is due in this pool; how many it ended."""
        now = self._control.clock()
        with self._database.read() as connection:
            view = records.view(connection, pool, now)
        due = {o.member_id for o in decisions.endings(view) if isinstance(o, decisions.Terminate)}
        members = [member for member in view.members if member.id in due]
        if len(members) < 2 or pool.settings.launch_parallel == 1:
            return sum(self._end_one(pool, member) for member in members)
        with concurrent.futures.ThreadPoolExecutor(pool.settings.launch_parallel) as threads:
            return sum(threads.map(lambda member: self._end_one(pool, member), members))

    def _end_one(self, pool: Pool, member: Member) -> bool:
        now = self._control.clock()
        attempt = member.attempts + 1
        if not self._begin_attempt(pool, member, attempt, now):
            return False
        caller = self._control.provider(member.provider)
        timeout = float(pool.settings.provider_timeout_seconds)
        try:
            machine_id = member.machine_id
            if machine_id is None:
                # Launched, perhaps, by somebody who was killed: the tag tells.
                known = caller.inventory(self._control.owner, timeout)
                machine_id = next((m.id for m in known if m.member_id == member.id), None)
            if machine_id is not None:
                caller.terminate(machine_id, timeout)
        except pools.ProviderError as error:
            with self._database.write("terminate failed") as connection:
                records.add_event(
                    connection, "terminate_failed", self._control.clock(), pool=pool,
                    member_id=member.id, reason=error.reason,
                    detail=f"attempt {attempt} of {pool.settings.terminate_attempts}: {error.what}",
                )  # fmt: skip
            return False
        with self._database.write("terminated") as connection:
            return records.gone(
                connection, pool, member.id, reason=member.reason, now_us=self._control.clock()
            )

    def _begin_attempt(self, pool: Pool, member: Member, attempt: int, now: int) -> bool:
        """Write that an attempt is made, and when the next is due should this one come to nothing."""
        members = schema.members
        launching = now - member.warming_started_us < (
            pool.settings.provider_timeout_seconds * SECOND
        )
        if member.machine_id is None and member.state is State.DRAINING and launching:
            # Its launch is under way, perhaps: it gets its machine in a moment, or the time runs out.
            attempt, wait = member.attempts, 1
        else:
            wait = decisions.retry_after(pool, attempt)
        with self._database.write("terminate") as connection:
            done = connection.execute(
                sa.update(members)
                .where(
                    members.c.id == member.id,
                    members.c.state == member.state,
                    members.c.attempts == member.attempts,
                    members.c.next_attempt_us == member.next_attempt_us,
                    members.c.gone_us.is_(None),
                )
                .values(attempts=attempt, next_attempt_us=now + wait * SECOND)
            )
        return done.rowcount == 1 and attempt > member.attempts

    # replenish

    def replenish(self, name: str, *, endpoint: str) -> int:
        """Launch what is missing, one slot at a time; how many machines were made.

        What is claimed meanwhile is for the next time: else a pool that is always claimed from is never
        done, and nothing in it is recycled.
        """
        with self._database.read() as connection:
            pool = records.find_pool(connection, name)
            launch = decisions.replenish(records.view(connection, pool, self._control.clock()))
        if launch is None:
            return 0
        width = min(launch.count, pool.settings.launch_parallel)
        each = math.ceil(launch.count / width)
        if width == 1:
            return self._fill(pool.id, endpoint, each)
        with concurrent.futures.ThreadPoolExecutor(width) as threads:
            return sum(threads.map(lambda _: self._fill(pool.id, endpoint, each), range(width)))

    def _fill(self, pool_id: str, endpoint: str, most: int) -> int:
        """Slot after slot, until none is wanted or one fails."""
        made = 0
        while made < most and self._fill_slot(pool_id, endpoint):
            made += 1
        return made

    def _fill_slot(self, pool_id: str, endpoint: str) -> bool | None:
        """One member: True made, False failed, None not wanted."""
        intent = self._intend(pool_id)
        if intent is None:
            return None
        pool, member_id, token = intent
        asked = order(
            self._control.owner, pool, member_id=member_id, endpoint=endpoint, token=token
        )
        caller = self._control.provider(pool.provider)
        try:
            machine = caller.launch(asked, float(pool.settings.provider_timeout_seconds))
        except pools.ProviderError as error:
            self._launch_failed(pool_id, member_id, error)
            return False
        self._launched(pool, machine, caller)
        return True

    def _intend(self, pool_id: str) -> tuple[Pool, str, str] | None:
        """Decide again, under the pool's lock, and write down what is about to be made."""
        token = secrets.token_hex(32)
        now = self._control.clock()
        with self._database.write("intent") as connection:
            pool = records.lock_pool(connection, pool_id)
            launch = decisions.replenish(records.view(connection, pool, now))
            if launch is None:
                return None
            member_id = new_id("m")
            connection.execute(
                schema.members.insert().values(
                    id=member_id, pool_id=pool.id, state=State.WARMING, generation=pool.generation,
                    provider=pool.provider, address="", region="", cordoned=False, reason="",
                    warming_started_us=now, attempts=0, next_attempt_us=0,
                )
            )  # fmt: skip
            connection.execute(
                schema.enrolments.insert().values(
                    member_id=member_id,
                    token_hash=hashlib.sha256(token.encode()).hexdigest(),
                    expires_us=now + pool.settings.bootstrap_token_seconds * SECOND,
                )
            )
            records.add_event(
                connection, "member_warming", now, pool=pool, member_id=member_id,
                reason="breaker_trial" if launch.trial else "replenish",
            )  # fmt: skip
        return pool, member_id, token

    def _launched(
        self, pool: Pool, machine: pools.Machine, caller: provider_client.ProviderClient
    ) -> None:
        now = self._control.clock()
        with self._database.write("launched") as connection:
            recorded = record_machine(connection, pool, machine, now)
        if not recorded:
            # Given up for lost while it was made. Should this fail, the sweep finds it.
            with contextlib.suppress(pools.ProviderError):
                caller.terminate(machine.id, float(pool.settings.provider_timeout_seconds))

    def _launch_failed(self, pool_id: str, member_id: str, error: pools.ProviderError) -> None:
        now = self._control.clock()
        with self._database.write("launch failed") as connection:
            try:
                pool = records.lock_pool(connection, pool_id)
            except pool_errors.PoolNotFoundError:
                return
            records.move(
                connection, pool, member_id, to=State.ERRORED, before=(State.WARMING,),
                reason=error.reason, now_us=now, detail=f"{error.what}; {error.todo}",
            )  # fmt: skip
            if error.nothing_made:
                records.gone(connection, pool, member_id, reason=error.reason, now_us=now)
            apply_failure(connection, pool, error.reason, now)


def order(
    owner: str, pool: Pool, *, member_id: str = "", endpoint: str = "", token: str = ""
) -> pools.Order:
    """What a pool asks of its provider."""
    return pools.Order(
        owner=owner,
        member_id=member_id,
        pool=pool.name,
        template=pool.template,
        regions=tuple(dict.fromkeys(r for r in (pool.region, *pool.preferred_regions) if r)),
        instance_type=pool.instance_type,
        lifecycle_class=pool.lifecycle_class,
        endpoint=endpoint,
        token=token,
    )


def record_machine(
    connection: sa.Connection, pool: Pool, machine: pools.Machine, now_us: int
) -> bool:
    """Give a row its machine; False when the row is gone."""
    members = schema.members
    done = connection.execute(
        sa.update(members)
        .where(
            members.c.id == machine.member_id,
            members.c.gone_us.is_(None),
            sa.or_(members.c.machine_id.is_(None), members.c.machine_id == machine.id),
        )
        .values(
            machine_id=machine.id,
            address=machine.address,
            region=machine.region,
            launched_us=now_us,
            # Should it be on its way out already, this is when it can be ended.
            next_attempt_us=sa.case((members.c.state.in_(ENDING), now_us), else_=0),
        )
    )
    if done.rowcount != 1:
        return False
    records.add_event(
        connection, "member_launched", now_us, pool=pool, member_id=machine.member_id,
        detail=machine.id,
    )  # fmt: skip
    return True
