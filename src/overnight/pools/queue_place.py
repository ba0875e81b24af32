"""A place in the queue: kept as long as its holder says that it is still there."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

import sqlalchemy as sa

from overnight.pools import pool_errors
from overnight.pools.sql import schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from overnight.pools import context

__all__ = ["QueuePlace"]


class QueuePlace:
    """One waiter's; who is not heard for `stale_seconds` is taken to have left."""

    def __init__(self, control: context.Context, waiter: str, stale_seconds: float) -> None:
        self._control = control
        self._waiter = waiter
        self.every = stale_seconds / 3
        self._said = time.monotonic()

    def keep(self) -> None:
        """Say it where it is time to."""
        if time.monotonic() - self._said >= self.every:
            self._say()

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Said by another thread, while a launch takes as long as it likes."""
        over = threading.Event()

        def speak() -> None:
            while not over.wait(self.every):
                with contextlib.suppress(pool_errors.PoolError):  # the database is away: next time
                    self._say()

        speaking = threading.Thread(target=speak, name=f"place of {self._waiter}", daemon=True)
        speaking.start()
        try:
            yield
        finally:
            over.set()
            speaking.join()

    def _say(self) -> None:
        self._said = time.monotonic()
        waiters = schema.waiters
        with self._control.database.write("still waiting") as connection:
            connection.execute(
                sa.update(waiters)
                .where(waiters.c.id == self._waiter)
                .values(seen_us=self._control.clock())
            )
