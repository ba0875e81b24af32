"""A pool simulated claim by claim, to verify every formula of `miss_rates`.

`play` is literal: a pool with ready and warming hosts, a tick, and events in order of time, without theory.
"""

from __future__ import annotations

import collections
import dataclasses
import heapq
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from overnight.pools import simulation

if TYPE_CHECKING:
    from overnight.pools import bursts


@dataclasses.dataclass(frozen=True)
class Played:
    """The result of a simulated pool."""

    claims: int
    missed: int
    waited_s: float
    ready_s: float  # host-seconds ready and unclaimed
    warming_s: float

    @property
    def miss(self) -> float:
        """The share of claims that found no ready host."""
        return self.missed / self.claims if self.claims else 0.0


def claims(
    burst: bursts.Burst, claims_per_s: float, count: int, random: np.random.Generator
) -> npt.NDArray[np.float64]:
    """Return the times of at least that many claims, in seconds; those of a burst are equal."""
    groups = math.ceil(count / burst.mean)
    when = np.cumsum(random.exponential(burst.mean / claims_per_s, groups))
    return np.repeat(when, simulation.draw_sizes(burst, groups, random))


def play(
    times: Sequence[float],
    size: int | Callable[[float, Sequence[float], int], int],
    *,
    warm_up_s: float | Callable[[], float],
    interval_s: float,
    waiting: bool = False,
    woken: bool = False,
    until_s: float | None = None,
) -> Played:
    """Simulate a pool: a claim takes the oldest ready host, gives up or waits; a tick fills it up.

    `size` may be a rule, called at every tick with the time, the claims so far and the present size. `woken`
    fills up at every claim too; `waiting` lets callers queue and counts them in the deficit.
    """
    rule = size if callable(size) else None
    target = 0 if callable(size) else size
    pool = _Pool(warm_up_s if callable(warm_up_s) else lambda: float(warm_up_s))
    pool.ready.extend([0.0] * target)
    missed, tick, number = 0, 0.0, 0
    end = until_s if until_s is not None else (times[-1] if len(times) else 0.0)
    while True:
        arrival = times[number] if number < len(times) else math.inf
        birth = pool.warming[0] if pool.warming else math.inf
        now = min(arrival, birth, tick)
        if now > end:
            break
        pool.pass_time(now)
        if now == birth:  # first: a host that becomes ready at this instant serves it
            heapq.heappop(pool.warming)
            pool.arrive(now)
        elif now == tick:
            if rule is not None:
                target = rule(now, times[:number], target)
            pool.fill(target, now)
            tick += interval_s
        else:
            number += 1
            if pool.ready and not pool.queue:
                pool.ready.popleft()
            else:
                missed += 1
                if waiting:
                    pool.queue.append(now)
            if woken:
                pool.fill(target, now)
    pool.pass_time(end)
    return Played(number, missed, pool.waited_s, pool.ready_s, pool.warming_s)


class _Pool:
    """The hosts of one pool, and its waiting callers."""

    def __init__(self, warm_up: Callable[[], float]) -> None:
        self.warm_up = warm_up
        self.ready: collections.deque[float] = collections.deque()
        self.warming: list[float] = []
        self.queue: collections.deque[float] = collections.deque()
        self.now = self.waited_s = self.ready_s = self.warming_s = 0.0

    def pass_time(self, now: float) -> None:
        self.ready_s += (now - self.now) * len(self.ready)
        self.warming_s += (now - self.now) * len(self.warming)
        self.now = now

    def arrive(self, now: float) -> None:
        if self.queue:
            self.waited_s += now - self.queue.popleft()
        else:
            self.ready.append(now)

    def fill(self, target: int, now: float) -> None:
        have = len(self.ready) + len(self.warming) - len(self.queue)
        for _ in range(target - have):
            heapq.heappush(self.warming, now + self.warm_up())
        for _ in range(min(have - target, len(self.ready))):
            self.ready.popleft()
