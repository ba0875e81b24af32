"""A caller's place in the queue, kept for as long as the caller reports that it still waits."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

from overnight.pools import pool_errors
from overnight.pools.sql import waiter_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from overnight.pools import context


class QueuePlace:
    """The place of one caller; a caller not seen for `stale_seconds` is taken to have left."""

    def __init__(self, control: context.Context, waiter: str, stale_seconds: float) -> None:
        self._control = control
        self._waiter = waiter
        self.every = stale_seconds / 3
        self._reported = time.monotonic()

    def keep(self) -> None:
        """Report that the caller still waits, if that is due."""
        if time.monotonic() - self._reported >= self.every:
            self._report()

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Report from another thread while the block runs: a launch may take long."""
        over = threading.Event()

        def report_until_over() -> None:
            while not over.wait(self.every):
                with contextlib.suppress(pool_errors.PoolError):  # database away: next time
                    self._report()

        reporting = threading.Thread(
            target=report_until_over, name=f"place of {self._waiter}", daemon=True
        )
        reporting.start()
        try:
            yield
        finally:
            over.set()
            reporting.join()

    def _report(self) -> None:
        self._reported = time.monotonic()
        with self._control.database.write("still waiting") as connection:
            waiter_rows.touch(connection, self._waiter, self._control.clock())
