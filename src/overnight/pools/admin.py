"""Pools: create, list, show, update, drain, delete."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from overnight.model.pool import (
    LifecycleClass,
    MemberDetails,
    MemberState,
    Past,
    Pool,
    PoolDetails,
    PoolEvent,
    PoolSettings,
    PoolStatus,
    new_id,
)
from overnight.model.text import plural
from overnight.model.times import SECOND_US
from overnight.pools import decisions, maintenance, pool_errors, settings
from overnight.pools.sql import (
    autoscale_rows,
    claim_rows,
    cluster_rows,
    demand_rows,
    event_rows,
    member_rows,
    pool_rows,
    shared_values,
    waiter_rows,
)

if TYPE_CHECKING:
    from overnight.database import engine
    from overnight.pools import context

Status = PoolStatus
MADE_FROM = ("template", "region", "instance_type", "lifecycle_class", "provider")
PLAIN = (*MADE_FROM, "name", "preferred_regions", "labels")
SIZES = ("target_size", "min_size", "max_size")
CREATE = (*PLAIN, *SIZES, *settings.NAMES)
UPDATE = (*(n for n in CREATE if n not in ("name", "provider")), "status", "close_breaker")
WANTED = {
    "labels": "a mapping of strings",
    "preferred_regions": "a list of strings",
    "name": "letters, digits, - and _",
    "template": "a non-empty string",
}
HEADROOM = 10
MAX_SIZE = 10_000
RECENT = 50
Choice = TypeVar("Choice", bound=enum.StrEnum)


class PoolAdmin:
    def __init__(self, control: context.Context, work: maintenance.Maintenance) -> None:
        self._control = control
        self._database = control.database
        self._maintenance = work

    def create(self, **given: object) -> Pool:
        """Create an active pool and wake the reaper; `CREATE` lists the parameters."""
        pool = self.build(**given)
        with self._database.write("create") as connection:
            self.insert(connection, pool)
        self._control.notifier.notify()
        return pool

    def build(self, **given: object) -> Pool:
        """Return a new pool that is not written; raises for invalid parameters."""
        pool_errors.check_known(given, CREATE)
        for name in ("name", "template", "target_size"):
            if name not in given:
                raise pool_errors.BadKnobError(name, None, "required")
        now = self._control.clock()
        target = _size("target_size", given["target_size"])
        pool = Pool(
            id=new_id("p"),
            **_plain(given),
            target_size=target,
            min_size=_size("min_size", given.get("min_size", 0)),
            max_size=_size("max_size", given.get("max_size", target + HEADROOM)),
            settings=_tuned(settings.DEFAULTS, given),
            created_us=now,
            updated_us=now,
        )
        _check_sizes(pool)
        self._control.provider(pool.provider).check_used(pool)
        with self._database.read() as connection:
            self._check_order(connection, pool)
        return pool

    def insert(self, connection: engine.Connection, pool: Pool, kind: str = "pool_created") -> None:
        """Write a new pool; raises PoolExistsError."""
        pool_rows.insert(connection, pool)
        shared_values.add_used(connection, pool)
        event_rows.add(connection, kind, pool.created_us, pool=pool)

    def check(self, name: str) -> None:
        """Raise if the provider would refuse every launch, as far as can be decided without calling it."""
        with self._database.read() as connection:
            self._check_order(connection, pool_rows.find(connection, name))

    def _check_order(self, connection: engine.Connection, pool: Pool) -> None:
        endpoint = shared_values.get(connection, "endpoint")
        self._control.provider(pool.provider).provider.check(
            maintenance.build_order(self._control.owner, pool, endpoint=endpoint)
        )

    def list(self, *, archived: bool = False) -> tuple[PoolDetails, ...]:
        """Return the pools with their counts, ordered by name."""
        with self._database.read() as connection:
            policies = autoscale_rows.list_all(connection)
            now = self._control.clock()
            return tuple(
                PoolDetails(
                    pool=pool,
                    counts=decisions.counts(pool_rows.view(connection, pool, now)),
                    autoscale=policies.get(pool.id),
                )
                for pool in pool_rows.list_all(connection)
                if archived or pool.status is not Status.ARCHIVED
            )

    def show(self, name: str, *, recent: int = RECENT) -> PoolDetails:
        """Return a pool with its members, claims, waiting callers and last events."""
        with self._database.read() as connection:
            return self.read_details(connection, pool_rows.find(connection, name), recent)

    def read_details(self, connection: engine.Connection, pool: Pool, recent: int) -> PoolDetails:
        view = pool_rows.view(connection, pool, self._control.clock())
        claims = claim_rows.list_recent(connection, recent, pool_id=pool.id)
        return PoolDetails(
            pool=pool,
            counts=decisions.counts(view),
            members=tuple(view.members),
            claims=(*view.claims, *(claim for claim in claims if claim.released_us)),
            waiters=tuple(waiter_rows.list_queue(connection, pool, 0)),
            events=event_rows.list_recent(connection, pool.id, recent),
            autoscale=autoscale_rows.find(connection, pool.id),
        )

    def show_member(self, member_id: str, *, recent: int = RECENT) -> MemberDetails:
        with self._database.read() as connection:
            member = member_rows.find(connection, member_id)
            pool = pool_rows.find(connection, member.pool_id, deleted=True)
            return MemberDetails(
                member=member,
                pool=pool.name,
                claims=tuple(claim_rows.list_recent(connection, recent, member_id=member.id)),
                events=event_rows.list_recent(connection, pool.id, recent, member_id=member.id),
                stale_after_seconds=pool.settings.heartbeat_stale_after_seconds,
            )

    def events(
        self, name: str = "", *, after: int = 0, limit: int = RECENT
    ) -> tuple[PoolEvent, ...]:
        """Return events of a pool, or of all: the first after the id `after`, or the last ones. Oldest first."""
        with self._database.read() as connection:
            pool_id = pool_rows.find(connection, name, deleted=True).id if name else None
            return event_rows.list_after(connection, after, limit, pool_id)

    def past(self, name: str, seconds: int = 7 * 86400) -> Past:
        """Return the demand of the last `seconds`, limited by the age of the pool and of its records."""
        now = self._control.clock()
        with self._database.read() as connection:
            pool = pool_rows.find(connection, name, deleted=True)
            back = min(seconds, pool.settings.record_retention_seconds)
            begin = max(pool.created_us, now - back * SECOND_US)
            since = max(begin, pool.updated_us)
            return demand_rows.read_past(connection, pool.id, begin, now, unchanged_us=since)

    def update(self, name: str, /, **given: object) -> Pool:
        """Change a pool; a smaller target shrinks it, another template replaces its members."""
        pool_errors.check_known(given, UPDATE)
        now = self._control.clock()
        with self._database.write("update") as connection:
            before = pool_rows.lock(connection, name)
            cluster_rows.refuse(connection, before)
            policy = autoscale_rows.find(connection, before.id)
            if policy is not None and "target_size" in given:
                raise pool_errors.AutoscaledError(before.name)
            after = _changed(before, given)
            if policy is not None:
                # The new bounds apply at once; within them the policy sets the size.
                target = min(max(before.target_size, after.min_size), after.max_size)
                after = dataclasses.replace(after, target_size=target)
            _check_sizes(after)
            if after == before:
                return before
            if _differ(before, after, *MADE_FROM, "preferred_regions"):
                self._control.provider(after.provider).check_used(after, before)
                self._check_order(connection, after)
            shared_values.add_used(connection, after)
            if after.status is not before.status:
                event_rows.add(
                    connection, f"pool_{after.status}", now, pool=after, reason="operator"
                )
                if policy is not None and after.refills:
                    # The pool served no claims meanwhile, which must not look like a lack of demand.
                    resumed = ((now / SECOND_US, after.target_size),)
                    policy = dataclasses.replace(policy, since_us=now, memory=resumed)
                    autoscale_rows.save(connection, policy)
            if before.breaker_opened_us is not None and after.breaker_opened_us is None:
                event_rows.add(connection, "breaker_closed", now, pool=after, reason="operator")
            after = self.save_change(connection, before, after, now, kind="pool_updated")
        self.apply_change(before, after)
        return after

    def save_change(
        self,
        connection: engine.Connection,
        before: Pool,
        after: Pool,
        now: int,
        *,
        kind: str,
        reason: str = "",
        why: str = "",
    ) -> Pool:
        """Write a locked pool that has changed, and add the event with the differences."""
        after = dataclasses.replace(after, updated_us=now)
        pool_rows.save(connection, after)
        detail = _describe_change(before, after) + (f"; {why}" if why else "")
        event_rows.add(connection, kind, now, pool=after, reason=reason, detail=detail)
        return after

    def apply_change(self, before: Pool, after: Pool) -> None:
        """Retire surplus and outdated members now, and wake the reaper for the rest."""
        self._control.notifier.notify()
        if _differ(before, after, "status", "generation", *SIZES):
            self._maintenance.recycle(after.id)

    def drain(self, name: str, *, confirmed: bool = True) -> dict[str, int]:
        """Terminate unclaimed members, and stop launching; raises for claimed ones unless `confirmed`."""
        now = self._control.clock()
        with self._database.write("drain") as connection:
            pool = pool_rows.lock(connection, name)
            cluster_rows.refuse(connection, pool)
            claims = claim_rows.list_open(connection, pool.id)
            if pool.status is not Status.DRAINING:
                if claims and not confirmed:
                    raise pool_errors.ClaimsAffectedError(
                        f"pool {pool.name} has {plural(len(claims), 'claimed member')}",
                        why="after a drain they are not replaced, and new claims are refused",
                    )
                pool = dataclasses.replace(pool, status=Status.DRAINING, updated_us=now)
                pool_rows.save(connection, pool)
                event_rows.add(connection, "pool_draining", now, pool=pool, reason="operator")
            claimed = decisions.counts(pool_rows.view(connection, pool, now)).claimed
            drained = self._maintenance.retire_unclaimed(connection, pool, now)
        self._control.notifier.notify()
        self._maintenance.terminate_due(pool)
        return {"drained": drained, "claimed_remaining": claimed}

    def delete(self, name: str) -> None:
        """Delete a pool that has no members; records of members that are gone do not prevent it, and stay."""
        now = self._control.clock()
        with self._database.write("delete") as connection:
            pool = pool_rows.lock(connection, name)
            cluster_rows.refuse(connection, pool)
            view = pool_rows.view(connection, pool, now)
            if view.members:
                # An abandoned member is not terminated again: waiting for it would not help.
                draining = [m for m in view.members if m.state is MemberState.DRAINING]
                ending = sum(not m.abandoned_us for m in draining)
                raise pool_errors.PoolHasMembersError(pool.name, len(view.members), draining=ending)
            pool_rows.delete(connection, pool, now)
            event_rows.add(connection, "pool_deleted", now, pool=pool, reason="operator")


def _changed(pool: Pool, given: Mapping[str, object]) -> Pool:
    values: dict[str, Any] = {"settings": _tuned(pool.settings, given)}
    values |= {n: _size(n, given[n]) for n in SIZES if n in given}
    values |= _plain(given)
    if "status" in given:
        values["status"] = _status(pool, given["status"])
    if given.get("close_breaker"):
        values |= {"failures": 0, "launch_not_before_us": 0, "breaker_opened_us": None}
    changed = dataclasses.replace(pool, **values)
    if _differ(pool, changed, *MADE_FROM):
        changed = dataclasses.replace(changed, generation=pool.generation + 1)
    return changed


def _tuned(before: PoolSettings, given: Mapping[str, object]) -> PoolSettings:
    return settings.changed(before, {n: v for n, v in given.items() if n in settings.NAMES})


def _status(pool: Pool, wanted: object) -> Status:
    status = _choice(Status, "status", wanted)
    if status is Status.PAUSED and pool.status not in (Status.ACTIVE, Status.PAUSED):
        raise pool_errors.MemberStateError(
            f"pool {pool.name} is {pool.status} and cannot be paused",
            why="only an active pool can be paused; this one already launches nothing",
            todo=f"overnight pool update {pool.name} --resume",
        )
    return status


def _choice(kind: type[Choice], name: str, value: object) -> Choice:
    if value not in list(kind):
        raise pool_errors.BadKnobError(name, value, "one of " + ", ".join(kind))
    return kind(str(value))


def _plain(given: Mapping[str, object]) -> dict[str, Any]:
    return {name: _checked(name, given[name]) for name in PLAIN if name in given}


def _checked(name: str, value: object) -> object:
    match name, value:
        case "lifecycle_class", _:
            return _choice(LifecycleClass, name, value)
        case "labels", Mapping() if _are_strings(*value, *value.values()):
            return dict(value)
        case "preferred_regions", list() | tuple() if _are_strings(*value):
            return tuple(value)
        case "name", str() if value.isascii() and value.replace("-", "").replace("_", "").isalnum():
            return value
        case ("template", str()) if value:
            return value
        case (("provider" | "region" | "instance_type"), str()):
            return value
    raise pool_errors.BadKnobError(name, value, WANTED.get(name, "a string"))


def _are_strings(*values: object) -> bool:
    return all(isinstance(value, str) for value in values)


def _size(name: str, value: object) -> int:
    return pool_errors.check_whole(name, value, 0, MAX_SIZE)


def _check_sizes(pool: Pool) -> None:
    if not pool.min_size <= pool.target_size <= pool.max_size:
        raise pool_errors.BadSizeError(
            f"min {pool.min_size}, target {pool.target_size}, max {pool.max_size} conflict",
            why="min_size <= target_size <= max_size must hold",
            todo="set the sizes that conflict in one command: --min, --target, --max",
        )


def _differ(before: Pool, after: Pool, *names: str) -> bool:
    return any(getattr(before, name) != getattr(after, name) for name in names)


def _describe_change(before: Pool, after: Pool) -> str:
    old, new = (
        {**vars(pool), **vars(pool.settings), "settings": None, "updated_us": None}
        for pool in (before, after)
    )
    return ", ".join(
        f"{n}: {_plain_text(old[n])} -> {_plain_text(new[n])}" for n in new if old[n] != new[n]
    )


def _plain_text(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
