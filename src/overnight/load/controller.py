"""Hold a process at a share of one core: a PI controller on its CPU time, period by period.

An open loop is not constant: with a target of 60 % it gave 37 % (measured), because sleeps end late and
interrupts take time. The controller sees what a period really used and what is owed since the start.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from overnight import errors

PERIOD = 0.1
# Gains for the last period's error and for the sum of all errors. For a plant that lags one period and has a
# gain near 1, these settle in about ten periods without oscillating.
KP, KI = 0.3, 0.2
# Cap on the debt, in periods: a stall must not be followed by a second of full load.
MAX_OWED = 2.0


def check_duty(duty: float) -> float:
    if not 0 < duty <= 1:
        raise errors.UsageError(
            f"--duty must be above 0 and at most 100% (got {100 * duty:g}%)",
            why="it is the share of one core that each process uses",
            todo="write it like --duty 60% or --duty 0.6",
        )
    return duty


def amounts_due(rate: float, period: float) -> Iterator[float]:
    """Yield once a period what is due since the start; what a stall of more than a second missed is dropped."""
    begin, due = time.monotonic(), 0.0
    while True:
        missed = (time.monotonic() - begin) * rate - due
        if missed > rate:
            begin += missed / rate
            continue
        due += missed
        yield due
        time.sleep(period)


class Controller:
    """Pure: takes the CPU seconds a period used, returns the CPU budget of the next one."""

    def __init__(self, duty: float, period: float = PERIOD, *, may_rest: bool = False) -> None:
        self.duty = duty if may_rest else check_duty(duty)
        self.period = period
        self._owed = 0.0

    def next(self, used: float, lasted: float, duty: float | None = None) -> float:
        """Return the CPU time for the next period, given the last one's CPU time and length; `duty` is the new share."""
        error = self.duty * lasted - used
        self.duty = self.duty if duty is None else duty
        most = MAX_OWED * self.period
        self._owed = min(max(self._owed + error, -most), most)
        wanted = self.duty * self.period + KP * error + KI * self._owed
        return min(max(wanted, 0.0), self.period)


class Pacer:
    """Sleeps once the CPU budget of a period is used; `phase`, 0 to 1, staggers the periods of workers.

    `follow` returns the duty of the period that begins at a time; then `duty` is only the first one, and both may be 0.
    `used` may count another resource than CPU time.
    """

    def __init__(
        self,
        duty: float,
        period: float = PERIOD,
        *,
        phase: float = 0.0,
        follow: Callable[[float], float] | None = None,
        wall: Callable[[], float] = time.monotonic,
        used: Callable[[], float] = time.process_time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._controller = Controller(duty, period, may_rest=follow is not None)
        self._follow = follow
        self._wall, self._used, self._sleep = wall, used, sleep
        sleep((phase * period - wall()) % period)
        self._begin, self._before = wall(), used()
        self._end = self._begin + period
        self._budget = duty * period

    def rest(self) -> None:
        """Sleep if the budget is used. Call it often: work longer than the budget cannot be interrupted."""
        if self._controller.duty >= 1 and self._follow is None:
            return
        now = self._wall()
        if now < self._end:
            if self._used() - self._before < self._budget:
                return
            self._sleep(self._end - now)
            now = self._wall()
        used = self._used()
        period = self._controller.period
        # Periods stay in step with the first one, so that staggered workers stay staggered.
        end = self._end + period * max(1, int((now - self._end) / period) + 1)
        following = None if self._follow is None else self._follow(end - period / 2)
        self._budget = self._controller.next(used - self._before, now - self._begin, following)
        self._begin, self._before, self._end = now, used, end
