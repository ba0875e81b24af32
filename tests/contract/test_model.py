"""The control plane against a small model: all guarantees hold for any operations in any order."""

from __future__ import annotations

import contextlib
import pathlib
import random
import shutil
import tempfile
import types
import unittest.mock

import hypothesis
import pooldatabases
import pytest
from hypothesis import stateful
from hypothesis import strategies as st
from poolworld import State, World

from overnight import pools
from overnight.model import pool as pool_values
from overnight.model.pool import Claim, PoolStatus
from overnight.pools import pool_errors


class Machine(stateful.RuleBasedStateMachine):
    """One pool, one provider that may fail, and callers who know their claims."""

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
        self.world.pool(target=2, max_size=5, launch_backoff_seconds=1, breaker_retry_seconds=60)
        self.claimed: dict[str, str] = {}  # claim -> machine, as the callers know it
        self.dead: set[str] = set()

    def teardown(self) -> None:
        try:
            self.recover()
        finally:
            self.names.stop()
            self.world.close()  # otherwise a long run would exhaust the server's connections
            shutil.rmtree(self.folder, ignore_errors=True)

    def recover(self) -> None:
        world = self.world
        for member in world.members():
            if member.cordoned:
                world.plane.set_cordoned(member.id, cordoned=False)
            if member.abandoned_us is not None:
                world.provider.obey()
                world.plane.terminate(member.id)
        world.settle(rounds=20)
        world.check_settled()
        for claim, machine in self.claimed.items():
            if machine not in self.dead:
                assert claim in self.open_claims(), "a claim was lost"

    def open_claims(self) -> dict[str, Claim]:
        details = self.world.plane.show("ci", recent=1000)
        return {claim.id: claim for claim in details.claims if claim.released_us is None}

    # callers

    @stateful.rule(count=st.integers(1, 3), key=st.sampled_from([None, "a", "b"]))
    def acquire(self, count: int, key: str | None) -> None:
        before = self.world.plane.show("ci")
        try:
            grants = self.world.plane.acquire("ci", count=count, idempotency_key=key)
        except pool_errors.PoolNotActiveError:
            assert before.pool.status is not PoolStatus.ACTIVE
        except (pool_errors.NoReadyMembersError, pool_errors.NoLiveReadyMembersError):
            pass
        except (pool_errors.KeyReusedError, pool_errors.ClaimEndedError):
            assert key is not None
        else:
            fresh = [g for g in grants if g.claim.acquired_us == self.world.clock.now_us]
            for grant in fresh:
                if grant.claim.released_us is None and grant.claim.id not in self.claimed:
                    self.claimed[grant.claim.id] = str(grant.member.machine_id)

    @stateful.precondition(lambda self: self.claimed)
    @stateful.rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        claim = data.draw(st.sampled_from(sorted(self.claimed)))
        with contextlib.suppress(pool_errors.ClaimEndedError):
            self.world.plane.give_back(claim)
        del self.claimed[claim]

    @stateful.precondition(lambda self: self.claimed)
    @stateful.rule(data=st.data())
    def terminate(self, data: st.DataObject) -> None:
        claim = data.draw(st.sampled_from(sorted(self.claimed)))
        self.world.plane.terminate(self.open_member(claim))
        del self.claimed[claim]

    def open_member(self, claim: str) -> str:
        claims = [c for c in self.world.plane.show("ci", recent=1000).claims if c.id == claim]
        return claims[0].member_id

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
        self.world.plane.autoscale(
            "ci",
            min_size=least,
            max_size=most,
            cooldown_seconds=60,
            zero_after_seconds=600 if zero and least is None else None,
            openings=[f"* 00:00-12:00 = {opening}"],
        )

    @stateful.rule()
    def autoscale_off(self) -> None:
        self.world.plane.autoscale_off("ci")

    @stateful.rule(status=st.sampled_from(["active", "active", "paused", "draining", "archived"]))
    def change_status(self, status: str) -> None:
        with contextlib.suppress(pool_errors.MemberStateError):
            self.world.plane.update("ci", status=status)

    @stateful.rule(template=st.sampled_from(["one", "two"]))
    def change_template(self, template: str) -> None:
        self.world.plane.update("ci", template=template)

    @stateful.rule(data=st.data())
    def cordon(self, data: st.DataObject) -> None:
        members = self.world.members()
        if members:
            member = data.draw(st.sampled_from(members))
            self.world.plane.set_cordoned(member.id, cordoned=not member.cordoned)

    # the reaper and the machines

    @stateful.rule()
    def replenish(self) -> None:
        details, launched = self.world.plane.show("ci"), self.world.provider.launched
        self.world.plane.replenish("ci")
        if not details.pool.refills:
            assert self.world.provider.launched == launched, (
                "launched into a pool that is not refilled"
            )

    @stateful.rule()
    def recycle(self) -> None:
        self.world.plane.recycle("ci")

    @stateful.rule()
    def follow(self) -> None:
        before = self.world.plane.show("ci")
        decision = self.world.plane.scale("ci")
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

    @stateful.rule()
    def sweep(self) -> None:
        with contextlib.suppress(pools.ProviderError):
            self.world.plane.sweep("scripted")
        rows = {m.machine_id for m in self.world.members()}
        if self.world.provider.on_terminate("look") is None and not self.inventory_fails:
            assert set(self.world.provider.machines) <= rows, "a machine without a row"

    @stateful.rule(ready=st.booleans())
    def boot(self, ready: bool) -> None:
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

    inventory_fails = False

    @stateful.rule(launch=st.booleans(), inventory=st.booleans(), nothing=st.booleans())
    def provider_fails(self, launch: bool, inventory: bool, nothing: bool) -> None:
        self.world.provider.obey()
        self.inventory_fails = inventory
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
        for claim, machine in self.claimed.items():
            if machine not in self.dead:
                assert claim in open_now, "a claim was lost"
                assert machine in self.world.provider.machines, "a claimed machine was ended"


class OnServer(Machine):
    """The same on PostgreSQL."""


PLAIN = {
    "deadline": None,
    "suppress_health_check": list(hypothesis.HealthCheck),
    "print_blob": True,
}


def test_guarantees_hold_on_sqlite() -> None:
    stateful.run_state_machine_as_test(
        Machine,
        settings=hypothesis.settings(max_examples=25, stateful_step_count=25, **PLAIN),
    )


def test_guarantees_hold_on_postgresql(postgresql: str) -> None:
    OnServer.url = postgresql
    stateful.run_state_machine_as_test(
        OnServer,
        settings=hypothesis.settings(max_examples=8, stateful_step_count=20, **PLAIN),
    )


@pytest.mark.long
@pytest.mark.timeout(900)
def test_guarantees_hold_in_many_long_runs() -> None:
    stateful.run_state_machine_as_test(
        Machine,
        settings=hypothesis.settings(max_examples=300, stateful_step_count=50, **PLAIN),
    )
