"""The reaper: recycles and replenishes every pool, on each tick and whenever a claim wakes it.

Each pool has a thread of its own while it is worked on, so that one that fails, or whose provider hangs,
delays no other. Two reapers at once are safe; they share the work.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from overnight import errors, pools
from overnight.model.times import DAY_US
from overnight.pools import pool_errors
from overnight.pools.sql import event_rows, pool_rows, shared_values

if TYPE_CHECKING:
    from overnight.model.pool import Pool
    from overnight.pools import control

SEEN = shared_values.SEEN
KEEP_EVENTS_US = 7 * DAY_US
STOP_SECONDS = 1.0
SEEN_SECONDS = 60.0  # however long the tick is: after three of these a reaper counts as dead
Work = Callable[[], None]


class Reaper:
    def __init__(self, plane: control.ControlPlane, *, interval: float = 60.0) -> None:
        self._plane = plane
        self._interval = interval
        self._working: dict[str, threading.Thread] = {}
        self._next: dict[str, Work] = {}  # requested while a pool was worked on
        self._lock = threading.Lock()
        self.failures: dict[str, str] = {}  # pool or provider -> message of its last failure
        self._failed_kinds: dict[str, str] = {}

    def tick(self) -> dict[str, str]:
        """Do everything once, one after the other; return what failed, and why."""
        report_alive(self._plane)
        for name, work in self._jobs(full=True):
            self._guarded(name, work)
        return dict(self.failures)

    def run(self, stop: threading.Event) -> None:
        """Run until `stop` is set: on every tick everything, on every wake-up what cannot wait."""
        due = seen = time.monotonic()
        with self._plane.context.notifier.listen() as wait:
            while not stop.is_set():
                full = time.monotonic() >= due
                if full:
                    due = time.monotonic() + self._interval
                if full or time.monotonic() >= seen:
                    seen = time.monotonic() + SEEN_SECONDS
                    self._guarded("reaper", functools.partial(report_alive, self._plane))
                # Whatever fails here, such as an unreachable database, is tried again next time.
                self._guarded("reaper", functools.partial(self._start_all, full=full))
                wait(min(STOP_SECONDS, max(0.0, due - time.monotonic())))
        for thread in list(self._working.values()):
            thread.join(STOP_SECONDS)

    def _start_all(self, *, full: bool) -> None:
        for name, work in self._jobs(full=full):
            self._start(name, work, full=full)

    def _jobs(self, *, full: bool) -> list[tuple[str, Work]]:
        """List the work; on a wake-up only what cannot wait."""
        jobs: list[tuple[str, Work]] = []
        if full:
            # First, so that lost machines are known before anything is launched.
            jobs += [
                (f"provider {name}", functools.partial(self._sweep, name))
                for name in self._plane.providers_in_use()
            ]
        jobs += [
            (details.pool.name, functools.partial(self._maintain, details.pool, full=full))
            for details in self._plane.list(archived=True)
        ]
        return jobs

    def _start(self, name: str, work: Work, *, full: bool) -> None:
        with self._lock:
            if name in self._working and self._working[name].is_alive():
                # A wake-up never replaces a tick: only a tick recycles.
                if full or name not in self._next:
                    self._next[name] = work
                return
            self._next.pop(name, None)
            thread = threading.Thread(
                target=self._repeat, args=(name, work), name=f"reaper {name}", daemon=True
            )
            thread.start()
            self._working[name] = thread

    def _repeat(self, name: str, work: Work) -> None:
        while True:
            self._guarded(name, work)
            with self._lock:
                if name not in self._next:
                    self._working.pop(name, None)
                    return
                work = self._next.pop(name)

    def _guarded(self, name: str, work: Work) -> None:
        """Run `work`; record a failure as an event, once, and go on."""
        try:
            work()
        except pool_errors.PoolNotFoundError:
            pass  # deleted meanwhile
        except Exception as error:
            message = error.what if isinstance(error, errors.OvernightError) else repr(error)
            kind = error.kind if isinstance(error, errors.OvernightError) else message
            if self._failed_kinds.get(name) != kind:
                self._add_failure(name, message)
            self._failed_kinds[name], self.failures[name] = kind, message
        else:
            self._failed_kinds.pop(name, None)
            self.failures.pop(name, None)

    def _maintain(self, pool: Pool, *, full: bool) -> None:
        """Decide the size, advance a cluster, recycle, replenish; each runs even if the one before failed."""
        with contextlib.ExitStack() as steps:
            steps.callback(self._plane.replenish, pool.id)
            steps.callback(self._plane.recycle if full else self._plane.terminate_due, pool.id)
            steps.callback(self._plane.clusters.step, pool)
            self._plane.scale(pool.id)

    def _sweep(self, provider: str) -> None:
        # A failure of the provider is already an event.
        with contextlib.suppress(pools.ProviderError):
            self._plane.sweep(provider)

    def _add_failure(self, name: str, message: str) -> None:
        with contextlib.suppress(Exception):
            plane = self._plane
            with plane.context.database.write("tick failed") as connection:
                pool = None
                with contextlib.suppress(pool_errors.PoolNotFoundError):
                    pool = pool_rows.find(connection, name)
                event_rows.add(
                    connection, "tick_failed", plane.context.clock(), pool=pool,
                    reason="tick_failed", detail=f"{name}: {message}",
                )  # fmt: skip


def report_alive(plane: control.ControlPlane) -> None:
    """Record that a reaper runs, and delete old events of pools that no longer exist."""
    now = plane.context.clock()
    with plane.context.database.write("reaper seen") as connection:
        shared_values.put(connection, SEEN, str(now))
        event_rows.delete_orphaned(connection, now - KEEP_EVENTS_US)
        pool_rows.delete_forgotten(connection, now - KEEP_EVENTS_US)
