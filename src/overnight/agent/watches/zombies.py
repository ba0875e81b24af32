"""Find dying (zombie) memory cgroups: removed but not freed, until a reboot clears them."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

from overnight.agent import watches
from overnight.model.severity import Severity
from overnight.model.times import SECOND_NS

if TYPE_CHECKING:
    from overnight import sources
    from overnight.model import clock
    from overnight.model.event import Value

# Dying cgroups, and cgroups that the kernel tracks for each one in use.
WARNING, RATIO, CRITICAL = 1_000, 10.0, 10_000
# Slow growth counts once it lasted for hours, fast growth within minutes.
GROWTH_PER_HOUR, HOURS = 50.0, 6
FAST_GROWTH, FAST_HOURS = 500, 1 / 6
SLOW_READ_US = 100_000
HOUR_NS = 3600 * SECOND_NS


class ZombieGrowth:
    """Rows of `memory-cgroups`: tracked, in_use, dying, and microseconds of a root stat read."""

    name = "zombie-growth"
    finds = ("memory.zombie_cgroups", "memory.zombie_growth")
    needs = ("memory-cgroups",)

    def __init__(self) -> None:
        self._dying: collections.deque[tuple[int, int]] = collections.deque(maxlen=1000)

    def check(self, _signal: str, now: clock.Clock, rows: sources.Rows) -> watches.Sightings:
        row = rows.get("")
        if row is None:
            return
        tracked, in_use, dying, *rest = (int(value) for value in row)
        self._dying.append((now.monotonic_ns, dying))
        while self._dying[0][0] < now.monotonic_ns - HOURS * HOUR_NS:
            self._dying.popleft()
        ratio = tracked / max(1, in_use)
        fields: dict[str, Value] = {"tracked": tracked, "in_use": in_use, "dying": dying}
        fields["ratio"] = round(ratio, 1)
        recent_hours, recent = self._growth(now, FAST_HOURS)
        if recent_hours:
            fields["growth_per_hour"] = round(recent / recent_hours, 1)
        slow_read = bool(rest) and rest[0] >= SLOW_READ_US
        if slow_read:
            fields["stat_read_ms"] = round(rest[0] / 1000, 1)
        critical = dying > CRITICAL or slow_read
        if critical or (dying > WARNING and ratio > RATIO):
            # A level, not an instant: it stays one event until it has been below for a while.
            yield watches.Sighting(
                "memory.zombie_cgroups", "", now,
                f"the kernel tracks {tracked} memory cgroups and {in_use} are in use"
                f" ({ratio:.0f} to 1): {dying} are dying",
                Severity.CRITICAL if critical else Severity.WARNING,
                fold_seconds=900.0, fields=fields,
            )  # fmt: skip
        rising = ""
        hours, growth = self._growth(now, HOURS)
        if hours >= 0.99 * HOURS and growth > GROWTH_PER_HOUR * hours:
            rising = f"dying memory cgroups grew by {growth / hours:.0f} an hour for {hours:.1f} h"
        elif recent >= FAST_GROWTH:
            rising = (
                f"{recent} more memory cgroups are dying than {60 * recent_hours:.0f} min ago,"
                f" {dying} in all"
            )
        if rising:
            yield watches.Sighting(
                "memory.zombie_growth", "", now, rising, fold_seconds=900.0, fields=fields
            )

    def _growth(self, now: clock.Clock, hours: float) -> tuple[float, int]:
        """Return the hours between the first and the last reading within the span, and the growth."""
        since_ns = now.monotonic_ns - round(hours * HOUR_NS)
        inside = [sample for sample in self._dying if sample[0] >= since_ns]
        (first_ns, first), (last_ns, last) = inside[0], inside[-1]
        return (last_ns - first_ns) / HOUR_NS, last - first


WATCHES = (ZombieGrowth,)
