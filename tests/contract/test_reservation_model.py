"""Random nights: reservers, drivers, crashes, a platform that comes and goes, a janitor, and others.

At every moment the record explains each mark of ours, and nothing of others is lost; in the end no mark is left.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import tempfile

import hypothesis
import pooldatabases
import pytest
from hypothesis import stateful
from hypothesis import strategies as st
from reservedhosts import ORDER, World

from overnight import errors
from overnight.model.reservation import Lease, Workload

HOSTS = ("a", "b", "c")
S = 1_000_000


class KilledError(BaseException):
    """Acts as kill -9."""


class Night(stateful.RuleBasedStateMachine):
    server = ""  # of PostgreSQL

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        file = f"sqlite:///{pathlib.Path(self._folder.name) / 'pools.db'}"
        self.world = World(pooldatabases.emptied(self.server) if self.server else file, *HOSTS)
        self.others: dict[str, Lease] = {}

    @contextlib.contextmanager
    def _plane(self, steps_left: int | None):  # type: ignore[no-untyped-def]
        """Yield a control plane that is killed after some steps; what it cannot do is fine."""
        left = steps_left

        def step(_: str) -> None:
            nonlocal left
            if left is not None:
                left -= 1
                if left < 0:
                    raise KilledError

        self.world.platform.steps = step
        with contextlib.suppress(KilledError, errors.OvernightError):
            yield self.world.another(step)
        self.world.platform.steps = lambda _: None

    killed = st.none() | st.integers(0, 60)

    @stateful.rule(count=st.integers(1, 3), renew=st.booleans(), evict=st.booleans(), steps=killed)
    def reserve(self, count: int, renew: bool, evict: bool, steps: int | None) -> None:
        order = dataclasses.replace(ORDER, count=count, renew=renew, evict=evict, seconds=1800)
        with self._plane(steps) as plane:
            plane.reserve(plane.preflight(order))

    @stateful.rule(which=st.integers(0, 5), steps=killed)
    def release(self, which: int, steps: int | None) -> None:
        listed = self.world.plane.list()
        if listed:
            with self._plane(steps) as plane:
                plane.release(listed[which % len(listed)].id)

    @stateful.rule(steps=killed)
    def tick(self, steps: int | None) -> None:
        with self._plane(steps) as plane:
            plane.tick()

    @stateful.rule(seconds=st.sampled_from([10, 200, 1000, 4000]))
    def wait(self, seconds: int) -> None:
        self.world.clock.forward(seconds)

    @stateful.rule()
    def clean(self) -> None:
        with contextlib.suppress(errors.OvernightError):
            self.world.clean()

    @stateful.rule(away=st.booleans())
    def platform_comes_and_goes(self, away: bool) -> None:
        self.world.platform.error = None
        if away:
            self.world.platform.go_away()

    @stateful.rule(name=st.sampled_from(HOSTS))
    def others_take_a_host(self, name: str) -> None:
        host = self.world.platform.hosts[name]
        if host.claim is None and host.mark is None:
            end = self.world.clock() + 10**9 * S
            lease = Lease(f"r-{len(self.others):012x}", "team-b", end, end)
            host.claim, host.mark, self.others[name] = lease, lease.text(), lease

    @stateful.rule(name=st.sampled_from(HOSTS))
    def a_workload_lands(self, name: str) -> None:
        self.world.platform.hosts[name].workloads.append(Workload("web-1", "pod"))

    @stateful.rule(name=st.sampled_from(HOSTS))
    def somebody_removes_a_mark(self, name: str) -> None:
        if name not in self.others:
            self.world.platform.hosts[name].mark = None

    @stateful.invariant()
    def the_record_explains_every_mark(self) -> None:
        known = {
            (host.name, reservation.id)
            for reservation in self.world.plane.list()
            for host in reservation.open
        }
        for name, host in self.world.platform.hosts.items():
            if name in self.others:
                assert (host.claim, host.mark) == (self.others[name], self.others[name].text())
            else:
                for lease in (host.claim, Lease.parse(host.mark or "")):
                    assert lease is None or (name, lease.id) in known
        self.world.platform.check_others()

    def teardown(self) -> None:
        world = self.world
        world.platform.error = None
        for _ in range(4):  # longer than any lease here, with renewals
            world.clock.forward(4 * 86_400)
            world.plane.tick()
        assert set(world.platform.marked) == set(self.others)
        assert world.plane.list() == ()
        world.close()
        self._folder.cleanup()


class NightOnServer(Night):
    """The same on PostgreSQL."""


def settings(examples: int, steps: int) -> hypothesis.settings:
    checks = list(hypothesis.HealthCheck)
    return hypothesis.settings(
        max_examples=examples, stateful_step_count=steps, deadline=None,
        suppress_health_check=checks, print_blob=True,
    )  # fmt: skip


def test_hosts_are_given_back_after_random_nights() -> None:
    stateful.run_state_machine_as_test(Night, settings=settings(30, 30))


def test_hosts_are_given_back_after_random_nights_on_postgresql(postgresql: str) -> None:
    NightOnServer.server = postgresql
    stateful.run_state_machine_as_test(NightOnServer, settings=settings(6, 30))


@pytest.mark.long
def test_hosts_are_given_back_after_many_random_nights() -> None:
    stateful.run_state_machine_as_test(Night, settings=settings(500, 50))
