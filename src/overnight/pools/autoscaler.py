"""Policies as they are kept, and carried out: a pool's size follows its demand while a reaper runs.

A decision is thought through on a consistent look, outside any lock, and made again under the pool's: only
when nobody else decided meanwhile. So two control planes never take a step twice, and whoever is killed
has either done all of it or nothing. What the cooldown has to remember is in the row.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import sqlalchemy as sa

from overnight.model.pool import Autoscale, Pool
from overnight.pools import decisions, policies
from overnight.pools.sql import records, schema, statements

if TYPE_CHECKING:
    from collections.abc import Mapping

    from overnight.pools import admin, autoscale, context

__all__ = ["EVERY_SECONDS", "Autoscaler", "Outlook"]

SECOND = decisions.SECOND
EVERY_SECONDS = 5  # a pool is not looked at more often, however often the bell rings
MEASURE_SECONDS = 600
MEASURED = 50  # the last warm-ups


@dataclasses.dataclass(frozen=True)
class Outlook:
    """A policy and what it would do now; nothing is changed by looking."""

    pool: Pool
    policy: Autoscale
    decision: autoscale.Decision
    warm_up_s: float
    assumed: tuple[str, ...]  # what is not known and was taken for granted


class Autoscaler:
    """The policies of one control plane."""

    def __init__(self, control: context.Context, pools: admin.PoolAdmin) -> None:
        self._control = control
        self._database = control.database
        self._pools = pools
        self._looked: dict[str, int] = {}

    def set(self, name: str, given: Mapping[str, object]) -> Autoscale:
        """Give a pool a policy, or change what is said of the one it has."""
        now = self._control.clock()
        with self._database.write("autoscale set") as connection:
            pool = records.lock_pool(connection, name)
            before = records.find_autoscale(connection, pool.id)
            after = policies.changed(pool, before or _fresh(pool, now), given)
            if after == before:
                return before
            # Looked at at once, and by whoever has the new one alone.
            after = dataclasses.replace(after, decided_us=0)
            records.save_autoscale(connection, after)
            records.add_event(
                connection, "autoscale_set", now, pool=pool, reason="operator",
                detail=policies.told(before, after),
            )  # fmt: skip
        for one in (name, pool.id, pool.name):
            self._looked.pop(one, None)
        self._control.notifier.notify()
        return after

    def off(self, name: str) -> bool:
        """Take the policy away; the size stays as it is. False: there was none."""
        rows = schema.autoscales
        with self._database.write("autoscale off") as connection:
            pool = records.lock_pool(connection, name)
            done = connection.execute(sa.delete(rows).where(rows.c.pool_id == pool.id))
            if done.rowcount:
                records.add_event(
                    connection, "autoscale_off", self._control.clock(), pool=pool, reason="operator"
                )
        return bool(done.rowcount)

    def outlook(self, name: str, given: Mapping[str, object]) -> Outlook:
        """What the policy would decide now, with those changes to it."""
        now = self._control.clock()
        with self._database.read() as connection:
            pool = records.find_pool(connection, name)
            stored = records.find_autoscale(connection, pool.id)
            if stored is None or given:
                stored = policies.changed(pool, stored or _fresh(pool, now), given)
            return self._outlook(connection, pool, stored, now)[0]

    def step(self, name: str) -> autoscale.Decision | None:
        """Decide, and change the size where it is to change; None when there is nothing to decide."""
        now = self._control.clock()
        if 0 <= now - self._looked.get(name, -(10**18)) < EVERY_SECONDS * SECOND:
            return None
        self._looked[name] = now
        with self._database.read() as connection:
            pool = records.find_pool(connection, name)
            stored = records.find_autoscale(connection, pool.id)
            if stored is None or not pool.refills:
                return None
            if 0 <= now - stored.decided_us < EVERY_SECONDS * SECOND:
                return None  # by another control plane
            thought, seen, measured = self._outlook(connection, pool, stored, now)
        from overnight.pools import autoscale

        with self._database.write("autoscale") as connection:
            before = records.lock_pool(connection, pool.id)
            if records.find_autoscale(connection, pool.id) != stored or not before.refills:
                return None  # decided, changed or paused meanwhile
            made = thought.decision
            if before != pool:
                policy = policies.effective(before, measured)
                seen = dataclasses.replace(seen, size=before.target_size)
                made = autoscale.decide(policy, seen, autoscale.Memory(stored.memory))
            changes = made.size != before.target_size
            kept = dataclasses.replace(
                measured, decided_us=now, memory=made.memory.wanted, wanted_size=made.wanted,
                cause=made.cause, reason=made.reason, changed_us=now if changes else stored.changed_us,
            )  # fmt: skip
            records.save_autoscale(connection, kept)
            if not changes:
                return made
            after = dataclasses.replace(before, target_size=made.size)
            after = self._pools.change(
                connection, before, after, now,
                kind="pool_scaled", reason=made.cause, why=made.reason,
            )  # fmt: skip
        self._pools.carry_out(before, after)
        return made

    def _outlook(
        self, connection: sa.Connection, pool: Pool, stored: Autoscale, now: int
    ) -> tuple[Outlook, autoscale.Seen, Autoscale]:
        # Only here: numpy and scipy take longer to load than a claim takes.
        from overnight.pools import autoscale

        measured = self._measured(connection, pool, stored, now)
        policy = policies.effective(pool, measured)
        seen = self._seen(connection, pool, stored, policy, now)
        made = autoscale.decide(policy, seen, autoscale.Memory(stored.memory))
        if not pool.refills:
            why = f"stays at {pool.target_size}: a pool that is {pool.status} is not scaled"
            made = dataclasses.replace(
                made, size=pool.target_size, reason=why, cause=str(pool.status)
            )
        outlook = Outlook(pool, measured, made, policy.warm_up_s, policies.assumed(measured))
        return outlook, seen, measured

    def _measured(
        self, connection: sa.Connection, pool: Pool, stored: Autoscale, now: int
    ) -> Autoscale:
        """The policy with the warm-up as it lately is; counted anew every ten minutes, and until known."""
        fresh = 0 <= now - stored.measured_us < MEASURE_SECONDS * SECOND
        if stored.warm_up_seconds is not None or (
            fresh and stored.measured_warm_up_seconds is not None
        ):
            return stored
        took = connection.execute(statements.recent_warm_ups(pool.id, MEASURED)).scalars().all()
        mean = max(0.001, sum(took) / len(took) / SECOND) if took else None
        return dataclasses.replace(stored, measured_us=now, measured_warm_up_seconds=mean)

    def _seen(
        self,
        connection: sa.Connection,
        pool: Pool,
        stored: Autoscale,
        policy: autoscale.Policy,
        now: int,
    ) -> autoscale.Seen:
        from overnight.pools import autoscale

        # Older records are not kept: the time without them must not look like one without claims.
        since = max(stored.since_us, now - pool.settings.record_retention_seconds * SECOND)
        spans = policy.spans(now / SECOND, since / SECOND)
        first, second = (max(since, now - round(span * SECOND)) for span in spans)
        counts = [
            connection.execute(chosen).one()
            for chosen in statements.asked_since(pool.id, first - 1, second - 1)
        ]
        last = [connection.execute(chosen).scalar() for chosen in statements.last_asked(pool.id)]
        return autoscale.Seen(
            now_s=now / SECOND,
            size=pool.target_size,
            since_s=since / SECOND,
            claims=sum(int(all_) for all_, _ in counts),
            lately=sum(int(lately) for _, lately in counts),
            last_s=max([stored.since_us, *(int(at) for at in last if at is not None)]) / SECOND,
        )


def _fresh(pool: Pool, now: int) -> Autoscale:
    """A new policy: the size that it finds is kept for a cooldown, as after a rise."""
    return Autoscale(
        pool_id=pool.id, since_us=pool.created_us, memory=((now / SECOND, pool.target_size),)
    )
