"""Several control planes at once with reapers, claimers and agents, and a database that restarts."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import noise
import pooldatabases
import pytest
from poolworld import State, World

from overnight.database import database_errors
from overnight.model import times
from overnight.pools import pool_errors, reaper


class Workers:
    """Threads that work until stopped; an exception in one of them fails the test."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.died: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def start(self, work: Callable[[], object]) -> None:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                self.died.append(error)

        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()

    def repeat(self, work: Callable[[], object]) -> None:
        def run() -> None:
            while not self.stop.is_set():
                work()

        self.start(run)

    def join(self) -> None:
        self.stop.set()
        for thread in self._threads:
            thread.join(20)

    def end(self) -> None:
        self.join()
        assert not any(thread.is_alive() for thread in self._threads)
        assert self.died == []


@pytest.fixture
def workers() -> Iterator[Workers]:
    """Threads that end also after a failure: they would lock the tables of the next tests."""
    running = Workers()
    yield running
    running.join()


def until(true: Callable[[], object], seconds: float = noise.HANG_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def claimer(
    world: World, claimed: list[str], refused: list[str], *, forgiving: bool = False
) -> Callable[[], None]:
    plane = world.another()

    def work() -> None:
        try:
            [grant] = plane.acquire("ci", wait_seconds=2)
            claimed.append(grant.claim.id)
            assert grant.member.machine_id in world.provider.machines
            plane.give_back(grant.claim.id)
        except pool_errors.NoReadyMembersError as error:
            refused.append(str(error))
        except database_errors.DatabaseUnavailableError:
            if not forgiving:
                raise
            time.sleep(0.02)

    return work


def agents(world: World, *, forgiving: bool = False) -> Callable[[], None]:
    plane = world.another()

    def work() -> None:
        time.sleep(0.002)
        try:
            for member in plane.show("ci").members:
                if member.state is State.WARMING and member.machine_id:
                    # It may have been drained or shrunk away.
                    with contextlib.suppress(pool_errors.EnrolmentRefusedError):
                        world.boot(member.id)
        except database_errors.DatabaseUnavailableError:
            if not forgiving:
                raise

    return work


def real_time(world: World) -> None:
    """Use the real clock, as reapers and waiters do here."""
    world.clock = times.now_us  # type: ignore[assignment]
    world.plane = world.another()


def test_two_reapers_and_many_claimers(world: World, workers: Workers) -> None:
    real_time(world)
    world.pool(target=4, max_size=9, launch_parallel=3)
    claimed, refused = [], []
    for _ in range(2):
        a_reaper = reaper.Reaper(world.another(), interval=0.05)
        workers.start(lambda a_reaper=a_reaper: a_reaper.run(workers.stop))
    workers.repeat(agents(world))
    for _ in range(3):
        workers.repeat(claimer(world, claimed, refused))

    def enough_claims() -> bool:
        world.check()
        return len(claimed) >= 40

    until(enough_claims)
    workers.end()
    assert len(set(claimed)) == len(claimed)
    assert "orphan_found" not in world.all_events()
    assert "tick_failed" not in world.all_events()
    world.check()


def test_a_database_that_restarts_under_load(workers: Workers) -> None:
    with pooldatabases.server() as running:
        world = World(running.get_uri())
        real_time(world)
        world.pool(target=3, launch_parallel=2)
        claimed, refused = [], []
        a_reaper = reaper.Reaper(world.another(), interval=0.1)
        workers.start(lambda: a_reaper.run(workers.stop))
        workers.repeat(agents(world, forgiving=True))
        for _ in range(2):
            workers.repeat(claimer(world, claimed, refused, forgiving=True))
        until(lambda: len(claimed) >= 5)
        for _ in range(2):
            running.stop()
            before = len(claimed)
            running.ensure_postgres_running()
            until(lambda before=before: len(claimed) >= before + 5 or workers.died)
            assert workers.died == []
        workers.end()
        world.check()
        until(lambda: not a_reaper.tick())
        rows = {m.machine_id for m in world.members()}
        assert set(world.provider.machines) <= rows
        world.close()
