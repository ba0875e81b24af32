"""When each signal is polled next. Pure: seconds in, names out."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

# A missing interface or machine may appear later: retry, but not each second.
RETRY_SECONDS = 60.0


class Schedule:
    """Polls at fixed instants since the start, so one late poll does not delay the next.

    Slow signals are spread over their interval, to avoid a burst in one second.
    """

    def __init__(self, every: Mapping[str, float], start: float) -> None:
        self._every = dict(every)
        self._start = start
        self._heap: list[tuple[float, int, str]] = []
        self.skipped = 0
        for number, (name, seconds) in enumerate(self._every.items()):
            first = start if seconds <= 1 else start + (number % max(1, round(seconds))) * 1.0
            # The first poll of a slow signal comes early, so that a short recording has one.
            heapq.heappush(self._heap, (min(first, start + 2.0), number, name))

    @property
    def next(self) -> float:
        return self._heap[0][0] if self._heap else float("inf")

    def due(self, now: float) -> Iterable[str]:
        """Yield what is due now, and schedule each for its next instant."""
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
        """Poll a signal no sooner than that."""
        self._heap = [
            (max(when, until) if which == name else when, number, which)
            for when, number, which in self._heap
        ]
        heapq.heapify(self._heap)
