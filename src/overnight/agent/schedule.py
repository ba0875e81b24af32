"""When each signal is looked at next. Pure: seconds in, names out."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

__all__ = ["Schedule"]

# What is not there may come (an interface, a machine): try again, but not each second.
RETRY_SECONDS = 60.0


class Schedule:
    """Looks at fixed instants since the start, so that a second late does not make the next late.

    Slow signals are spread over their interval: all of them in one second would be a burst.
    """

    def __init__(self, every: Mapping[str, float], start: float) -> None:
        self._every = dict(every)
        self._start = start
        self._heap: list[tuple[float, int, str]] = []
        self.skipped = 0
        for number, (name, seconds) in enumerate(self._every.items()):
            first = start if seconds <= 1 else start + (number % max(1, round(seconds))) * 1.0
            # The first look of a slow signal comes early: a short recording has one, too.
            heapq.heappush(self._heap, (min(first, start + 2.0), number, name))

    @property
    def next(self) -> float:
        """When the next look is due."""
        return self._heap[0][0] if self._heap else float("inf")

    def due(self, now: float) -> Iterable[str]:
        """What is due now; each comes again at its next instant."""
        while self._heap and self._heap[0][0] <= now:
            when, number, name = heapq.heappop(self._heap)
            following = self._following(name, number, when, now)
            heapq.heappush(self._heap, (following, number, name))
            yield name

    def _following(self, name: str, number: int, when: float, now: float) -> float:
        every = self._every[name]
        first = self._start if every <= 1 else self._start + number % max(1, round(every))
        steps = max(0, int((now - first) / every)) + 1
        following = first + steps * every
        if following <= now:
            following += every
        missed = round((following - when) / every) - 1
        if every <= 1:
            self.skipped += max(0, missed)
        return following

    def put_off(self, name: str, until: float) -> None:
        """Look at it no sooner than that."""
        self._heap = [
            (max(when, until) if which == name else when, number, which)
            for when, number, which in self._heap
        ]
        heapq.heapify(self._heap)
