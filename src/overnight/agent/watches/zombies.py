"""Find dying (zombie) memory cgroups: removed but not freed, until a reboot clears them."""

from __future__ import annotations

import collections
import dataclasses
from typing import TYPE_CHECKING

from overnight.agent import watches
from overnight.model.severity import Severity

if TYPE_CHECKING:
    from overnight import sources
    from overnight.model import clock
    from overnight.model.event import Value


@dataclasses.dataclass(frozen=True)
class ZombieLimits:
    """When dying cgroups become an event; slow growth counts once it lasted for `hours`."""

    warning: int = 1_000
    ratio: float = 10.0
    critical: int = 10_000
    growth_per_hour: float = 50.0
    hours: float = 6.0
    fast_growth: int = 500
    fast_minutes: float = 10.0
    read_seconds: float = 0.1


@dataclasses.dataclass(frozen=True)
class _Growth:
    hours: float
    count: int

    @property
    def per_hour(self) -> float:
        return self.count / self.hours


class ZombieGrowth:
    """Rows of `memory-cgroups`: tracked, in_use, dying, and microseconds of a root stat read."""

    name = "zombie-growth"
    needs = ("memory-cgroups",)

    def __init__(self, limits: ZombieLimits | None = None) -> None:
        self._limits = limits or ZombieLimits()
        self._dying: collections.deque[tuple[int, int]] = collections.deque(maxlen=1000)

    def check(self, _signal: str, now: clock.Clock, rows: sources.Rows) -> watches.Sightings:
        row = rows.get("")
        if row is None:
            return
        tracked, in_use, dying, *rest = (int(value) for value in row)
        limits = self._limits
        keep_ns = round(3600e9 * limits.hours)
        self._dying.append((now.monotonic_ns, dying))
        while self._dying[0][0] < now.monotonic_ns - keep_ns:
            self._dying.popleft()
        ratio = tracked / max(1, in_use)
        growth = self._growth(now.monotonic_ns, keep_ns)
        recent = self._growth(now.monotonic_ns, round(60e9 * limits.fast_minutes))
        fields: dict[str, Value] = {"tracked": tracked, "in_use": in_use, "dying": dying}
        fields["ratio"] = round(ratio, 1)
        if recent is not None:
            fields["growth_per_hour"] = round(recent.per_hour, 1)
        slow_read = bool(rest) and rest[0] >= limits.read_seconds * 1e6
        if slow_read:
            fields["stat_read_ms"] = round(rest[0] / 1000, 1)
        critical = dying > limits.critical or slow_read
        if critical or (dying > limits.warning and ratio > limits.ratio):
            # A level, not an instant: it stays one event until it has been below for a while.
            yield watches.Sighting(
                "memory.zombie_cgroups", "", now,
                f"the kernel tracks {tracked} memory cgroups and {in_use} are in use"
                f" ({ratio:.0f} to 1): {dying} are dying",
                Severity.CRITICAL if critical else Severity.WARNING,
                fold_seconds=900.0, fields=fields,
            )  # fmt: skip
        rising = ""
        lasting = growth is not None and growth.hours >= 0.99 * limits.hours
        if growth and lasting and growth.per_hour > limits.growth_per_hour:
            rising = (
                f"dying memory cgroups grew by {growth.per_hour:.0f} an hour"
                f" for {growth.hours:.1f} h"
            )
        elif recent and recent.count >= limits.fast_growth:
            rising = (
                f"{recent.count} more memory cgroups are dying than {60 * recent.hours:.0f} min ago,"
                f" {dying} in all"
            )
        if rising:
            yield watches.Sighting(
                "memory.zombie_growth", "", now, rising, fold_seconds=900.0, fields=fields
            )

    def _growth(self, now_ns: int, span_ns: int) -> _Growth | None:
        """Return the growth within the span; None before two readings."""
        inside = [sample for sample in self._dying if sample[0] >= now_ns - span_ns]
        if len(inside) < 2:
            return None
        return _Growth((inside[-1][0] - inside[0][0]) / 3600e9, inside[-1][1] - inside[0][1])


WATCHES = (ZombieGrowth,)
