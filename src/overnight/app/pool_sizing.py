"""Size a pool from given numbers, or from the demand that its own history shows."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING

from overnight import errors
from overnight.model.pool import Callers
from overnight.model.times import SECOND_US

if TYPE_CHECKING:
    from overnight.app import pools
    from overnight.model.pool import Past, Pool
    from overnight.pools import bursts, history, size_advice, sizing

    Advice = size_advice.Advice
    Point = sizing.Point
    Sizing = sizing.Sizing


@dataclasses.dataclass(frozen=True, kw_only=True)
class SizeRequest:
    """Given numbers, and the pool whose history fills in the rest."""

    claims_per_minute: float | None = None
    warm_up_s: float | None = None
    burst: tuple[float, float] | None = None  # mean and spread
    pool: str = ""
    over_s: float = 7 * 86400.0
    interval_s: float = 60.0
    miss: float = 0.01
    callers: Callers = Callers.GIVE_UP
    cost_per_host_hour: float | None = None
    hold_s: float | None = None
    baseline_per_minute: float | None = None
    prebaked_s: float | None = None
    wait_cost_per_hour: float | None = None


@dataclasses.dataclass(frozen=True)
class MeasuredDemand:
    pool: Pool
    past: Past
    measured: history.Measurement
    claims_per_minute: float
    warm_up_s: float
    burst: bursts.Burst
    assumed: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        measured = dataclasses.asdict(self.measured)
        del measured["can_tell_bursts"]
        return {
            "pool": self.pool.name,
            "target_size": self.pool.target_size,
            "begin_us": self.past.begin_us,
            "end_us": self.past.end_us,
            "missed": self.past.missed,
            **measured,
            "assumed": list(self.assumed),
        }


@dataclasses.dataclass(frozen=True)
class SizeResult:
    """The recommended sizes, and the measured demand if a pool was named."""

    sizing: Sizing
    advice: Advice
    measured: MeasuredDemand | None = None

    def as_json(self) -> dict[str, object]:
        measured = self.measured.as_json() if self.measured else None
        return {**self.sizing.as_json(measured), **self.advice.as_json()}


def size_pool(
    where: pools.Pools,
    request: SizeRequest,
    progress: contextlib.AbstractContextManager[object] | None = None,
) -> SizeResult:
    """Size a pool; `progress` is entered while the simulation runs."""
    from overnight.pools import bursts, size_advice
    from overnight.pools import sizing as sizes

    rate, warm_up_s, measured = request.claims_per_minute, request.warm_up_s, None
    burst = bursts.Burst(*request.burst) if request.burst else bursts.SINGLE
    if request.pool:
        measured = measure_demand(where, request)
        rate, warm_up_s, burst = measured.claims_per_minute, measured.warm_up_s, measured.burst
    if rate is None or warm_up_s is None:
        raise errors.UsageError(
            "the demand is not known",
            why="sizing needs claims a minute and the warm-up time: given, or measured from a pool",
            todo="`overnight pool size --pool POOL`, or --claims-per-minute 4 --warmup 90s",
        )
    demand = sizes.Demand(
        rate, warm_up_s, request.interval_s, request.miss, burst, request.callers,
        request.cost_per_host_hour,
    )  # fmt: skip
    if request.wait_cost_per_hour is not None and request.cost_per_host_hour is None:
        raise errors.UsageError(
            "--wait-cost needs --cost",
            why="the price of waiting is compared with that of idle hosts",
            todo=f"add --cost PRICE to --wait-cost {request.wait_cost_per_hour:g}",
        )
    usage = _find_usage(request, measured)
    with progress or contextlib.nullcontext():
        size = sizes.size(demand)
        return SizeResult(size, size_advice.advise(size, usage), measured)


def _find_usage(request: SizeRequest, measured: MeasuredDemand | None) -> size_advice.Usage:
    """Return what was given about the use of a pool, or else measured."""
    from overnight.pools import demand, history, size_advice

    hold, baseline, together = request.hold_s, request.baseline_per_minute, 0
    if measured is not None:
        past = measured.past
        together = demand.most_within(past.asked_us, demand.TOGETHER_US)
        baseline = history.quiet_rate(past) if baseline is None else baseline
        if hold is None and past.ended:
            hold = past.held_us / past.ended / SECOND_US
    return size_advice.Usage(
        hold, baseline, together, request.wait_cost_per_hour, request.prebaked_s
    )


def measure_demand(where: pools.Pools, request: SizeRequest) -> MeasuredDemand:
    """Measure the demand on a pool; given values take precedence.

    The warm-up is the mean, not a high percentile: independent warm-ups average out, as a test simulates.
    Where hosts are slow together, size for the slow day by hand.
    """
    from overnight.pools import bursts, history

    if not 1 <= request.over_s <= 366 * 86400:
        raise errors.UsageError(
            f"--over must be between 1s and 366d (got {request.over_s:g}s)",
            why="the history is read over that time",
            todo="write it like --over 8h",
        )
    past = where.past(request.pool, int(request.over_s))
    pool = where.show(request.pool, recent=1).details.pool
    measured = history.measure(past, interval_s=request.interval_s)
    rate = request.claims_per_minute
    if rate is None:
        rate = _require_rate(pool, measured)
    warm_up = request.warm_up_s
    if warm_up is None:
        if measured.warm_up is None:
            raise errors.CannotError(
                f"the warm-up time of pool {pool.name} is not known",
                why="none of its members has become ready within the retention time",
                todo="use --warmup 90s, or ask again when a member has become ready",
            )
        warm_up = measured.warm_up.mean
    burst = bursts.Burst(*request.burst) if request.burst else history.burst(measured)
    assumed = describe_assumptions(request, measured)
    return MeasuredDemand(pool, past, measured, rate, warm_up, burst, assumed)


def _require_rate(pool: Pool, measured: history.Measurement) -> float:
    from overnight.model import text, times
    from overnight.pools import demand

    if measured.claims >= demand.MIN_CLAIMS:
        return measured.claims_per_minute
    low, high = map(text.rounded, (measured.low, measured.high))
    raise errors.CannotError(
        f"pool {pool.name} has too little history: {measured.claims} claims in "
        f"{times.format_duration(measured.watched_s)}",
        why=f"the rate may be anywhere from {low} to {high} claims a minute; "
        f"at least {demand.MIN_CLAIMS} claims are needed",
        todo="wait for more claims, look further back with --over, or use --claims-per-minute 4",
    )


def describe_assumptions(given: SizeRequest, measured: history.Measurement) -> tuple[str, ...]:
    texts = ["future claims are like the measured ones"]
    if given.claims_per_minute is not None:
        texts[0] = f"{given.claims_per_minute:g} claims a minute (given)"
    if given.warm_up_s is not None:
        texts.append(f"a warm-up of {given.warm_up_s:g} s (given)")
    if given.burst is not None:
        texts.append(f"bursts of {given.burst[0]:g} (given)")
    elif not measured.bursty:
        too_short = "" if measured.can_tell_bursts else " (the history is too short to show bursts)"
        texts.append("claims arrive one by one" + too_short)
    return tuple(texts)
