"""A cache of valid secrets: agents report too often to ask the database each time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from overnight.database import column_types

MOST = 65_536

Known = TypeVar("Known")


class Recent(Generic[Known]):
    """Valid secrets by their hash. Safe to share between threads."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._known: dict[str, tuple[float, Known]] = {}
        self._lock = threading.Lock()

    def get(self, secret: str, find: Callable[[str], Known | None]) -> Known | None:
        """Return what belongs to a secret; `find` asks the database."""
        key = column_types.hash_secret(secret)
        until, known = self._known.get(key, (0.0, None))
        now = self._clock()
        if now < until:
            return known
        found = find(secret)
        if found is not None:
            with self._lock:
                if len(self._known) >= MOST:
                    self._known.clear()
                self._known[key] = (now + self._seconds, found)
        return found

    def clear(self) -> None:
        with self._lock:
            self._known.clear()
