"""How many hosts a warm pool needs for a wanted miss rate, against what the runbook's rule says.

The rule, `ceil(C * (W + R))`, is the mean number of claims in the longest time that a host is away. Half
of the time there are more. docs/sizing.md tells it to an operator.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
from collections.abc import Callable

import numpy as np

from overnight import errors
from overnight.pools import bursts, miss_rates

__all__ = ["Callers", "Demand", "Point", "Sizing", "recommend", "size", "size_for_waiting"]

LARGEST_POOL = 100_000
MONTH_H = 730.0
MOST_POINTS = 60


class Callers(enum.StrEnum):
    """What a caller does who finds no ready host."""

    GIVE_UP = "give-up"
    WAIT = "wait"


@dataclasses.dataclass(frozen=True)
class Demand:
    """What a pool is asked for, how fast it refills, and how rarely it may be empty."""

    claims_per_minute: float
    warm_up_s: float
    interval_s: float = 60.0
    miss: float = 0.01
    burst: bursts.Burst = bursts.SINGLE
    callers: Callers = Callers.GIVE_UP
    cost_per_host_hour: float | None = None

    def __post_init__(self) -> None:
        _within(self.claims_per_minute, 0, 1e6, "claims a minute", "the mean rate, like 4")
        _within(self.warm_up_s, 0.001, 7 * 86400, "seconds of warm-up", "a duration, like 90s")
        _within(
            self.interval_s,
            0.001,
            86400,
            "seconds between ticks",
            "a duration, like 60s; a pool woken by claims is shown beside it",
        )
        if not 1e-9 <= self.miss <= 1 - 1e-9:
            raise errors.UsageError(
                f"{self.miss:g} is no share of claims that may miss",
                why="it lies between 0 and 1, both left out: no pool of finite size never misses",
                todo="write it like 1% or 0.01",
            )
        if self.cost_per_host_hour is not None:
            _within(self.cost_per_host_hour, 0, 1e6, "for a host-hour", "the price, like 0.40")
        if self.mean_demand * self.burst.dispersion > LARGEST_POOL:
            raise errors.UsageError(
                f"{self.mean_demand:,.0f} claims come while one host warms up, {self.burst.dispersion:,.0f} "
                "to the burst",
                why=f"that needs more than {LARGEST_POOL:,} warm hosts, which is not a pool's work",
                todo="check the units of the rate (a minute) and the warm-up, or start hosts on demand",
            )

    @property
    def claims_per_s(self) -> float:
        """The rate that the formulas take."""
        return self.claims_per_minute / 60

    @property
    def mean_demand(self) -> float:
        """Claims in the longest time that a claimed host is not replaced, on average."""
        return self.claims_per_s * (self.warm_up_s + self.interval_s)

    @property
    def runbook(self) -> int:
        """The rule of the runbook: the mean demand, rounded up."""
        # 4/min, 90 s, 60 s must be 10, not 11 for the last bit of a float.
        return math.ceil(round(self.mean_demand, 9))


def _within(value: float, least: float, most: float, what: str, todo: str) -> None:
    if not least <= value <= most:  # a NaN is not
        raise errors.UsageError(
            f"{value:g} {what}",
            why=f"it has to be a number from {least:g} to {most:g}",
            todo=f"give {todo}",
        )


@dataclasses.dataclass(frozen=True)
class Point:
    """One size: how often a claim misses, and how many hosts stand ready for nothing."""

    size: int
    give_up: miss_rates.Rate
    wait: float
    event_driven: miss_rates.Rate
    idle: float
    idle_event_driven: float

    def as_json(self, cost: float | None) -> dict[str, object]:
        """A row of the curve."""
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
    """The answer: three sizes and the curve they stand on."""

    demand: Demand
    recommended: int
    recommended_event_driven: int
    curve: tuple[Point, ...]

    def at(self, wanted: int) -> Point:
        """The point of a size; those that have a name are always there."""
        return next(point for point in self.curve if point.size == wanted)

    @property
    def named(self) -> tuple[int, int, int]:
        """The sizes with a name: runbook, with the tick, woken by claims."""
        return self.demand.runbook, self.recommended, self.recommended_event_driven

    def as_json(self, measured: dict[str, object] | None = None) -> dict[str, object]:
        """The stable form; schemas/pool-size-1.json describes it."""
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
            "burst": {
                "mean": demand.burst.mean,
                "spread": demand.burst.spread,
                "dispersion": demand.burst.dispersion,
            },
            "runbook": demand.runbook,
            "recommended": self.recommended,
            "recommended_event_driven": self.recommended_event_driven,
            "miss_at_runbook": runbook.give_up.miss,
            "miss_at_runbook_waiting": runbook.wait,
            "miss_at_recommended": best.give_up.miss,
            "idle_at_recommended": best.idle,
            "warming": demand.claims_per_s * demand.warm_up_s,
            "cost_per_host_hour": cost,
            "idle_cost_per_month": None if cost is None else best.idle * cost * MONTH_H,
            "curve": [point.as_json(cost) for point in self.curve],
            "measured": measured,
        }


def recommend(demand: Demand) -> tuple[int, int]:
    """The smallest sizes that keep the wanted miss rate: with the tick, and woken by claims."""
    if not demand.claims_per_minute:
        return 0, 0
    ticked = size_for_waiting(demand, demand.interval_s)
    awake = size_for_waiting(demand, 0)
    if demand.callers is Callers.WAIT:
        return ticked, awake

    def with_tick(wanted: int) -> bool:
        return _one_give_up(demand, wanted).at_most <= demand.miss

    def woken(wanted: int) -> bool:
        return _one_woken(demand, wanted).at_most <= demand.miss

    # Who gives up asks for no more than who waits, so the exact sizes for waiting are the upper ends.
    awake = _smallest(0, awake, woken)
    return _smallest(awake, ticked, with_tick), awake


@functools.lru_cache(maxsize=4096)  # a policy asks the same every tick
def size_for_waiting(demand: Demand, interval_s: float) -> int:
    """The smallest size where callers wait: exact and quick, and never less than who gives up needs."""
    if not demand.claims_per_minute:
        return 0
    largest = _guess(demand)
    while True:
        rates = miss_rates.wait(
            largest, demand.burst, demand.claims_per_s, demand.warm_up_s, interval_s
        )
        if rates[-1] <= demand.miss:
            return int(np.argmax(rates <= demand.miss))
        largest *= 2


def _guess(demand: Demand) -> int:
    """Where the answer surely is not beyond: mean and twelve deviations."""
    deviation = math.sqrt(demand.mean_demand * demand.burst.dispersion)
    return math.ceil(demand.mean_demand + 12 * deviation + 10 * demand.burst.dispersion) + 10


def _smallest(least: int, most: int, enough: Callable[[int], bool]) -> int:
    """By halving: the smallest size that is enough; `most` is known to be."""
    while least < most:
        middle = (least + most) // 2
        if enough(middle):
            most = middle
        else:
            least = middle + 1
    return most


def _one_give_up(demand: Demand, wanted: int) -> miss_rates.Rate:
    return miss_rates.give_up(
        [wanted], demand.burst, demand.claims_per_s, demand.warm_up_s, demand.interval_s
    )[0]


def _one_woken(demand: Demand, wanted: int) -> miss_rates.Rate:
    return miss_rates.woken([wanted], demand.burst, demand.claims_per_s, demand.warm_up_s)[0]


def size(demand: Demand) -> Sizing:
    """The recommended sizes, and the curve around them and the runbook's."""
    if not demand.claims_per_minute:
        nothing = miss_rates.Rate(0.0, 0.0, "formula")
        return Sizing(demand, 0, 0, (Point(0, nothing, 0.0, nothing, 0.0, 0.0),))
    ticked, awake = recommend(demand)
    sizes = _sizes(demand, ticked, awake)
    rate, burst, warm_up = demand.claims_per_s, demand.burst, demand.warm_up_s
    waits = miss_rates.wait(sizes[-1], burst, rate, warm_up, demand.interval_s)
    idles = miss_rates.idle(sizes[-1], burst, rate, warm_up, demand.interval_s)
    gives = miss_rates.give_up(sizes, burst, rate, warm_up, demand.interval_s)
    awakes = miss_rates.woken(sizes, burst, rate, warm_up)
    points = [
        Point(
            number, give, float(waits[number]), woken, float(idles[number]),
            max(0.0, number - rate * warm_up * (1 - woken.miss)),
        )
        for number, give, woken in zip(sizes, gives, awakes, strict=True)
    ]  # fmt: skip
    return Sizing(demand, ticked, awake, tuple(points))


def _sizes(demand: Demand, ticked: int, awake: int) -> list[int]:
    """From well below the runbook's to where a tenth of the wanted misses are left."""
    named = {demand.runbook, ticked, awake}
    lowest, highest = min(named), max(named)
    margin = max(3, (highest - lowest) // 2)
    first, last = max(0, lowest - margin), highest + margin
    step = max(1, math.ceil((last - first) / (MOST_POINTS - 3)))
    return sorted({*range(first, last + 1, step), *named})
