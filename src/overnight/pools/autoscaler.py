"""Autoscale policies: a pool's size follows its demand while a reaper runs.

A decision is computed from a consistent read, outside any lock, and applied under the pool's lock only if
no other control plane has decided meanwhile. So two control planes never take the same step twice, and a killed one has
done either all of it or nothing. The memory of the cooldown is in the row.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from overnight.model.pool import Autoscale, Pool
from overnight.model.times import SECOND_US
from overnight.pools import policies
from overnight.pools.sql import autoscale_rows, cluster_rows, demand_rows, event_rows, pool_rows

if TYPE_CHECKING:
    from overnight.database import engine
    from overnight.pools import admin, autoscale, context

EVERY_SECONDS = 5  # the shortest time between two decisions, however many wake-ups there are
MEASURE_SECONDS = 600
WARM_UPS = 50  # the last ones are averaged


@dataclasses.dataclass(frozen=True)
class Outlook:
    """A policy and its current decision."""

    policy: Autoscale
    decision: policies.Decision
    warm_up_s: float
    assumed: tuple[str, ...]  # where nothing is known


class Autoscaler:
    def __init__(self, control: context.Context, pools: admin.PoolAdmin) -> None:
        self._control = control
        self._database = control.database
        self._admin = pools
        self._decided: dict[str, int] = {}

    def set(self, name: str, /, **given: object) -> Autoscale:
        """Give a pool a policy, or change the one it has; `policies.NAMES` lists the fields."""
        now = self._control.clock()
        with self._database.write("autoscale set") as connection:
            pool = pool_rows.lock(connection, name)
            cluster_rows.refuse(connection, pool)
            before = autoscale_rows.find(connection, pool.id)
            after = policies.changed(pool, before or _new_policy(pool, now), given)
            if after == before:
                return before
            # Decide at once, and with the new policy only.
            after = dataclasses.replace(after, decided_us=0)
            autoscale_rows.save(connection, after)
            event_rows.add(
                connection, "autoscale_set", now, pool=pool, reason="operator",
                detail=policies.describe_change(before, after),
            )  # fmt: skip
        for key in (name, pool.id, pool.name):
            self._decided.pop(key, None)
        self._control.notifier.notify()
        return after

    def off(self, name: str) -> bool:
        """Remove the policy, keeping the size; False if there was none."""
        with self._database.write("autoscale off") as connection:
            pool = pool_rows.lock(connection, name)
            removed = autoscale_rows.delete(connection, pool.id)
            if removed:
                event_rows.add(
                    connection, "autoscale_off", self._control.clock(), pool=pool, reason="operator"
                )
        return removed

    def outlook(self, name: str, /, **given: object) -> Outlook:
        """Return the decision of the policy with these changes, and its reason; changes nothing."""
        now = self._control.clock()
        with self._database.read() as connection:
            pool = pool_rows.find(connection, name)
            stored = autoscale_rows.find(connection, pool.id)
            if stored is None or given:
                stored = policies.changed(pool, stored or _new_policy(pool, now), given)
            return _outlook(connection, pool, stored, now)[0]

    def step(self, name: str) -> policies.Decision | None:
        """Decide and change the size; None when there is nothing to decide."""
        now = self._control.clock()
        if 0 <= now - self._decided.get(name, -(10**18)) < EVERY_SECONDS * SECOND_US:
            return None
        self._decided[name] = now
        with self._database.read() as connection:
            pool = pool_rows.find(connection, name)
            stored = autoscale_rows.find(connection, pool.id)
            if stored is None or not pool.refills:
                return None
            if 0 <= now - stored.decided_us < EVERY_SECONDS * SECOND_US:
                return None  # by another control plane
            outlook, seen = _outlook(connection, pool, stored, now)
        from overnight.pools import autoscale

        with self._database.write("autoscale") as connection:
            before = pool_rows.lock(connection, pool.id)
            if autoscale_rows.find(connection, pool.id) != stored or not before.refills:
                return None  # decided, changed or paused meanwhile
            decision = outlook.decision
            if before != pool:
                policy = policies.effective(before, outlook.policy)
                seen = dataclasses.replace(seen, size=before.target_size)
                decision = autoscale.decide(policy, seen, stored.memory)
            changes = decision.size != before.target_size
            after_policy = dataclasses.replace(
                outlook.policy, decided_us=now, memory=decision.memory, wanted_size=decision.wanted,
                cause=decision.cause, reason=decision.reason, changed_us=now if changes else stored.changed_us,
            )  # fmt: skip
            autoscale_rows.save(connection, after_policy)
            if not changes:
                return decision
            after = dataclasses.replace(before, target_size=decision.size)
            after = self._admin.save_change(
                connection, before, after, now,
                kind="pool_scaled", reason=decision.cause, why=decision.reason,
            )  # fmt: skip
        self._admin.apply_change(before, after)
        return decision


def _outlook(
    connection: engine.Connection, pool: Pool, stored: Autoscale, now: int
) -> tuple[Outlook, autoscale.Seen]:
    # Only here: numpy and scipy take longer to load than a claim takes.
    from overnight.pools import autoscale

    measured = _measured(connection, pool, stored, now)
    policy = policies.effective(pool, measured)
    seen = _seen(connection, pool, stored, policy, now)
    decision = autoscale.decide(policy, seen, stored.memory)
    if not pool.refills:
        why = f"stays at {pool.target_size}: a pool with status {pool.status} is not scaled"
        decision = dataclasses.replace(
            decision, size=pool.target_size, reason=why, cause=str(pool.status)
        )
    return Outlook(measured, decision, policy.warm_up_s, policies.assumed(measured)), seen


def _measured(connection: engine.Connection, pool: Pool, stored: Autoscale, now: int) -> Autoscale:
    """Return the policy with the recent warm-up, measured every ten minutes and until it is known."""
    fresh = 0 <= now - stored.measured_us < MEASURE_SECONDS * SECOND_US
    if stored.warm_up_seconds is not None or (
        fresh and stored.measured_warm_up_seconds is not None
    ):
        return stored
    warm_ups = demand_rows.list_warm_ups(connection, pool.id, WARM_UPS)
    mean = max(0.001, sum(warm_ups) / len(warm_ups) / SECOND_US) if warm_ups else None
    return dataclasses.replace(stored, measured_us=now, measured_warm_up_seconds=mean)


def _seen(
    connection: engine.Connection, pool: Pool, stored: Autoscale, policy: autoscale.Policy, now: int
) -> autoscale.Seen:
    from overnight.pools import autoscale

    # Older records are deleted: the time before must not look like one without claims.
    since = max(stored.since_us, now - pool.settings.record_retention_seconds * SECOND_US)
    spans = policy.spans(now / SECOND_US, since / SECOND_US)
    first, second = (max(since, now - round(span * SECOND_US)) for span in spans)
    requested, lately = demand_rows.count_requested(connection, pool.id, first - 1, second - 1)
    last = demand_rows.find_last_request(connection, pool.id)
    return autoscale.Seen(
        now_s=now / SECOND_US,
        size=pool.target_size,
        since_s=since / SECOND_US,
        claims=requested,
        lately=lately,
        last_s=max(stored.since_us, last or 0) / SECOND_US,
    )


def _new_policy(pool: Pool, now: int) -> Autoscale:
    """Return a new policy; the present size is kept for one cooldown, as after a rise."""
    return Autoscale(
        pool_id=pool.id, since_us=pool.created_us, memory=((now / SECOND_US, pool.target_size),)
    )
