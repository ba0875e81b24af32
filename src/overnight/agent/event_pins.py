"""Around every event that matters, the raw data is kept: in the ring, and in the profiles' spool.

So many windows at the most: a host that has an event a minute must not fill its disk with pins. The
oldest and least severe go first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from overnight.model.event import Event

__all__ = ["EventPins"]

BEFORE_US = 60_000_000
AFTER_US = 30_000_000
AGAIN_US = 20_000_000
MAX_PINS = 300
WORTH = {"info": 0, "warning": 1, "critical": 2}


class EventPins:
    """`pin` and `unpin` do it; what they do is theirs."""

    def __init__(
        self,
        pin: Callable[[str, int, int, str], None],
        unpin: Callable[[str], object],
        max_pins: int = MAX_PINS,
    ) -> None:
        self._pin = pin
        self._unpin = unpin
        self._max = max_pins
        self._kept: dict[str, tuple[int, int]] = {}
        self._ends: dict[str, int] = {}

    def event(self, told: Event) -> None:
        """Keep the window of an event that is at least a warning; a longer one when it went on."""
        worth = WORTH.get(told.severity, 0)
        if worth < 1:
            return
        begin = told.time_us - BEFORE_US
        end = max(told.until_us, told.time_us) + AFTER_US
        # A pin is synced to disk: not each time that an event which goes on is told again.
        if end < self._ends.get(told.id, 0) + AGAIN_US:
            return
        self._ends[told.id] = end
        self._pin(told.id, begin, end, f"{told.kind}: {told.text}"[:200])
        self._kept[told.id] = (worth, told.time_us)
        while len(self._kept) > self._max:
            least = min(self._kept, key=lambda one: self._kept[one])
            del self._kept[least], self._ends[least]
            self._unpin(least)
