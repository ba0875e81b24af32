"""A model of a pool: two servers, callers who know what they have, and everything that may go wrong."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import random
import shutil
import tempfile
import types
import unittest.mock
from typing import TYPE_CHECKING

import pooldatabases
from hypothesis import stateful
from hypothesis import strategies as st
from poolworld import S, State, World

from overnight import pools
from overnight.model import pool as pool_values
from overnight.model.pool import Claim, Grant, PoolDetails, PoolStatus, Request, Waiter
from overnight.pools import decisions, pool_errors

if TYPE_CHECKING:
    from collections.abc import Callable

SERVER = st.sampled_from([0, 1])
LEASE = st.sampled_from([None, 60, 1000])
LEASE_MAX = 3600
COOLDOWN = 60
WORK = ("replenish", "recycle", "sweep", "terminate_due")
MEANWHILE = (*WORK, "acquire", "give_back", "cordon", "boot", "beats", "a_machine_dies")


@dataclasses.dataclass
class Held:
    """A claim as its caller knows it."""

    machine: str
    acquired_us: int
    until_us: int | None  # the end of its lease


class Machine(stateful.RuleBasedStateMachine):
    """One pool, two servers, one provider that may fail, and callers who know their claims."""

    url = ""

    def __init__(self) -> None:
        super().__init__()
        # Members are ordered by name: random names would make two runs of an example differ.
        chance = random.Random(0)
        names = types.SimpleNamespace(token_hex=lambda size: chance.randbytes(size).hex())
        self.names = unittest.mock.patch.object(pool_values, "secrets", names)
        self.names.start()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="overnight-model-"))
        if self.url:
            pooldatabases.emptied(self.url)
            self.world = World(self.url)
        else:
            path = self.folder / "pools.db"
            self.world = World(f"sqlite:///{path}")
        self.planes = [self.world.plane, self.world.another(self.between_steps)]
        self.meanwhile: Callable[[], object] | None = None  # between steps of the second server
        self.claimed: dict[str, Held] = {}
        self.waiting: dict[str, tuple[Waiter, Request]] = {}
        self.dead: set[str] = set()
        self.kept_us = 0  # when the size last rose, or the pool was resumed

    @stateful.initialize(reuse=st.booleans())
    def create(self, reuse: bool) -> None:
        self.world.pool(
            target=2, max_size=5, launch_backoff_seconds=1, breaker_retry_seconds=60,
            lease_max_seconds=LEASE_MAX, waiter_stale_seconds=600, reuse_without_reset=reuse,
        )  # fmt: skip
        self.world.fill()

    def teardown(self) -> None:
        try:
            self.recover()
        finally:
            self.names.stop()
            self.world.close()  # otherwise a long run would exhaust the server's connections
            shutil.rmtree(self.folder, ignore_errors=True)

    def recover(self) -> None:
        world = self.world
        for waiter in list(self.waiting):
            self.leave(waiter)
        for member in world.members():
            if member.cordoned:
                world.plane.set_cordoned(member.id, cordoned=False)
            if member.abandoned_us is not None:
                world.provider.obey()
                world.plane.terminate(member.id)
        world.settle(rounds=20)
        world.check_settled()
        open_now = self.open_claims()
        for claim, held in self.claimed.items():
            assert claim in open_now or self.may_have_ended(held), "a claim was lost"

    @property
    def now_us(self) -> int:
        return self.world.clock.now_us

    def may_have_ended(self, held: Held) -> bool:
        expired = held.until_us is not None and self.now_us >= held.until_us
        return expired or held.machine in self.dead

    def open_claims(self) -> dict[str, Claim]:
        details = self.world.plane.show("ci", recent=1000)
        return {claim.id: claim for claim in details.claims if claim.released_us is None}

    # callers

    def record(self, grants: tuple[Grant, ...], lease: int | None) -> None:
        until_us = None if lease is None else self.now_us + lease * S
        for grant in grants:
            held = Held(str(grant.member.machine_id), self.now_us, until_us)
            self.claimed[grant.claim.id] = held

    def is_served(self, details: PoolDetails, request: Request, own: Waiter | None) -> bool:
        """Whether members are left for this caller when all callers ahead have theirs."""
        settings = details.pool.settings

        def order(caller: Request | Waiter, queued_us: int, name: str) -> tuple[object, ...]:
            return decisions.queue_key(details.pool, caller.priority, queued_us), name

        ours = order(request, own.queued_us if own else self.now_us, own.id if own else "~")
        ahead = sum(
            waiter.wanted
            for waiter in details.waiters
            if waiter.seen_us > self.now_us - settings.waiter_stale_seconds * S
            and order(waiter, waiter.queued_us, waiter.id) < ours
        )
        stale_us = settings.heartbeat_stale_after_seconds * S
        ready = [m for m in details.members if m.state is State.READY and m.serves]
        claimable = [m for m in ready if self.now_us - m.heard_us < stale_us]
        return len(claimable) >= ahead + request.count

    @stateful.rule(
        count=st.integers(1, 3), key=st.sampled_from([None, "a", "b"]), lease=LEASE, server=SERVER
    )
    def acquire(
        self, count: int = 1, key: str | None = None, lease: int | None = None, server: int = 0
    ) -> None:
        before = self.world.plane.show("ci")
        served = self.is_served(before, Request(count=count), None)
        try:
            grants = self.planes[server].acquire(
                "ci", count=count, idempotency_key=key, lease_seconds=lease
            )
        except pool_errors.PoolNotActiveError:
            assert before.pool.status is not PoolStatus.ACTIVE
        except (pool_errors.NoReadyMembersError, pool_errors.NoLiveReadyMembersError):
            assert not served
        except (pool_errors.KeyReusedError, pool_errors.ClaimEndedError):
            assert key is not None
        else:
            known = {claim.id for claim in before.claims}
            if grants[0].claim.id not in known:
                assert served, "overtook callers in the queue"
                self.record(grants, lease)

    @stateful.rule(
        count=st.integers(1, 3), priority=st.sampled_from([-5, 0, 5]), lease=LEASE, server=SERVER
    )
    def wait(self, count: int, priority: int, lease: int | None, server: int) -> None:
        request = Request(count=count, priority=priority, lease_seconds=lease, wait_seconds=60)
        if self.world.plane.show("ci").pool.status is PoolStatus.ACTIVE:
            waiter, _ = self.planes[server]._claims._enter_queue("ci", request, self.now_us)
            self.waiting[waiter.id] = waiter, request

    @stateful.precondition(lambda self: self.waiting)
    @stateful.rule(data=st.data(), server=SERVER)
    def poll(self, data: st.DataObject, server: int) -> None:
        """Do what a waiting caller does in its loop: keep its place, and try."""
        waiter, request = self.waiting[data.draw(st.sampled_from(sorted(self.waiting)))]
        plane = self.planes[server]
        plane._claims._report(waiter)
        before = self.world.plane.show("ci")
        result = plane._claims._try_locked("ci", request, waiter)
        if isinstance(result, pool_errors.PoolNotActiveError):
            assert before.pool.status is not PoolStatus.ACTIVE
            self.leave(waiter.id)
        elif isinstance(result, tuple):
            assert self.is_served(before, request, waiter), "overtook callers in the queue"
            self.record(result, request.lease_seconds)
            del self.waiting[waiter.id]
            self.waiting_rows_agree()
        else:
            assert not self.is_served(before, request, waiter)

    def leave(self, waiter: str) -> None:
        self.planes[1]._claims._leave_unserved(
            self.world.plane.show("ci").pool, self.waiting.pop(waiter)[0]
        )
        self.waiting_rows_agree()

    def waiting_rows_agree(self) -> None:
        rows = {waiter.id for waiter in self.world.plane.show("ci").waiters}
        assert rows <= set(self.waiting), "a caller that left is still in the queue"

    @stateful.precondition(lambda self: self.claimed)
    @stateful.rule(data=st.data(), lease=st.sampled_from([60, 1000]), server=SERVER)
    def renew(self, data: st.DataObject, lease: int, server: int) -> None:
        claim = data.draw(st.sampled_from(sorted(self.claimed)))
        held = self.claimed[claim]
        most_us = held.acquired_us + LEASE_MAX * S
        try:
            renewed = self.planes[server].renew(claim, lease)
        except pool_errors.ClaimEndedError:
            assert self.may_have_ended(held)
        except pool_errors.LeaseCapError:
            assert self.now_us >= most_us
        else:
            assert held.until_us is None or self.now_us < held.until_us, "renewed too late"
            until_us = min(self.now_us + lease * S, most_us)
            assert renewed.lease_until_us == max(until_us, held.until_us or 0)
            held.until_us = renewed.lease_until_us

    @stateful.precondition(lambda self: self.claimed)
    @stateful.rule(index=st.integers(0, 9), server=SERVER)
    def give_back(self, index: int = 0, server: int = 0) -> None:
        claim = sorted(self.claimed)[index % len(self.claimed)]
        held = self.claimed.pop(claim)
        try:
            member = self.planes[server].give_back(claim)
        except pool_errors.ClaimEndedError:
            assert self.may_have_ended(held)
        else:
            pool = self.world.plane.show("ci").pool
            if member.state is State.READY:
                assert pool.settings.reuse_without_reset
                assert member.serves
                assert not pool.winds_down
                assert member.generation == pool.generation

    @stateful.precondition(lambda self: self.claimed)
    @stateful.rule(data=st.data(), server=SERVER)
    def terminate(self, data: st.DataObject, server: int) -> None:
        claim = data.draw(st.sampled_from(sorted(self.claimed)))
        del self.claimed[claim]
        claims = [c for c in self.world.plane.show("ci", recent=1000).claims if c.id == claim]
        if claims[0].released_us is None:  # otherwise somebody else may have its member
            self.planes[server].terminate(claims[0].member_id)

    # operators

    @stateful.rule(size=st.integers(0, 4))
    def resize(self, size: int) -> None:
        follows = self.world.plane.show("ci").autoscale is not None
        try:
            self.world.plane.update("ci", target_size=size)
        except pool_errors.AutoscaledError:
            assert follows
        else:
            assert not follows

    @stateful.rule(
        least=st.sampled_from([None, 1, 2]),
        most=st.sampled_from([None, 3, 4]),
        zero=st.booleans(),
        opening=st.integers(0, 3),
    )
    def autoscale(self, least: int | None, most: int | None, zero: bool, opening: int) -> None:
        if self.world.plane.show("ci").autoscale is None:
            self.kept_us = self.now_us
        self.world.plane.autoscale(
            "ci",
            min_size=least,
            max_size=most,
            cooldown_seconds=COOLDOWN,
            zero_after_seconds=600 if zero and least is None else None,
            openings=[f"* 00:00-12:00 = {opening}"],
        )

    @stateful.rule()
    def autoscale_off(self) -> None:
        self.world.plane.autoscale_off("ci")

    @stateful.rule(status=st.sampled_from(["active", "active", "paused", "draining", "archived"]))
    def change_status(self, status: str) -> None:
        if status == "active" and not self.world.plane.show("ci").pool.refills:
            self.kept_us = self.now_us  # resumed: the time without claims does not count
        with contextlib.suppress(pool_errors.MemberStateError):
            self.world.plane.update("ci", status=status)

    @stateful.rule(template=st.sampled_from(["one", "two"]))
    def change_template(self, template: str) -> None:
        self.world.plane.update("ci", template=template)

    @stateful.rule(index=st.integers(0, 9), server=SERVER)
    def cordon(self, index: int = 0, server: int = 0) -> None:
        if members := self.world.members():
            member = members[index % len(members)]
            self.planes[server].set_cordoned(member.id, cordoned=not member.cordoned)

    # the reaper and the machines

    @stateful.rule(server=SERVER)
    def replenish(self, server: int = 0) -> None:
        details, launched = self.world.plane.show("ci"), self.world.provider.launched
        self.planes[server].replenish("ci")
        if not details.pool.refills:
            assert self.world.provider.launched == launched, (
                "launched into a pool that is not refilled"
            )

    @stateful.rule(server=SERVER)
    def recycle(self, server: int = 0) -> None:
        self.planes[server].recycle("ci")
        leases = [claim.lease_until_us for claim in self.open_claims().values()]
        assert all(until is None or until > self.now_us for until in leases), "an expired lease"

    @stateful.rule(server=SERVER)
    def terminate_due(self, server: int = 0) -> None:
        self.planes[server].terminate_due("ci")

    @stateful.rule(server=SERVER)
    def follow(self, server: int) -> None:
        before = self.world.plane.show("ci")
        decision = self.planes[server].scale("ci")
        after = self.world.plane.show("ci")
        policy = before.autoscale
        if policy is None or not before.pool.refills:
            assert decision is None
            assert after.pool.target_size == before.pool.target_size, "scaled without permission"
        if decision is not None and policy is not None:
            assert decision.size == after.pool.target_size
            assert (policy.min_size or 0) <= decision.size <= (policy.max_size or 5)
            scalings = [e for e in after.events if e.kind == "pool_scaled"]
            is_new = bool(scalings) and scalings[0].id > before.events[0].id
            assert is_new == (decision.size != before.pool.target_size)
            if decision.size > before.pool.target_size:
                self.kept_us = self.now_us
            elif decision.size < before.pool.target_size and decision.cause != "max":
                assert self.now_us - self.kept_us >= COOLDOWN * S, "the size flaps"

    @stateful.rule(server=SERVER)
    def sweep(self, server: int = 0) -> None:
        with contextlib.suppress(pools.ProviderError):
            self.planes[server].sweep("scripted")
            rows = {m.machine_id for m in self.world.members()}
            assert set(self.world.provider.machines) <= rows, "a machine without a row"

    @stateful.rule(
        work=st.sampled_from(WORK), other=st.sampled_from(MEANWHILE), at=st.integers(0, 6)
    )
    def work_at_once(self, work: str, other: str, at: int) -> None:
        """The second server works, and between two of its steps something else happens."""
        if other == "give_back" and not self.claimed:
            return
        self.meanwhile, self.steps_left = getattr(self, other), at
        with contextlib.suppress(pools.ProviderError):
            getattr(self.planes[1], work)("scripted" if work == "sweep" else "ci")
        self.meanwhile = None

    def between_steps(self, step: str) -> None:
        if self.meanwhile is None or step.endswith("before commit"):
            return
        self.steps_left -= 1
        if self.steps_left < 0:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()

    @stateful.rule(ready=st.booleans())
    def boot(self, ready: bool = True) -> None:
        alive = self.world.provider.machines
        warming = [m for m in self.world.members("ci", State.WARMING) if m.machine_id in alive]
        for member in warming[:1]:
            with contextlib.suppress(pool_errors.EnrolmentRefusedError):
                if ready:
                    self.world.boot(member.id)
                else:
                    self.world.boot(member.id, "failed", "module_pull_failed")

    @stateful.rule(seconds=st.sampled_from([1, 30, 170, 700, 2000]))
    def time_passes(self, seconds: int) -> None:
        self.world.clock.forward(seconds)

    @stateful.rule()
    def beats(self) -> None:
        self.world.beat_all()

    # failures

    @stateful.rule(launch=st.booleans(), inventory=st.booleans(), nothing=st.booleans())
    def provider_fails(self, launch: bool, inventory: bool, nothing: bool) -> None:
        self.world.provider.obey()
        if launch:
            self.world.provider.refuse("provider_quota_exceeded", nothing_made=nothing)
        if inventory:

            def fail() -> None:
                raise pools.ProviderError("provider_error", "throttled")

            self.world.provider.on_inventory = fail

    @stateful.rule()
    def a_machine_dies(self) -> None:
        for machine in list(self.world.provider.machines)[:1]:
            del self.world.provider.machines[machine]
            self.dead.add(machine)

    @stateful.rule()
    def a_launch_is_lost(self) -> None:
        """The launcher was killed between the intent and the call, or after it."""

        def killed(step: str) -> None:
            if step == "launched: begin":
                raise KeyboardInterrupt

        with contextlib.suppress(KeyboardInterrupt):
            self.world.another(killed).replenish("ci")

    @stateful.invariant()
    def guarantees_hold(self) -> None:
        self.world.check()
        open_now = self.open_claims()
        for claim, held in self.claimed.items():
            if not self.may_have_ended(held):
                assert claim in open_now, "a claim was lost"
                assert held.machine in self.world.provider.machines, "a claimed machine was ended"
