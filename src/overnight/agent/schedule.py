"""When each signal is polled next. Pure: seconds in, names out."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping

# A missing interface or machine may appear later: retry, but not each second.
RETRY_SECONDS = 60.0
OWN_RETRY_SECONDS = 1.0  # after an error of this process, which says nothing about the interface


class Schedule:
    """Polls at fixed instants since the start, so one late poll does not delay the next.

    Slow signals are spread over their interval, to avoid a burst in one second.
    """

    def __init__(self, every: Mapping[str, float], start: float) -> None:
        self._every = dict(every)
        self._first = {
            name: start if seconds <= 1 else start + number % max(1, round(seconds))
            for number, (name, seconds) in enumerate(every.items())
        }
        # The first poll of a slow signal comes early, so that a short recording has one.
        self._heap = [
            (min(first, start + 2.0), number, name)
            for number, (name, first) in enumerate(self._first.items())
        ]
        heapq.heapify(self._heap)

    @property
    def next(self) -> float:
        return self._heap[0][0] if self._heap else float("inf")

    def due(self, now: float) -> Iterable[str]:
        """Yield what is due now, and schedule each for its next instant."""
        while self._heap and self._heap[0][0] <= now:
            _, number, name = self._heap[0]
            every, first = self._every[name], self._first[name]
            following = first + (max(0, int((now - first) / every)) + 1) * every
            if following <= now:  # by rounding
                following += every
            heapq.heapreplace(self._heap, (following, number, name))
            yield name

    def put_off(self, name: str, until: float) -> None:
        """Poll a signal no sooner than that."""
        self._move(name, lambda when: max(when, until))

    def retry(self, name: str, at: float) -> None:
        """Poll a signal at that time, then at its own instants again."""
        self._move(name, lambda when: min(when, at))

    def _move(self, name: str, move: Callable[[float], float]) -> None:
        self._heap = [
            (move(when) if which == name else when, number, which)
            for when, number, which in self._heap
        ]
        heapq.heapify(self._heap)
