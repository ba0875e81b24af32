"""Keeps a process at a share of one core: a PI controller on its CPU time, period by period.

An open loop is not constant: asked for 60 %, it gave 37 % (measured), for sleeps end late and interrupts
take their part. This one sees what a period really took, and what is owed since the beginning.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from overnight import errors

__all__ = ["PERIOD", "Controller", "Pacer", "check_duty"]

PERIOD = 0.1
# Proportional to the last period's error, and to the sum of all: of a plant that is one period late and has
# a gain near 1, these settle in some ten periods without swinging.
KP, KI = 0.3, 0.2
# What is owed is forgotten beyond this many periods: after a stall nobody wants a second of full load.
MOST_OWED = 2.0


def check_duty(duty: float) -> float:
    """A share of a core, or UsageError."""
    if not 0 < duty <= 1:
        raise errors.UsageError(
            f"--duty {100 * duty:g}% is no share of a core",
            why="a process has more than 0 and at most 100 % of its core",
            todo="write it like 60%, or 0.6",
        )
    return duty


class Controller:
    """Pure: what a period used goes in, the budget of the next comes out, both in seconds of CPU."""

    def __init__(self, duty: float, period: float = PERIOD) -> None:
        self.duty = check_duty(duty)
        self.period = period
        self._owed = 0.0

    def next(self, used: float, lasted: float) -> float:
        """The CPU time of the next period, after one that lasted so long and used so much."""
        error = self.duty * lasted - used
        most = MOST_OWED * self.period
        self._owed = min(max(self._owed + error, -most), most)
        wanted = self.duty * self.period + KP * error + KI * self._owed
        return min(max(wanted, 0.0), self.period)


class Pacer:
    """Between two pieces of work: sleeps to the end of the period once its budget is used.

    `phase` is where in the clock's periods its own begin, from 0 to 1: workers are staggered by it.
    """

    def __init__(
        self,
        duty: float,
        period: float = PERIOD,
        *,
        phase: float = 0.0,
        wall: Callable[[], float] = time.monotonic,
        used: Callable[[], float] = time.process_time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._controller = Controller(duty, period)
        self._wall, self._used, self._sleep = wall, used, sleep
        sleep((phase * period - wall()) % period)
        self._begin, self._before = wall(), used()
        self._end = self._begin + period
        self._budget = duty * period

    def rest(self) -> None:
        """Call it often: a piece of work longer than the budget cannot be cut."""
        if self._controller.duty >= 1:
            return
        now = self._wall()
        if now < self._end:
            if self._used() - self._before < self._budget:
                return
            self._sleep(self._end - now)
            now = self._wall()
        used = self._used()
        self._budget = self._controller.next(used - self._before, now - self._begin)
        self._begin, self._before = now, used
        period = self._controller.period
        # Periods stay in step with the first, so that workers which began apart stay apart.
        self._end += period * max(1, int((now - self._end) / period) + 1)
