"""A pool simulated claim by claim, to verify every formula in `miss_rates`.

`play` is literal: a pool with ready and warming hosts, a tick, and events in order of time, without theory.
`give_up` simulates many nights at once in numpy, for the model without a formula; a test compares the two on
the same claims.
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

if TYPE_CHECKING:
    from overnight.pools import bursts

__all__ = ["Estimate", "Played", "claims", "give_up", "play"]

Numbers = npt.NDArray[np.float64]
RUNS = 400
MOST_DRAWN = 4_000_000
# The pool starts full; after this many refill times that no longer matters.
FORGOTTEN = 6


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


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A miss rate from simulation, with its standard error."""

    miss: float
    error: float


def claims(
    burst: bursts.Burst, claims_per_s: float, count: int, random: np.random.Generator
) -> Numbers:
    """Return the times of at least that many claims, in seconds; those of a burst are equal."""
    groups = math.ceil(count / burst.mean)
    when = np.cumsum(random.exponential(burst.mean / claims_per_s, groups))
    return np.repeat(when, _sizes(burst, groups, random))


def _sizes(
    burst: bursts.Burst, count: int | tuple[int, int], random: np.random.Generator
) -> npt.NDArray[np.int64]:
    if burst.mean == 1:
        return np.ones(count, dtype=np.int64)
    edges = np.cumsum(burst.law)
    return np.searchsorted(edges / edges[-1], random.random(count), side="right")


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


def give_up(
    sizes: Sequence[int],
    burst: bursts.Burst,
    claims_per_s: float,
    warm_up_s: float,
    interval_s: float,
    *,
    count: int = 1_000_000,
    seed: int = 1,
) -> list[Estimate]:
    """Return the miss rates of several sizes on the same claims if callers give up; interval 0 is woken.

    The replacement of a claim at time t comes at r(t), known at once: a warm-up after the next tick. Nobody
    is overtaken, so the refills by t are the claims served up to the last one with r <= t, and a burst gets
    what is left of S + refilled - served. On the same claims more hosts never
    miss more, and neither does a pool that is woken.
    """
    random = np.random.default_rng(seed)
    early = math.ceil(FORGOTTEN * claims_per_s / burst.mean * (warm_up_s + interval_s)) + 10
    runs = max(20, min(RUNS, MOST_DRAWN // early))
    steps = early + math.ceil(count / burst.mean / runs)
    times = np.cumsum(random.exponential(burst.mean / claims_per_s, (steps, runs)), axis=0)
    asked = _sizes(burst, (steps, runs), random).astype(np.int32)
    back = times + warm_up_s
    if interval_s:
        back = (np.floor(times / interval_s) + 1) * interval_s + warm_up_s
    refilled = np.stack(
        [np.searchsorted(back[:, run], times[:, run], side="right") for run in range(runs)], axis=1
    )
    total = asked[early:].sum(axis=0)
    found = []
    columns = np.arange(runs)
    for size in sizes:
        served = np.zeros((steps + 1, runs), dtype=np.int32)
        for step in range(steps):
            room = size + served[refilled[step], columns] - served[step]
            served[step + 1] = served[step] + np.minimum(asked[step], room)
        missed = total - (served[-1] - served[early])
        rate = missed.sum() / total.sum()
        spread = float(np.std(missed - rate * total, ddof=1)) / float(total.mean())
        found.append(Estimate(float(rate), spread / math.sqrt(runs)))
    return found
