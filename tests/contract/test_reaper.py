"""The reaper with a busy pool, and with failures around it."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import noise
import pytest

from overnight import pools
from overnight.pools import reaper

if TYPE_CHECKING:
    from collections.abc import Callable

    from poolworld import World


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + noise.HANG_SECONDS
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_notifications_of_a_busy_pool_do_not_displace_a_tick(fast_world: World) -> None:
    """Only a tick ends expired leases and silent members."""
    a_reaper = reaper.Reaper(fast_world.plane)
    done: list[str] = []
    busy, over = threading.Event(), threading.Event()

    def notified() -> None:
        busy.set()
        over.wait(10)
        done.append("notification")

    a_reaper._start("ci", notified, full=False)
    assert busy.wait(10)
    a_reaper._start("ci", lambda: done.append("another notification"), full=False)
    a_reaper._start("ci", lambda: done.append("tick"), full=True)
    a_reaper._start("ci", lambda: done.append("a last notification"), full=False)
    over.set()
    until(lambda: not a_reaper._working)
    assert done == ["notification", "tick"]


def test_replenish_ends_although_every_member_is_taken_at_once(fast_world: World) -> None:
    world = fast_world
    world.pool(target=1)

    def taken_at_once(order: pools.Order) -> None:
        world.boot_all()
        for member in world.members("ci"):
            if member.machine_id is not None:
                world.plane.terminate(member.id)
        if world.provider.launched > 5:
            raise pools.ProviderError("provider_error", "enough")

    world.provider.on_launch = taken_at_once
    assert world.plane.replenish("ci") == 1


@pytest.mark.parametrize(
    "failure", [RuntimeError("can't start new thread"), OSError(24, "too many")]
)
def test_the_reaper_survives_a_failed_start(
    fast_world: World, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    world = fast_world
    world.pool(target=1)
    a_reaper = reaper.Reaper(world.plane, interval=0.02)
    attempts: list[str] = []
    start = a_reaper._start_all

    def fails_at_first(*, full: bool) -> None:
        attempts.append("")
        if len(attempts) == 1:
            raise failure
        start(full=full)

    monkeypatch.setattr(a_reaper, "_start_all", fails_at_first)
    stop = threading.Event()
    running = threading.Thread(target=a_reaper.run, args=(stop,), daemon=True)
    running.start()
    until(lambda: world.members("ci"))
    stop.set()
    running.join(10)
    assert "tick_failed" in world.all_events()


def test_a_reaper_with_a_long_interval_reports_that_it_runs(
    fast_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = fast_world
    monkeypatch.setattr(reaper, "SEEN_SECONDS", 0.02)
    monkeypatch.setattr(reaper, "STOP_SECONDS", 0.01)
    stop = threading.Event()
    running = threading.Thread(
        target=reaper.Reaper(world.plane, interval=3600).run, args=(stop,), daemon=True
    )
    running.start()
    until(lambda: world.plane.get(reaper.SEEN))
    world.clock.forward(200)
    until(lambda: world.plane.get(reaper.SEEN) == str(world.clock()))
    stop.set()
    running.join(10)


def test_a_missing_machine_is_found_although_the_clock_was_set_back(fast_world: World) -> None:
    world = fast_world
    world.pool(target=1)
    world.fill()
    world.provider.machines.clear()
    world.clock.forward(-3600)
    world.plane.sweep("scripted")
    world.clock.forward(-1)
    world.plane.sweep("scripted")
    assert world.reasons("member_gone") == ["machine_gone"]
