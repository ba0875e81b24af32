"""Advice about a size: minimum and maximum, other tools than a pool, and the savings of a faster boot."""

from __future__ import annotations

import dataclasses
import enum
import math

from overnight.model import times
from overnight.pools import sizing

DAY_SECONDS = 86400.0
# The runbook's limit; beyond it claims contend, and all wait for a warm-up anyway.
LARGEST_BURST = 50
# Host-hours that an hour of waiting is worth, unless a price is given.
WORTH = 100.0
RARELY = 3.09  # standard deviations: 1 in 1,000 of a normal distribution


@dataclasses.dataclass(frozen=True)
class Usage:
    """How a pool is used, besides its rate of claims; None is not known."""

    hold_s: float | None = None  # mean time for which a claim holds its host
    baseline_per_minute: float | None = None  # claims in quiet hours
    together: int = 0  # the most claims that came at the same moment
    wait_cost_per_hour: float | None = None
    prebaked_s: float | None = None  # None: half of the warm-up

    def __post_init__(self) -> None:
        for option, value, example in (
            ("--hold in seconds", self.hold_s, "--hold 20m"),
            ("--prebaked in seconds", self.prebaked_s, "--prebaked 20s"),
            ("--baseline", self.baseline_per_minute, "--baseline 0.1"),
            ("--wait-cost", self.wait_cost_per_hour, "--wait-cost 60"),
        ):
            if value is not None:
                sizing.check_range(value, 0, 1e9, option, example)


class WrongTool(enum.StrEnum):
    PERSISTENT = "persistent"
    TOO_RARE = "too_rare"
    TOO_MANY = "too_many_at_once"


@dataclasses.dataclass(frozen=True)
class Misfit:
    """Why a pool is the wrong tool, and what to use instead."""

    kind: WrongTool
    what: str
    instead: str


@dataclasses.dataclass(frozen=True)
class Prebaked:
    """The same pool with a shorter warm-up; a pool costs as much as all its hosts, idle or warming."""

    warm_up_s: float
    recommended: int
    recommended_event_driven: int
    hosts_saved: int  # woken
    host_hours_per_month: float
    cost_per_month: float | None


@dataclasses.dataclass(frozen=True)
class Advice:
    """Sizes for `overnight pool create`, and whether to create one at all."""

    usage: Usage
    target_size: int
    min_size: int
    max_size: int
    claimed_at_once: int
    max_cost_per_hour: float | None
    idle_per_saved_hour: float | None  # idle host-hours for an hour that callers do not wait
    misfits: tuple[Misfit, ...] = ()
    prebaked: Prebaked | None = None

    def as_json(self) -> dict[str, object]:
        proposed = ("target_size", "min_size", "max_size", "claimed_at_once", "max_cost_per_hour")
        return {
            "proposed": {name: getattr(self, name) for name in proposed},
            "hold_s": self.usage.hold_s,
            "baseline_per_minute": self.usage.baseline_per_minute,
            "idle_per_saved_hour": self.idle_per_saved_hour,
            "wrong_tool": [dataclasses.asdict(misfit) for misfit in self.misfits],
            "prebaked": self.prebaked and dataclasses.asdict(self.prebaked),
        }


def advise(size: sizing.Sizing, usage: Usage = Usage()) -> Advice:  # noqa: B008  frozen
    """Propose sizes for a pool that claims wake, as overnight does."""
    demand, target = size.demand, size.recommended_event_driven
    price = demand.cost_per_host_hour
    claimed = _claimed_at_once(demand, usage)
    most = target + claimed
    saved = demand.traffic.claims_per_s * demand.warm_up_s  # hours of waiting an hour
    idle = size.at(target).idle_event_driven
    ratio = idle / saved if saved else None
    return Advice(
        usage, target, min(target, _baseline(demand, usage)), most, claimed,
        None if price is None else most * price,
        ratio, tuple(_find_misfits(size, usage, idle, ratio)), _prebake(size, usage),
    )  # fmt: skip


def _baseline(demand: sizing.Demand, usage: Usage) -> int:
    """Return the floor: the size for quiet hours, and at least one."""
    if not usage.baseline_per_minute:
        return 1
    quiet = min(usage.baseline_per_minute, demand.claims_per_minute)
    _, awake = sizing.recommend(dataclasses.replace(demand, claims_per_minute=quiet))
    return max(1, awake)


def _claimed_at_once(demand: sizing.Demand, usage: Usage) -> int:
    """Return how many members are claimed at the same time, exceeded once in 1,000 moments.

    Without a known hold a claim is taken to hold its host until that is replaced.
    """
    hold_s = demand.traffic.refill_s if usage.hold_s is None else usage.hold_s
    mean, spread = demand.traffic.claims_per_s * hold_s, demand.burst.dispersion
    if not mean:
        return 0
    # Cornish and Fisher: counts are skewed, and a normal distribution would be too small for few of them.
    rare = mean + RARELY * math.sqrt(mean * spread) + (RARELY**2 - 1) / 6 * spread
    return max(math.ceil(rare), usage.together, math.ceil(demand.burst.mean))


def _find_misfits(
    size: sizing.Sizing, usage: Usage, idle: float, ratio: float | None
) -> list[Misfit]:
    demand, misfits = size.demand, []
    length = times.format_duration
    direct = "create the pool with --target 0, and launch on demand: `overnight pool acquire POOL --cold`"
    if usage.hold_s is not None and usage.hold_s >= DAY_SECONDS:
        what = f"claims hold a host for {length(usage.hold_s)}: persistent work, and a pool saves only {length(demand.warm_up_s)} of warm-up"
        misfits.append(Misfit(WrongTool.PERSISTENT, what, direct))
    price, worth = demand.cost_per_host_hour, WORTH
    if price and usage.wait_cost_per_hour is not None:
        worth = usage.wait_cost_per_hour / price
    if ratio is not None and ratio > worth:
        cost = f" ({idle * price * times.MONTH_HOURS:,.2f})" if price else ""
        what = (
            f"claims are too rare: {idle * times.MONTH_HOURS:,.0f} idle host-hours{cost} a month save callers "
            f"{idle / ratio * times.MONTH_HOURS:,.1f} h of waiting: {ratio:,.0f} host-hours for each hour, which is worth {worth:,.0f}"
        )
        instead = f"{direct}; or keep hosts only while there is demand: `overnight pool autoscale POOL --zero-after 30m`"
        misfits.append(Misfit(WrongTool.TOO_RARE, what, instead))
    together = max(math.ceil(demand.burst.mean), usage.together)
    if together > LARGEST_BURST:
        what = f"{together} claims come at once, more than {LARGEST_BURST}"
        instead = (
            f"order them together: `overnight cluster create --count {together} --template NAME`"
        )
        misfits.append(Misfit(WrongTool.TOO_MANY, what, instead))
    return misfits


def _prebake(size: sizing.Sizing, usage: Usage) -> Prebaked | None:
    """Return the savings of a shorter warm-up; None if nothing is claimed."""
    demand = size.demand
    if not demand.claims_per_minute:
        return None
    shorter = demand.warm_up_s / 2 if usage.prebaked_s is None else usage.prebaked_s
    ticked, awake = sizing.recommend(dataclasses.replace(demand, warm_up_s=max(0.001, shorter)))
    saved = size.recommended_event_driven - awake
    hours = saved * times.MONTH_HOURS
    price = demand.cost_per_host_hour
    return Prebaked(shorter, ticked, awake, saved, hours, None if price is None else hours * price)
