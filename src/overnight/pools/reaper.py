"""The reaper: a tick of the clock as the safety net, and the bell that every claim rings.

Every pool has a thread of its own while it is worked on: one that fails, or whose provider hangs, holds up
no other. Two reapers at once are safe; they only share the work.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import sqlalchemy as sa

from overnight import errors, pools
from overnight.pools import decisions, pool_errors
from overnight.pools.sql import records, schema

if TYPE_CHECKING:
    from overnight.pools import control

__all__ = ["SEEN", "Reaper"]

SEEN = "reaper_seen_us"
KEEP_EVENTS_US = 7 * 86400 * decisions.SECOND
STOP_LOOK = 1.0
SEEN_SECONDS = 60.0  # however long the tick is: who looks takes three of these for its end
Work = Callable[[], None]


class Reaper:
    """Keeps every pool of a control plane."""

    def __init__(self, plane: control.ControlPlane, *, interval: float = 60.0) -> None:
        self._plane = plane
        self._interval = interval
        self._working: dict[str, threading.Thread] = {}
        self._next: dict[str, Work] = {}  # what came while a pool was worked on
        self._lock = threading.Lock()
        self.failures: dict[str, str] = {}  # pool or provider -> why its last work failed

    def tick(self) -> dict[str, str]:
        """Everything once, one after the other; what failed, and why."""
        self._seen()
        for name, work in self._jobs(full=True):
            self._guarded(name, work)
        return dict(self.failures)

    def run(self, stop: threading.Event) -> None:
        """Until told to stop: on every tick everything, on every ring what is missing."""
        due = seen = time.monotonic()
        with self._plane.context.notifier.listen() as listener:
            while not stop.is_set():
                full = time.monotonic() >= due
                if full:
                    due = time.monotonic() + self._interval
                if full or time.monotonic() >= seen:
                    seen = time.monotonic() + SEEN_SECONDS
                    self._guarded("reaper", self._seen)
                # Whatever it is, a database that is away or a thread too many: next time.
                self._guarded("reaper", functools.partial(self._start_all, full=full))
                listener.wait(min(STOP_LOOK, max(0.0, due - time.monotonic())))
        for thread in list(self._working.values()):
            thread.join(STOP_LOOK)

    def _start_all(self, *, full: bool) -> None:
        for name, work in self._jobs(full=full):
            self._start(name, work, full=full)

    def _jobs(self, *, full: bool) -> list[tuple[str, Work]]:
        """What there is to do; on a ring only what cannot wait."""
        jobs: list[tuple[str, Work]] = []
        if full:
            # First of all, so that what was lost is counted before anything is launched.
            jobs += [
                (f"provider {name}", functools.partial(self._sweep, name))
                for name in self._plane.providers_in_use()
            ]
        jobs += [
            (details.pool.name, functools.partial(self._keep, details.pool.id, full=full))
            for details in self._plane.list(archived=True)
        ]
        return jobs

    def _start(self, name: str, work: Work, *, full: bool) -> None:
        with self._lock:
            if name in self._working and self._working[name].is_alive():
                # A ring never takes the place of a tick: only that recycles.
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
        """One pool's failure is told, and stays its own."""
        try:
            work()
        except pool_errors.PoolNotFoundError:
            pass  # deleted meanwhile
        except Exception as error:
            told = error.what if isinstance(error, errors.OvernightError) else repr(error)
            if self.failures.get(name) != told:
                self._tell(name, told)
            self.failures[name] = told
        else:
            self.failures.pop(name, None)

    def _keep(self, pool_id: str, *, full: bool) -> None:
        """Decide the size, recycle, replenish; each happens whatever became of the one before."""
        with contextlib.ExitStack() as steps:
            steps.callback(self._plane.replenish, pool_id)
            steps.callback(self._plane.recycle if full else self._plane.end_due, pool_id)
            self._plane.follow(pool_id)

    def _sweep(self, provider: str) -> None:
        # Told as an event already, where it is the provider's fault.
        with contextlib.suppress(pools.ProviderError):
            self._plane.sweep(provider)

    def _seen(self) -> None:
        """Written down, so that others can tell whether a reaper runs; old events of no pool go."""
        now = self._plane.context.clock()
        with self._plane.context.database.write("reaper seen") as connection:
            records.set_setting(connection, SEEN, str(now))
            known = sa.select(schema.pools.c.id)
            connection.execute(
                sa.delete(schema.events).where(
                    schema.events.c.at_us < now - KEEP_EVENTS_US,
                    schema.events.c.pool_id.not_in(known),
                )
            )

    def _tell(self, name: str, why: str) -> None:
        with contextlib.suppress(Exception):
            plane = self._plane
            with plane.context.database.write("tick failed") as connection:
                pool = None
                with contextlib.suppress(pool_errors.PoolNotFoundError):
                    pool = records.find_pool(connection, name)
                records.add_event(
                    connection, "tick_failed", plane.context.clock(), pool=pool,
                    reason="tick_failed", detail=f"{name}: {why}",
                )  # fmt: skip
