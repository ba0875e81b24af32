"""A thread of a server that drives what its database has, such as investigations."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from overnight import errors

REMEMBERED = 200  # lines of the log that are not repeated


class Driven(Protocol):
    @property
    def attempts(self) -> int: ...


T = TypeVar("T", bound=Driven)
Progress = Callable[[str], None]


class Loop(Generic[T]):
    """Calls `tick` every `interval`, and every `soon` while something of it `is_due`; several servers do so at once."""

    def __init__(
        self,
        what: str,
        tick: Callable[[Progress], Sequence[T]],
        is_due: Callable[[T], bool],
        *,
        interval: float,
        soon: float,
        progress: Progress,
    ) -> None:
        self._what, self._tick, self._is_due = what, tick, is_due
        self._interval, self._soon, self._progress = interval, min(soon, interval), progress
        self._wake = threading.Event()
        self._logged: list[str] = []

    def wake(self) -> None:
        """Tick now: a request changed something, or the server stops."""
        self._wake.set()

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self._wake.clear()
            soon = self.tick()
            if not stop.is_set():
                self._wake.wait(self._soon if soon else self._interval)

    def tick(self) -> bool:
        """Drive what is due; return whether more is to be done soon. Nothing is logged twice until all succeeds."""
        lines: list[str] = []
        driven: Sequence[T] = ()
        try:
            driven = self._tick(lines.append)
        except errors.OvernightError as error:
            lines.append(f"{self._what} are not driven: {error.what}: {error.why}")
        except Exception as error:  # tried again at the next tick
            lines.append(f"{self._what} are not driven: {error!r}")
        for line in dict.fromkeys(lines):
            if line not in self._logged:
                self._progress(line)
        succeeds = driven and not any(each.attempts for each in driven)
        self._logged = lines if succeeds else [*self._logged, *lines][-REMEMBERED:]
        return any(map(self._is_due, driven))
