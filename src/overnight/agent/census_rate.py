"""When memory cgroups are counted ahead of time: a count of a minute ago misses all that were removed since."""

from __future__ import annotations

from typing import TYPE_CHECKING

from overnight.agent import schedule
from overnight.sources import cgroupchurn

if TYPE_CHECKING:
    from overnight import sources

BIRTHS, COUNTS = "cgroup-births", ("memory-cgroups", "memory-cgroup-parents")
REMOVED = 20  # since the last count: fewer change nothing
MIN_SECONDS = 2.0
MAX_SHARE = 0.002  # of a core: a count takes 1.3 ms with 250 directories, 5.7 ms with 1,050


class CensusRate:
    """Pure: readings, times and costs go in, in seconds."""

    def __init__(self) -> None:
        self._removed: dict[str, int] = {}  # by parent
        self._since = dict.fromkeys(COUNTS, 0)
        self._not_before = dict.fromkeys(COUNTS, 0.0)

    def note(self, name: str, rows: sources.Rows | None, now: float, cost: float) -> None:
        """Take note of the reading of a signal that cost that much CPU time; None: it failed."""
        if name == BIRTHS and rows is not None:
            removed = {key: row[cgroupchurn.DIED] for key, row in rows.items()}
            # A parent that was forgotten while it was quiet begins at zero again.
            rise = sum(max(0, count - self._removed.get(key, 0)) for key, count in removed.items())
            self._removed = removed
            self._since = {each: count + rise for each, count in self._since.items()}
        elif name in COUNTS:
            pause = schedule.RETRY_SECONDS if rows is None else cost / MAX_SHARE
            self._since[name] = 0
            self._not_before[name] = now + max(MIN_SECONDS, pause)

    def due(self) -> dict[str, float]:
        """Return the signals to read ahead of time, and when."""
        return {name: self._not_before[name] for name in COUNTS if self._since[name] >= REMOVED}
