"""A control plane in a test: its database, a scripted provider, a manual clock."""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING

import pooldatabases
import poolprovider
import sqlalchemy as sa

from overnight.model.cluster import Cluster, ClusterOrder
from overnight.model.pool import Member, MemberState, Pool, PoolDetails
from overnight.pools import control, pool_errors
from overnight.pools.sql import schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from overnight.database import engine

S = 1_000_000
START = 1_800_000_000 * S
State = MemberState
DAY_SECONDS = 86400


class Clock:
    """A clock that only `forward` moves."""

    def __init__(self) -> None:
        self.now_us = START

    def __call__(self) -> int:
        return self.now_us

    def forward(self, seconds: float) -> None:
        self.now_us += int(seconds * S)


def cluster_order(count: int, **fields: object) -> ClusterOrder:
    plain: dict[str, object] = {
        "template": "t", "provider": "scripted", "lease_seconds": DAY_SECONDS, "wait_seconds": DAY_SECONDS,
        "settings": {"launch_parallel": 1, "breaker_failures": 2},
    }  # fmt: skip
    return ClusterOrder(count=count, **plain | fields)


class World:
    """One database and one provider; `plane` is the first control plane, `another` adds more."""

    def __init__(
        self,
        url: str,
        steps: Callable[[str], None] | None = None,
        provider: poolprovider.Scripted | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.url = url
        pooldatabases.prepare(url)
        self.clock = clock or Clock()
        self.provider = provider or poolprovider.Scripted()
        self.credentials: dict[str, str] = {}
        self._open: list[engine.Database] = []
        self.plane = self.another(steps)

    def another(self, steps: Callable[[str], None] | None = None) -> control.ControlPlane:
        """Create another control plane on the same database and provider."""
        db = pooldatabases.opened(self.url, steps=steps or (lambda _: None))
        self._open.append(db)
        return control.ControlPlane(db, {"scripted": self.provider}, clock=self.clock)

    def close(self) -> None:
        for db in self._open:
            db.close()

    def pool(self, name: str = "ci", target: int = 3, **fields: object) -> Pool:
        plain: dict[str, object] = {"launch_parallel": 1}
        return self.plane.create(
            name=name, template="runner", target_size=target, provider="scripted", **plain | fields
        )

    def cluster(self, count: int = 3, key: str = "", **fields: object) -> Cluster:
        return self.plane.clusters.create(cluster_order(count, **fields), key)

    def find_cluster(self, cluster_id: str) -> tuple[Cluster, PoolDetails]:
        return self.plane.clusters.show(cluster_id, recent=100)

    def boot(
        self, member_id: str, phase: str = "ready", reason: str = "", detail: str = ""
    ) -> None:
        """Report a phase as the agent on a member's machine does."""
        credential = self.credentials.setdefault(member_id, secrets.token_hex(32))
        self.plane.enrolment.enrol(self.provider.tokens[member_id], credential)
        self.plane.enrolment.phase(credential, phase, reason, detail)

    def boot_all(self) -> None:
        """Boot every warming member that has a live machine."""
        for details in self.plane.list(archived=True):
            for member in self.plane.show(details.pool.name).members:
                if member.state is State.WARMING and member.machine_id in self.provider.machines:
                    self.boot(member.id)

    def fill(self, name: str = "ci") -> list[Member]:
        """Launch missing members and boot them."""
        self.plane.replenish(name)
        self.boot_all()
        return self.members(name, State.READY)

    def beat_all(self) -> None:
        alive = {machine.member_id for machine in self.provider.machines.values()}
        for member_id, credential in self.credentials.items():
            if member_id not in alive:
                continue
            with contextlib.suppress(pool_errors.EnrolmentRefusedError):  # it was not enrolled yet
                self.plane.enrolment.beat(credential)

    def members(self, name: str = "ci", *states: State) -> list[Member]:
        return [m for m in self.plane.show(name).members if not states or m.state in states]

    def kinds(self, name: str = "ci") -> list[str]:
        """Return the kinds of a pool's events, oldest first."""
        return [event.kind for event in reversed(self.plane.show(name, recent=1000).events)]

    def reasons(self, kind: str, name: str = "ci") -> list[str]:
        events = self.plane.show(name, recent=1000).events
        return [event.reason for event in reversed(events) if event.kind == kind]

    def all_events(self) -> list[str]:
        with self.plane.context.database.read() as connection:
            return list(connection.execute(sa.select(schema.events.c.kind)).scalars())

    def check(self) -> None:
        """Check the invariants that hold at any moment, also after a crash at any step."""
        with self.plane.context.database.read() as connection:
            open_claims = list(
                connection.execute(
                    sa.select(schema.claims.c.member_id).where(
                        schema.claims.c.released_us.is_(None)
                    )
                ).scalars()
            )
            claimed = list(
                connection.execute(
                    sa.select(schema.members.c.id).where(
                        schema.members.c.state == "claimed", schema.members.c.gone_us.is_(None)
                    )
                ).scalars()
            )
        assert len(set(open_claims)) == len(open_claims), "a member was claimed twice"
        assert sorted(open_claims) == sorted(claimed), "a claim without its member, or the reverse"
        for details in self.plane.list(archived=True):
            assert details.counts.members <= details.pool.max_size

    def settle(self, rounds: int = 12, step: float = 700) -> None:
        """Run a new control plane with a healthy provider until nothing is left to do."""
        self.provider.obey()
        plane = self.another()
        for _ in range(rounds):
            if self._settled():
                return
            self.clock.forward(step)
            self.beat_all()
            for name in plane.providers_in_use():
                plane.sweep(name)
            for details in plane.list(archived=True):
                try:
                    plane.clusters.step(details.pool)
                    plane.recycle(details.pool.name)
                    plane.replenish(details.pool.name)
                except pool_errors.PoolNotFoundError:
                    pass
            self.boot_all()

    def _settled(self) -> bool:
        try:
            self.check_settled()
        except AssertionError:
            return False
        return True

    def check_settled(self) -> None:
        """Check that rows and machines agree and that nothing is pending."""
        self.check()
        live = {}
        for details in self.plane.list(archived=True):
            for member in self.plane.show(details.pool.name).members:
                live[member.machine_id] = member
                assert member.state in (State.READY, State.CLAIMED), member
            assert not details.pool.assembles, "a cluster is not handed over"
            if details.pool.refills:
                assert details.counts.ready == details.pool.target_size, details.counts
            if details.pool.winds_down:
                assert details.counts.ready == 0
        assert set(live) == set(self.provider.machines), "rows and machines differ"
