"""How much counters rose between two readings."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from overnight import sources
    from overnight.model import clock

# After a longer pause (host suspended, agent stopped) a rate would be an average over the pause.
MAX_PAUSE_SECONDS = 5.0


class Counters:
    """Remembers the last reading of one signal; a counter that went back counts as new."""

    def __init__(self, max_pause: float = MAX_PAUSE_SECONDS) -> None:
        self._max_pause = max_pause
        self._rows: sources.Rows = {}
        self._then_ns = 0

    def since(
        self, now: clock.Clock, rows: sources.Rows
    ) -> tuple[float, dict[str, tuple[int, ...]]]:
        """Return seconds since the last reading and how much each row rose; nothing after a pause."""
        before, self._rows = self._rows, rows
        seconds = (now.monotonic_ns - self._then_ns) / 1e9
        self._then_ns = now.monotonic_ns
        if not before or not 0 < seconds <= self._max_pause:
            return 0.0, {}
        rose = {}
        for key, row in rows.items():
            old = before.get(key)
            if old is not None and len(old) == len(row):
                change = tuple(map(int.__sub__, row, old))
                if min(change, default=0) >= 0:
                    rose[key] = change
        return seconds, rose
