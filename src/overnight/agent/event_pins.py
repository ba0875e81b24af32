"""Pin the raw data around every event that matters, in the ring and in the profile spool.

The number of pins is limited, so that a host with an event a minute does not fill its disk: the oldest of
the least severe go first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from overnight.model.pins import Pin, Pins
from overnight.model.severity import Severity
from overnight.model.times import SECOND_US

if TYPE_CHECKING:
    from overnight.model.event import Event

BEFORE_US = 60 * SECOND_US
AFTER_US = 30 * SECOND_US
EXTEND_US = 20 * SECOND_US
MAX_PINS = 300


class EventPins:
    """Pins windows in each of `folders`: the spool is there only once something is profiled."""

    def __init__(self, folders: Callable[[], Iterable[Pins]], max_pins: int = MAX_PINS) -> None:
        self._folders = folders
        self._max = max_pins
        self._kept: dict[str, tuple[int, int]] = {}
        self._ends: dict[str, int] = {}

    def event(self, event: Event) -> None:
        """Pin the window of an event that is at least a warning; extend it when the event goes on."""
        severity = Severity.of(event.severity)
        if severity is Severity.INFO:
            return
        begin_us = event.time_us - BEFORE_US
        end_us = max(event.until_us, event.time_us) + AFTER_US
        # A pin is synced to disk, so not each time that a lasting event is emitted again.
        if end_us < self._ends.get(event.id, 0) + EXTEND_US:
            return
        why = f"{event.kind}: {event.text}"[:200]
        with contextlib.suppress(OSError):  # tried again when the event is emitted again
            for folder in self._folders():
                folder.pin(Pin(event.id, begin_us * 1000, end_us * 1000, why))
            self._ends[event.id] = end_us
        self._kept[event.id] = (severity.rank, event.time_us)
        while len(self._kept) > self._max:
            least = min(self._kept, key=lambda pin_id: self._kept[pin_id])
            del self._kept[least]
            self._ends.pop(least, None)
            with contextlib.suppress(OSError):
                for folder in self._folders():
                    folder.unpin(least)
