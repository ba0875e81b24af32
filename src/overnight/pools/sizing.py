"""How many hosts a warm pool needs for a given miss rate, compared with the runbook's rule.

The rule, `ceil(C * (W + R))`, is the mean number of claims in the longest time that a host is away. Half
of the time there are more. docs/sizing.md explains it for operators.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import math
from collections.abc import Callable

import numpy as np

from overnight import errors
from overnight.model.pool import Callers
from overnight.model.times import MONTH_HOURS
from overnight.pools import bursts, miss_rates

LARGEST_POOL = 100_000
MAX_POINTS = 60


@dataclasses.dataclass(frozen=True)
class Demand:
    """The demand on a pool, how fast it refills, and how often it may be empty."""

    claims_per_minute: float
    warm_up_s: float
    interval_s: float = 60.0
    miss: float = 0.01
    burst: bursts.Burst = bursts.SINGLE
    callers: Callers = Callers.GIVE_UP
    cost_per_host_hour: float | None = None

    def __post_init__(self) -> None:
        check_range(self.claims_per_minute, 0, 1e6, "--claims-per-minute", "--claims-per-minute 4")
        check_range(self.warm_up_s, 0.001, 7 * 86400, "--warmup in seconds", "--warmup 90s")
        example = "--interval 60s; a pool woken by claims is shown as well"
        check_range(self.interval_s, 0.001, 86400, "--interval in seconds", example)
        if not 1e-9 <= self.miss <= 1 - 1e-9:
            raise errors.UsageError(
                f"--miss must be between 0 and 1 (got {self.miss:g})",
                why="it is the share of claims that may miss, and every pool misses some",
                todo="write it like 1% or 0.01",
            )
        if self.cost_per_host_hour is not None:
            check_range(self.cost_per_host_hour, 0, 1e6, "--cost", "--cost 0.40")
        if self.mean_demand * self.burst.dispersion > LARGEST_POOL:
            raise errors.UsageError(
                f"{self.mean_demand:,.0f} claims arrive while one host warms up, in bursts of "
                f"{self.burst.dispersion:,.0f}",
                why=f"that needs more than {LARGEST_POOL:,} warm hosts, too many for a pool",
                todo="check the units of the rate (a minute) and the warm-up, or start hosts on demand",
            )

    @property
    def traffic(self) -> bursts.Traffic:
        rate = self.claims_per_minute / 60
        return bursts.Traffic(self.burst, rate, self.warm_up_s, self.interval_s)

    @property
    def mean_demand(self) -> float:
        """Mean number of claims in the longest time until a claimed host is replaced."""
        return self.traffic.claims_per_s * self.traffic.refill_s

    @property
    def runbook(self) -> int:
        """The runbook's rule: the mean demand, rounded up."""
        # 4/min, 90 s, 60 s must give 10, not 11 because of the last bit of a float.
        return math.ceil(round(self.mean_demand, 9))


def check_range(value: float, least: float, most: float, name: str, example: str) -> None:
    if not least <= value <= most:  # also refuses NaN
        raise errors.UsageError(
            f"{name} must be from {least:g} to {most:g} (got {value:g})",
            why="outside of this range the model is not valid",
            todo=f"use {example}",
        )


@dataclasses.dataclass(frozen=True)
class Point:
    """One size: how often a claim misses, and how many hosts are idle."""

    size: int
    give_up: miss_rates.Rate
    wait: float
    event_driven: miss_rates.Rate
    idle: float
    idle_event_driven: float

    def as_json(self, cost: float | None) -> dict[str, object]:
        return {
            "size": self.size,
            "give_up": self.give_up.miss,
            "give_up_error": self.give_up.error,
            "give_up_method": self.give_up.method,
            "wait": self.wait,
            "event_driven": self.event_driven.miss,
            "event_driven_error": self.event_driven.error,
            "idle": self.idle,
            "idle_event_driven": self.idle_event_driven,
            "idle_cost_per_hour": None if cost is None else self.idle * cost,
        }


@dataclasses.dataclass(frozen=True)
class Sizing:
    """Three sizes, and the curve around them."""

    demand: Demand
    recommended: int
    recommended_event_driven: int
    curve: tuple[Point, ...]

    def at(self, wanted: int) -> Point:
        """Return the point of a size; the `named` ones are always present."""
        return next(point for point in self.curve if point.size == wanted)

    @property
    def named(self) -> tuple[int, int, int]:
        """The sizes: runbook, with the tick, woken by claims."""
        return self.demand.runbook, self.recommended, self.recommended_event_driven

    def as_json(self, measured: dict[str, object] | None = None) -> dict[str, object]:
        """Return the document that schemas/pool-size-1.json describes."""
        demand = self.demand
        runbook = self.at(demand.runbook)
        cost = demand.cost_per_host_hour
        best = self.at(self.recommended)
        return {
            "schema": "overnight.pool-size/1",
            "claims_per_minute": demand.claims_per_minute,
            "warmup_s": demand.warm_up_s,
            "interval_s": demand.interval_s,
            "miss": demand.miss,
            "callers": str(demand.callers),
            "burst": {**dataclasses.asdict(demand.burst), "dispersion": demand.burst.dispersion},
            "runbook": demand.runbook,
            "recommended": self.recommended,
            "recommended_event_driven": self.recommended_event_driven,
            "miss_at_runbook": runbook.give_up.miss,
            "miss_at_runbook_waiting": runbook.wait,
            "miss_at_recommended": best.give_up.miss,
            "idle_at_recommended": best.idle,
            "warming": demand.traffic.claims_per_s * demand.warm_up_s,
            "cost_per_host_hour": cost,
            "idle_cost_per_month": None if cost is None else best.idle * cost * MONTH_HOURS,
            "curve": [point.as_json(cost) for point in self.curve],
            "measured": measured,
        }


def recommend(demand: Demand) -> tuple[int, int]:
    """Return the smallest sizes within the miss rate: with the tick, and woken by claims."""
    if not demand.claims_per_minute:
        return 0, 0
    ticked = size_for_waiting(demand, demand.interval_s)
    awake = size_for_waiting(demand, 0)
    if demand.callers is Callers.WAIT:
        return ticked, awake

    def smallest(sizes: range, rates: Callable[..., list[miss_rates.Rate]]) -> int:
        return sizes.start + bisect.bisect_left(
            sizes, True, key=lambda size: rates([size], demand.traffic)[0].at_most <= demand.miss
        )

    # Callers that give up need no more than callers that wait, whose exact sizes are the upper bounds.
    awake = smallest(range(awake), miss_rates.woken)
    return smallest(range(awake, ticked), miss_rates.give_up), awake


@functools.lru_cache(maxsize=4096)  # a policy repeats the same question every tick
def size_for_waiting(demand: Demand, interval_s: float) -> int:
    """Return the smallest size if callers wait: exact and fast, and enough for callers that give up."""
    if not demand.claims_per_minute:
        return 0
    # Begin with the mean and twelve standard deviations.
    deviation = math.sqrt(demand.mean_demand * demand.burst.dispersion)
    largest = math.ceil(demand.mean_demand + 12 * deviation + 10 * demand.burst.dispersion) + 10
    traffic = dataclasses.replace(demand.traffic, interval_s=interval_s)
    while True:
        rates = miss_rates.wait(largest, traffic)
        if rates[-1] <= demand.miss:
            return int(np.argmax(rates <= demand.miss))
        largest *= 2


def size(demand: Demand) -> Sizing:
    """Return the recommended sizes, and the curve around them and the runbook's."""
    if not demand.claims_per_minute:
        nothing = miss_rates.Rate(0.0, 0.0, "formula")
        return Sizing(demand, 0, 0, (Point(0, nothing, 0.0, nothing, 0.0, 0.0),))
    ticked, awake = recommend(demand)
    sizes = _sizes(demand, ticked, awake)
    traffic = demand.traffic
    waits, idles = miss_rates.wait(sizes[-1], traffic), miss_rates.idle(sizes[-1], traffic)
    gives, awakes = miss_rates.give_up(sizes, traffic), miss_rates.woken(sizes, traffic)
    points = [
        Point(
            number, give, float(waits[number]), woken, float(idles[number]),
            max(0.0, number - traffic.claims_per_s * traffic.warm_up_s * (1 - woken.miss)),
        )
        for number, give, woken in zip(sizes, gives, awakes, strict=True)
    ]  # fmt: skip
    return Sizing(demand, ticked, awake, tuple(points))


def _sizes(demand: Demand, ticked: int, awake: int) -> list[int]:
    """Choose the sizes of the curve, from below the smallest named one to above the largest."""
    named = {demand.runbook, ticked, awake}
    lowest, highest = min(named), max(named)
    margin = max(3, (highest - lowest) // 2)
    first, last = max(0, lowest - margin), highest + margin
    step = max(1, math.ceil((last - first) / (MAX_POINTS - 3)))
    return sorted({*range(first, last + 1, step), *named})
