"""Carry out what `decisions` decides: recycle, replenish, and terminate machines.

The provider is never called inside a transaction. A launch is written as intent first; the row gets its
machine afterwards. An attempt to terminate is recorded before it is made. After a crash in between, the next
tick or the sweep finishes the row.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import functools
import itertools
import math
import secrets
from typing import TYPE_CHECKING

from overnight import pools
from overnight.model.pool import CAPACITY, Member, MemberState, Pool, new_id
from overnight.model.times import SECOND_US
from overnight.pools import decisions, pool_errors
from overnight.pools.sql import (
    claim_rows,
    enrolment_rows,
    event_rows,
    member_rows,
    pool_rows,
    shared_values,
    total_rows,
    waiter_rows,
)

if TYPE_CHECKING:
    from overnight.database import engine
    from overnight.pools import context, provider_client

State = MemberState
CONSOLE_SECONDS = 10.0


def count_failure(connection: engine.Connection, pool: Pool, reason: str, now_us: int) -> Pool:
    """Count a failed launch of a locked pool; adds the event when its breaker opens."""
    changed = decisions.after_failure(pool, reason, now_us)
    pool_rows.save(connection, changed)
    # Reported once: a failed trial keeps it open and is only another failure.
    if pool.breaker_opened_us is None and changed.breaker_opened_us is not None:
        detail = f"{changed.failures} failures in a row"
        event_rows.add(
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
        """Retire stale and surplus members, retry failed terminations; return how many changed."""
        changed = 0
        now = self._control.clock()
        self._add_totals(now)
        with self._database.write("recycle") as connection:
            pool = pool_rows.lock(connection, name)
            for instruction in decisions.recycle(pool_rows.view(connection, pool, now)):
                done = self.apply(connection, pool, instruction, now)
                changed += done
                if done and isinstance(instruction, decisions.Fail) and instruction.counts:
                    pool = count_failure(connection, pool, instruction.reason, now)
            # Of members only the records of those whose machines are certainly gone.
            kept_since = now - pool.settings.record_retention_seconds * SECOND_US
            event_rows.delete_old_records(connection, pool.id, kept_since)
            unseen = now - pool.settings.waiter_stale_seconds * 10 * SECOND_US
            for waiter in waiter_rows.delete_unseen(connection, pool.id, unseen):
                event_rows.add_unserved(connection, pool, waiter, now, reason="unseen")
        if changed:
            self._control.notifier.notify()
        self.terminate_due(pool)
        return changed

    def _add_totals(self, now: int) -> None:
        more = True
        while more:
            with self._database.write("totals") as connection:
                more = total_rows.add_settled(connection, now)

    def apply(
        self,
        connection: engine.Connection,
        pool: Pool,
        instruction: decisions.Instruction,
        now: int,
    ) -> bool:
        """Write what one instruction changes; False if the rows have changed since it was decided."""
        move = functools.partial(member_rows.move, connection, pool, now_us=now)
        match instruction:
            case decisions.Retire(member_id, reason, why):
                return move(
                    member_id, to=State.DRAINING, before=CAPACITY, reason=reason, detail=why
                )
            case decisions.Fail(member_id, reason, _, why):
                return move(
                    member_id, to=State.ERRORED, before=(State.WARMING,), reason=reason, detail=why
                )
            case decisions.EndClaim(claim_id, member_id, reason):
                claim = claim_rows.find(connection, claim_id)
                if not claim_rows.end(connection, pool, claim, reason=reason, now_us=now):
                    return False
                return move(member_id, to=State.DRAINING, before=(State.CLAIMED,), reason=reason)
            case decisions.FlagClaim(claim_id, reason):
                if not claim_rows.flag_stale(connection, claim_id, now):
                    return False
                event_rows.add(
                    connection, "claim_stale", now, pool=pool, claim_id=claim_id, reason=reason
                )
                return True
            case decisions.Abandon(member_id):
                if not member_rows.set_abandoned(connection, member_id, now):
                    return False
                event_rows.add(
                    connection, "member_abandoned", now, pool=pool, member_id=member_id,
                    reason="terminate_failed",
                    detail=f"after {pool.settings.terminate_attempts} attempts; its machine may still run",
                )  # fmt: skip
                return True

    def retire_unclaimed(self, connection: engine.Connection, pool: Pool, now: int) -> int:
        """Retire the unclaimed members of a locked pool that winds down; return how many."""
        return sum(
            self.apply(connection, pool, instruction, now)
            for instruction in decisions.recycle(pool_rows.view(connection, pool, now))
            if isinstance(instruction, decisions.Retire)
        )

    # terminate

    def terminate_due(self, pool: Pool) -> int:
        """Terminate the machines that are due in this pool; return how many ended."""
        now = self._control.clock()
        with self._database.read() as connection:
            view = pool_rows.view(connection, pool, now)
        attempts = pool.settings.terminate_attempts
        due = [m for m in decisions.endings(view) if m.attempts < attempts]
        members = [m for m in due if self._control.reaches(m)]
        if len(members) < 2 or pool.settings.launch_parallel == 1:
            return sum(self._terminate(pool, member) for member in members)
        with concurrent.futures.ThreadPoolExecutor(pool.settings.launch_parallel) as threads:
            return sum(threads.map(lambda member: self._terminate(pool, member), members))

    def _terminate(self, pool: Pool, member: Member) -> bool:
        now = self._control.clock()
        attempt = member.attempts + 1
        if not self._begin_attempt(pool, member, attempt, now):
            return False
        provider = self._control.provider(member.provider)
        timeout = float(pool.settings.provider_timeout_seconds)
        if member.state is State.ERRORED and attempt == 1:
            self._keep_console(pool, member, provider)
        try:
            machine_id = member.machine_id
            if machine_id is None:
                # Its launcher may have been killed: the tag tells whether there is a machine.
                known = provider.inventory(self._control.owner, timeout)
                machine_id = next((m.id for m in known if m.member_id == member.id), None)
            if machine_id is not None:
                provider.terminate(machine_id, timeout)
        except pools.ProviderError as error:
            with self._database.write("terminate failed") as connection:
                event_rows.add(
                    connection, "terminate_failed", self._control.clock(), pool=pool,
                    member_id=member.id, reason=error.reason,
                    detail=f"attempt {attempt} of {pool.settings.terminate_attempts}: {error.what}",
                )  # fmt: skip
            return False
        with self._database.write("terminated") as connection:
            return member_rows.set_gone(
                connection, pool, member.id, reason=member.reason, now_us=self._control.clock()
            )

    def _keep_console(
        self, pool: Pool, member: Member, provider: provider_client.ProviderClient
    ) -> None:
        """Keep the end of the console of a machine that failed: it ends with the machine."""
        if member.machine_id is None:
            return
        with contextlib.suppress(pools.ProviderError):
            text = provider.console(member.machine_id, CONSOLE_SECONDS)
            if text and text.strip():
                with self._database.write("console") as connection:
                    event_rows.add(
                        connection, "member_console", self._control.clock(), pool=pool,
                        member_id=member.id, detail=_last_lines(text.strip()),
                    )  # fmt: skip

    def _begin_attempt(self, pool: Pool, member: Member, attempt: int, now: int) -> bool:
        """Record the attempt, and when the next one is due should this one fail."""
        launching = now - member.warming_started_us < (
            pool.settings.provider_timeout_seconds * SECOND_US
        )
        if member.machine_id is None and member.state is State.DRAINING and launching:
            # Its launch may still be running: it gets its machine in a moment, or times out.
            attempt, wait = member.attempts, 1
        else:
            wait = decisions.retry_after(pool, attempt)
        with self._database.write("terminate") as connection:
            begun = member_rows.begin_attempt(
                connection, member, attempts=attempt, next_attempt_us=now + wait * SECOND_US
            )
        return begun and attempt > member.attempts

    # replenish

    def replenish(self, name: str) -> int:
        """Launch what is missing, slot by slot; return how many machines were launched.

        Members claimed meanwhile are left for the next call: otherwise a busy pool would never be done,
        and nothing in it would be recycled.
        """
        with self._database.read() as connection:
            pool = pool_rows.find(connection, name)
            view = pool_rows.view(connection, pool, self._control.clock())
            launch = decisions.plan_launch(view)
            endpoint = shared_values.get(connection, "endpoint")
        if _noted(view) != pool:
            self._note(pool.id)
        if not isinstance(launch, decisions.Launch):
            return 0
        host = self._control.provider(pool.provider).provider.host(create=True)
        width = min(launch.count, pool.settings.launch_parallel)
        each = math.ceil(launch.count / width)
        if width == 1:
            return self._fill(pool.id, host, endpoint, each)
        with concurrent.futures.ThreadPoolExecutor(width) as threads:
            fills = threads.map(lambda _: self._fill(pool.id, host, endpoint, each), range(width))
            return sum(fills)

    def _note(self, pool_id: str) -> None:
        """Record since when no member is ready, and why none is launched; the reason is an event when it changes."""
        with self._database.write("note") as connection:
            pool, now = pool_rows.lock(connection, pool_id), self._control.clock()
            view = pool_rows.view(connection, pool, now)
            noted = _noted(view)
            pool_rows.save(connection, noted)
            decision = decisions.plan_launch(view)
            if isinstance(decision, decisions.Skip) and pool.launch_skipped != decision.reason:
                event_rows.add(
                    connection, "launch_skipped", now, pool=pool, reason=decision.reason,
                    detail=decision.why,
                )  # fmt: skip

    def _fill(self, pool_id: str, host: str | None, endpoint: str, count: int) -> int:
        """Fill slots until none is wanted or a launch fails."""
        results = (self._fill_slot(pool_id, host, endpoint) for _ in range(count))
        return sum(itertools.takewhile(bool, results))

    def _fill_slot(self, pool_id: str, host: str | None, endpoint: str) -> bool:
        """Launch one member; False if none is wanted or the launch failed."""
        intent = self._intend(pool_id, host)
        if intent is None:
            return False
        pool, member_id, token = intent
        order = build_order(
            self._control.owner, pool, member_id=member_id, endpoint=endpoint, token=token
        )
        provider = self._control.provider(pool.provider)
        try:
            machine = provider.launch(order, float(pool.settings.provider_timeout_seconds))
        except pools.ProviderError as error:
            self._launch_failed(pool_id, member_id, error)
            return False
        self._add_machine(pool, machine, provider)
        return True

    def _intend(self, pool_id: str, host: str | None) -> tuple[Pool, str, str] | None:
        """Decide again under the pool's lock, and record the member about to be launched."""
        token = secrets.token_hex(32)
        now = self._control.clock()
        with self._database.write("intent") as connection:
            pool = pool_rows.lock(connection, pool_id)
            launch = decisions.replenish(pool_rows.view(connection, pool, now))
            if launch is None:
                return None
            member_id = new_id("m")
            member_rows.insert_warming(connection, pool, member_id, host, now)
            expires = now + pool.settings.bootstrap_token_seconds * SECOND_US
            enrolment_rows.insert(connection, member_id, token, expires)
            event_rows.add(
                connection, "member_warming", now, pool=pool, member_id=member_id,
                reason="breaker_trial" if launch.trial else "replenish", detail=launch.why,
            )  # fmt: skip
        return pool, member_id, token

    def _add_machine(
        self, pool: Pool, machine: pools.Machine, provider: provider_client.ProviderClient
    ) -> None:
        now = self._control.clock()
        with self._database.write("launched") as connection:
            added = member_rows.add_machine(connection, pool, machine, now)
        if not added:
            # The member was given up while it launched. Should this fail, the sweep finds the machine.
            with contextlib.suppress(pools.ProviderError):
                provider.terminate(machine.id, float(pool.settings.provider_timeout_seconds))

    def _launch_failed(self, pool_id: str, member_id: str, error: pools.ProviderError) -> None:
        now = self._control.clock()
        with self._database.write("launch failed") as connection:
            try:
                pool = pool_rows.lock(connection, pool_id)
            except pool_errors.PoolNotFoundError:
                return
            member_rows.move(
                connection, pool, member_id, to=State.ERRORED, before=(State.WARMING,),
                reason=error.reason, now_us=now, detail=f"{error.what}; {error.todo}",
            )  # fmt: skip
            if error.nothing_made:
                member_rows.set_gone(connection, pool, member_id, reason=error.reason, now_us=now)
            count_failure(connection, pool, error.reason, now)


def _last_lines(text: str) -> str:
    """Return as many whole lines as the detail of an event holds."""
    tail = text[-event_rows.MAX_DETAIL :]
    return tail if tail == text else tail.partition("\n")[2] or tail


def _noted(view: decisions.View) -> Pool:
    """Return the pool as it is to be recorded: since when it is empty, and why nothing is launched."""
    pool, decision = view.pool, decisions.plan_launch(view)
    since = pool.empty_since_us or view.now_us
    return dataclasses.replace(
        pool,
        empty_since_us=since if decisions.is_empty(view) else None,
        launch_skipped=decision.reason if isinstance(decision, decisions.Skip) else None,
    )


def build_order(
    owner: str, pool: Pool, *, member_id: str = "", endpoint: str = "", token: str = ""
) -> pools.Order:
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
        readiness_timeout_seconds=pool.settings.readiness_timeout_seconds,
        ignore_failed_units=pool.settings.failed_units_action == "ignore",
    )
