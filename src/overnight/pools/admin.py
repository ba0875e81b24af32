"""Pools themselves: create, list, show, change, drain, delete."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
import sqlalchemy.exc

from overnight.model.pool import (
    Autoscale,
    Claim,
    Counts,
    LifecycleClass,
    Member,
    Past,
    Pool,
    PoolEvent,
    PoolStatus,
    Waiter,
    new_id,
)
from overnight.pools import decisions, maintenance, pool_errors, settings
from overnight.pools.sql import records, schema, statements

if TYPE_CHECKING:
    from overnight.pools import context

__all__ = ["PoolAdmin", "PoolDetails"]

Status = PoolStatus
MADE_FROM = ("template", "region", "instance_type", "lifecycle_class", "provider")
PLAIN = (*MADE_FROM, "name", "preferred_regions", "labels")
SIZES = ("target_size", "min_size", "max_size")
CREATE = (*PLAIN, *SIZES, *settings.NAMES)
UPDATE = (*(n for n in CREATE if n not in ("name", "provider")), "status", "close_breaker")
HEADROOM = 10
USED = "provider_used "
MOST = 10_000
RECENT = 50


@dataclasses.dataclass(frozen=True, kw_only=True)
class PoolDetails:
    """Everything about one pool."""

    pool: Pool
    counts: Counts
    members: tuple[Member, ...] = ()
    claims: tuple[Claim, ...] = ()  # open ones first, then the last that ended
    waiters: tuple[Waiter, ...] = ()
    events: tuple[PoolEvent, ...] = ()  # the newest first
    autoscale: Autoscale | None = None  # None: its size is set by hand


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemberDetails:
    """Everything about one member, gone ones too."""

    member: Member
    pool: str  # its name
    claims: tuple[Claim, ...] = ()  # the newest first
    events: tuple[PoolEvent, ...] = ()  # the newest first


class PoolAdmin:
    """The pools of one control plane."""

    def __init__(self, control: context.Context, work: maintenance.Maintenance) -> None:
        self._control = control
        self._database = control.database
        self._upkeep = work

    def create(self, given: Mapping[str, object]) -> Pool:
        """A new, active pool; its members come with the next look of the reaper, which is woken."""
        for name in given:
            if name not in CREATE:
                raise pool_errors.UnknownParameterError(name, CREATE)
        for name in ("name", "template", "target_size"):
            if name not in given:
                raise pool_errors.BadKnobError(name, None, "always needed")
        now = self._control.clock()
        target = _size("target_size", given["target_size"])
        pool = Pool(
            id=new_id("p"),
            **_plain(given),
            target_size=target,
            min_size=_size("min_size", given.get("min_size", 0)),
            max_size=_size("max_size", given.get("max_size", target + HEADROOM)),
            settings=settings.read({n: v for n, v in given.items() if n in settings.NAMES}),
            created_us=now,
            updated_us=now,
        )
        _check_sizes(pool)
        with self._database.read() as connection:
            self._check_order(connection, pool)
        try:
            with self._database.write("create") as connection:
                connection.execute(schema.pools.insert().values(records.pool_row(pool)))
                # Swept from now on, also when its last pool is deleted.
                records.set_setting(connection, USED + pool.provider, "yes", keep=True)
                records.use_regions(connection, pool)
                records.add_event(connection, "pool_created", now, pool=pool)
        except sqlalchemy.exc.IntegrityError as error:
            raise pool_errors.PoolExistsError(pool.name) from error
        self._control.notifier.notify()
        return pool

    def check(self, name: str) -> None:
        """Raises where its provider would refuse every launch, as far as can be told without asking."""
        with self._database.read() as connection:
            self._check_order(connection, records.find_pool(connection, name))

    def _check_order(self, connection: sa.Connection, pool: Pool) -> None:
        endpoint = records.setting(connection, "endpoint")
        self._control.provider(pool.provider).check(
            maintenance.order(self._control.owner, pool, endpoint=endpoint)
        )

    def providers(self) -> tuple[str, ...]:
        """Every provider that a pool has ever named."""
        names = sa.select(schema.control.c.name).where(schema.control.c.name.startswith(USED))
        with self._database.read() as connection:
            found = connection.execute(names).scalars()
            return tuple(sorted(str(name).removeprefix(USED) for name in found))

    def list(self, *, archived: bool = False) -> tuple[PoolDetails, ...]:
        """Pools with their counts, by name."""
        chosen = sa.select(schema.pools).order_by(schema.pools.c.name)
        with self._database.read() as connection:
            found = [records.pool_of(row) for row in connection.execute(chosen).mappings()]
            follow = {
                str(row["pool_id"]): records.autoscale_of(row)
                for row in connection.execute(sa.select(schema.autoscales)).mappings()
            }
            now = self._control.clock()
            return tuple(
                PoolDetails(
                    pool=pool,
                    counts=decisions.counts(records.view(connection, pool, now)),
                    autoscale=follow.get(pool.id),
                )
                for pool in found
                if archived or pool.status is not Status.ARCHIVED
            )

    def show(self, name: str, *, recent: int = RECENT) -> PoolDetails:
        """A pool with all its members, its claims, who waits, and what happened last."""
        with self._database.read() as connection:
            pool = records.find_pool(connection, name)
            view = records.view(connection, pool, self._control.clock())
            past = connection.execute(statements.recent_claims(pool.id, recent)).mappings()
            ended = [claim for row in past if (claim := records.claim_of(row)).released_us]
            events = connection.execute(statements.recent_events(pool.id, recent)).mappings()
            waiters = connection.execute(statements.waiters_in_order(pool.id, 0)).mappings()
            return PoolDetails(
                pool=pool,
                counts=decisions.counts(view),
                members=tuple(view.members),
                claims=(*view.claims, *ended),
                waiters=tuple(Waiter(**row) for row in waiters),
                events=tuple(PoolEvent(**row) for row in events),
                autoscale=records.find_autoscale(connection, pool.id),
            )

    def show_member(self, member_id: str, *, recent: int = RECENT) -> MemberDetails:
        """A member with who had it, and what happened to it."""
        with self._database.read() as connection:
            member = records.find_member(connection, member_id)
            pool = records.find_pool(connection, member.pool_id)
            had = connection.execute(statements.claims_of_member(member.id, recent)).mappings()
            events = connection.execute(
                statements.events_of_member(pool.id, member.id, recent)
            ).mappings()
            return MemberDetails(
                member=member,
                pool=pool.name,
                claims=tuple(records.claim_of(row) for row in had),
                events=tuple(PoolEvent(**row) for row in events),
            )

    def past(self, name: str, seconds: int) -> Past:
        """What sizing measures: as far back as asked for, as the pool is old, and as records are kept."""
        claims, events, members = schema.claims, schema.events, schema.members
        now = self._control.clock()
        with self._database.read() as connection:
            pool = records.find_pool(connection, name)
            back = min(seconds, pool.settings.record_retention_seconds)
            begin = max(pool.created_us, now - back * decisions.SECOND)
            when = claims.c.acquired_us - claims.c.waited_us
            served = connection.execute(
                sa.select(when).where(
                    claims.c.pool_id == pool.id, claims.c.acquired_us >= begin, when >= begin
                )
            ).scalars()
            asked = [int(at) for at in served]
            got = len(asked)
            missed = sa.select(events.c.at_us, events.c.detail).where(
                events.c.pool_id == pool.id,
                events.c.kind == statements.MISSED,
                events.c.at_us >= begin,
            )
            for at, count in connection.execute(missed):
                asked += [int(at)] * int(count)
            # `ready_us` is later where a member was returned and used again.
            first = sa.select(events.c.at_us - members.c.warming_started_us).where(
                events.c.member_id == members.c.id,
                members.c.pool_id == pool.id,
                events.c.kind == "member_ready",
                events.c.reason == "phase_ready",
                events.c.at_us >= begin,
            )
            warm = tuple(sorted(int(took) for took in connection.execute(first).scalars()))
        return Past(
            begin_us=begin,
            end_us=now,
            asked_us=tuple(sorted(asked)),
            warm_ups_us=warm,
            missed=len(asked) - got,
        )

    def update(self, name: str, given: Mapping[str, object]) -> Pool:
        """Change a pool; a smaller target shrinks it, another template replaces its members."""
        for one in given:
            if one not in UPDATE:
                raise pool_errors.UnknownParameterError(one, UPDATE)
        now = self._control.clock()
        with self._database.write("update") as connection:
            before = records.lock_pool(connection, name)
            follows = records.find_autoscale(connection, before.id)
            if follows is not None and "target_size" in given:
                raise pool_errors.AutoscaledError(before.name)
            after = _changed(before, given)
            if follows is not None:
                # Bounds are law, and the size within them is not the operator's to give.
                target = min(max(before.target_size, after.min_size), after.max_size)
                after = dataclasses.replace(after, target_size=target)
            _check_sizes(after)
            if after == before:
                return before
            made_from = (*MADE_FROM, "preferred_regions")
            if any(getattr(before, n) != getattr(after, n) for n in made_from):
                self._check_order(connection, after)
            records.use_regions(connection, after)
            if after.status is not before.status:
                records.add_event(
                    connection, f"pool_{after.status}", now, pool=after, reason="operator"
                )
                if follows is not None and after.refills:
                    # Nobody could claim meanwhile: that is not to be taken for a lack of demand.
                    resumed = ((now / decisions.SECOND, after.target_size),)
                    follows = dataclasses.replace(follows, since_us=now, memory=resumed)
                    records.save_autoscale(connection, follows)
            if before.breaker_opened_us is not None and after.breaker_opened_us is None:
                records.add_event(connection, "breaker_closed", now, pool=after, reason="operator")
            after = self.change(connection, before, after, now, kind="pool_updated")
        self.carry_out(before, after)
        return after

    def change(
        self,
        connection: sa.Connection,
        before: Pool,
        after: Pool,
        now: int,
        *,
        kind: str,
        reason: str = "",
        why: str = "",
    ) -> Pool:
        """Write a pool that is locked and changed, and tell what changed."""
        after = dataclasses.replace(after, updated_us=now)
        records.save_pool(connection, after)
        told = _told(before, after) + (f"; {why}" if why else "")
        records.add_event(connection, kind, now, pool=after, reason=reason, detail=told)
        return after

    def carry_out(self, before: Pool, after: Pool) -> None:
        """What is too much, or of another template, goes now; the rest is the reaper's, who is woken."""
        self._control.notifier.notify()
        if any(getattr(before, n) != getattr(after, n) for n in ("status", "generation", *SIZES)):
            self._upkeep.recycle(after.id)

    def drain(self, name: str) -> dict[str, int]:
        """End every member that nobody claimed, warming ones too; nothing is launched any more."""
        now = self._control.clock()
        with self._database.write("drain") as connection:
            pool = records.lock_pool(connection, name)
            if pool.status is not Status.DRAINING:
                pool = dataclasses.replace(pool, status=Status.DRAINING, updated_us=now)
                records.save_pool(connection, pool)
                records.add_event(connection, "pool_draining", now, pool=pool, reason="operator")
            view = records.view(connection, pool, now)
            drained = sum(
                self._upkeep.apply(connection, pool, one, now)
                for one in decisions.recycle(view)
                if isinstance(one, decisions.Retire)
            )
            claimed = decisions.counts(view).claimed
        self._control.notifier.notify()
        self._upkeep.end(pool)
        return {"drained": drained, "claimed_remaining": claimed}

    def delete(self, name: str) -> None:
        """Remove an empty pool. Records of members that are gone do not hold it back."""
        now = self._control.clock()
        with self._database.write("delete") as connection:
            pool = records.lock_pool(connection, name)
            held = len(records.view(connection, pool, now).members)
            if held:
                raise pool_errors.PoolHasMembersError(pool.name, held)
            connection.execute(sa.delete(schema.claims).where(schema.claims.c.pool_id == pool.id))
            connection.execute(sa.delete(schema.members).where(schema.members.c.pool_id == pool.id))
            connection.execute(sa.delete(schema.pools).where(schema.pools.c.id == pool.id))
            records.add_event(connection, "pool_deleted", now, pool=pool, reason="operator")


def _changed(pool: Pool, given: Mapping[str, object]) -> Pool:
    tuned = settings.changed(pool.settings, {n: v for n, v in given.items() if n in settings.NAMES})
    values: dict[str, Any] = {"settings": tuned}
    values |= {n: _size(n, given[n]) for n in SIZES if n in given}
    values |= _plain({n: v for n, v in given.items() if n in PLAIN})
    if "status" in given:
        values["status"] = _status(pool, given["status"])
    if given.get("close_breaker"):
        values |= {"failures": 0, "launch_not_before_us": 0, "breaker_opened_us": None}
    if any(n in values and values[n] != getattr(pool, n) for n in MADE_FROM):
        values["generation"] = pool.generation + 1
    return dataclasses.replace(pool, **values)


def _status(pool: Pool, wanted: object) -> Status:
    if wanted not in [one.value for one in Status]:
        raise pool_errors.BadKnobError("status", wanted, "one of " + ", ".join(Status))
    status = Status(str(wanted))
    if status is Status.PAUSED and pool.status not in (Status.ACTIVE, Status.PAUSED):
        raise pool_errors.MemberStateError(
            f"pool {pool.name} is {pool.status} and cannot be paused",
            why="a pool that winds down is not refilled anyway",
            todo=f"overnight pool update {pool.name} --resume",
        )
    return status


def _plain(given: Mapping[str, object]) -> dict[str, Any]:
    """Words and lists of words, as they are; anything else is refused."""
    values: dict[str, Any] = {}
    for name in PLAIN:
        if name not in given:
            continue
        value = given[name]
        if name == "labels":
            if not isinstance(value, Mapping) or not all(
                isinstance(one, str) for pair in value.items() for one in pair
            ):
                raise pool_errors.BadKnobError(name, value, "names and words")
            values[name] = dict(value)
        elif name == "preferred_regions":
            if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
                raise pool_errors.BadKnobError(name, value, "a list of words")
            values[name] = tuple(value)
        elif not isinstance(value, str) or (not value and name in ("name", "template")):
            raise pool_errors.BadKnobError(name, value, "a word")
        else:
            values[name] = value
    if "lifecycle_class" in values:
        choices = [one.value for one in LifecycleClass]
        if values["lifecycle_class"] not in choices:
            raise pool_errors.BadKnobError(
                "lifecycle_class", values["lifecycle_class"], "one of " + ", ".join(choices)
            )
        values["lifecycle_class"] = LifecycleClass(values["lifecycle_class"])
    if "name" in values and not values["name"].replace("-", "").replace("_", "").isalnum():
        raise pool_errors.BadKnobError("name", values["name"], "letters, digits, - and _")
    return values


def _size(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST:
        raise pool_errors.BadKnobError(name, value, f"a whole number from 0 to {MOST}")
    return value


def _check_sizes(pool: Pool) -> None:
    if not pool.min_size <= pool.target_size <= pool.max_size:
        raise pool_errors.BadSizeError(
            f"min {pool.min_size}, target {pool.target_size}, max {pool.max_size} do not fit",
            why="min_size <= target_size <= max_size must hold",
            todo="give those that do not fit together in one command",
        )


def _told(before: Pool, after: Pool) -> str:
    """What changed, for the event."""
    old, new = records.pool_row(before), records.pool_row(after)
    old |= old.pop("knobs")
    new |= new.pop("knobs")
    return ", ".join(
        f"{n}: {old[n]} -> {new[n]}" for n in new if old[n] != new[n] and n != "updated_us"
    )
