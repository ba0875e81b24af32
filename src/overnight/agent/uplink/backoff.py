"""When to try again; jitter keeps the hosts of a fleet apart."""

from __future__ import annotations

import os
import time

MAX_DELAY_SECONDS = 300.0


class Backoff:
    """Each failure doubles the delay; `problem` is the last one."""

    def __init__(self) -> None:
        self.failures = 0
        self.problem = ""
        self._until = 0.0

    def is_over(self) -> bool:
        return time.monotonic() >= self._until

    def succeed(self) -> None:
        self.failures, self.problem = 0, ""

    def fail(self, problem: str, retry_after: float) -> None:
        self.failures += 1
        self.problem = problem
        delay = min(MAX_DELAY_SECONDS, 2.0 ** min(self.failures, 10)) * (0.5 + random_share() / 2)
        self._until = time.monotonic() + max(delay, retry_after * (1 + random_share() / 10))


def random_share() -> float:
    """Return a number from 0 to 1; the module `random` is large."""
    return int.from_bytes(os.urandom(4), "little") / 2**32
