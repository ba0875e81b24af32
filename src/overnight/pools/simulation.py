"""A simulation of many nights at once, for the miss rate that has no formula in `miss_rates`.

tests/support/poolplay.py plays a pool event by event, without theory; tests compare the two on the same claims.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from overnight.pools import bursts

RUNS = 400
MAX_DRAWN = 4_000_000
# The pool starts full; after this many refill times that no longer matters.
FORGOTTEN = 6


# One-sided 97.5 %.
SURE = 1.96


@dataclasses.dataclass(frozen=True)
class Rate:
    """A miss rate, its standard error (0 where exact), and its method."""

    miss: float
    error: float
    method: str  # formula, chain, simulation, or bound (an upper one)

    @property
    def at_most(self) -> float:
        """The upper confidence limit."""
        return self.miss + SURE * self.error


def draw_sizes(
    burst: bursts.Burst, count: int | tuple[int, int], random: np.random.Generator
) -> npt.NDArray[np.int64]:
    if burst.mean == 1:
        return np.ones(count, dtype=np.int64)
    edges = np.cumsum(burst.probabilities)
    return np.searchsorted(edges / edges[-1], random.random(count), side="right")


def give_up(
    sizes: Sequence[int], traffic: bursts.Traffic, *, count: int = 1_000_000, seed: int = 1
) -> list[Rate]:
    """Return the miss rates of several sizes on the same claims if callers give up.

    The replacement of a claim at time t comes at r(t), known at once: a warm-up after the next tick. Nobody
    is overtaken, so the refills by t are the claims served up to the last one with r <= t, and a burst gets
    what is left of S + refilled - served. On the same claims more hosts never miss more, and neither does a
    pool that is woken.
    """
    random = np.random.default_rng(seed)
    burst, interval_s = traffic.burst, traffic.interval_s
    bursts_per_s = traffic.claims_per_s / burst.mean
    early = math.ceil(FORGOTTEN * bursts_per_s * traffic.refill_s) + 10
    runs = max(20, min(RUNS, MAX_DRAWN // early))
    steps = early + math.ceil(count / burst.mean / runs)
    times = np.cumsum(random.exponential(1 / bursts_per_s, (steps, runs)), axis=0)
    asked = draw_sizes(burst, (steps, runs), random).astype(np.int32)
    back = times + traffic.warm_up_s
    if interval_s:
        back = (np.floor(times / interval_s) + 1) * interval_s + traffic.warm_up_s
    refilled = np.stack(
        [np.searchsorted(back[:, run], times[:, run], side="right") for run in range(runs)], axis=1
    )
    total = asked[early:].sum(axis=0)
    estimates = []
    columns = np.arange(runs)
    for size in sizes:
        served = np.zeros((steps + 1, runs), dtype=np.int32)
        for step in range(steps):
            room = size + served[refilled[step], columns] - served[step]
            served[step + 1] = served[step] + np.minimum(asked[step], room)
        missed = total - (served[-1] - served[early])
        rate = missed.sum() / total.sum()
        spread = float(np.std(missed - rate * total, ddof=1)) / float(total.mean())
        estimates.append(Rate(float(rate), spread / math.sqrt(runs), "simulation"))
    return estimates
