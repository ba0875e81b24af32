"""The size that a pool should have now: pure, from the clock, the schedule and the observed claims.

Up at once, down slowly, with two measures: a pool grows to the size for the observed rate, and shrinks to the
size for the upper confidence limit of that rate, at its highest during the cooldown. So after a rise it never
falls before the cooldown is over, seldom rises just after a fall, and does not flap. A small fall is skipped.
"""

from __future__ import annotations

import dataclasses
import datetime
import math

from overnight import errors
from overnight.model import times
from overnight.pools import bursts, history, policies, schedules, sizing

# A pool shrinks only to the size for the upper end of the 80 % interval of its rate.
UNSURE = 0.2


@dataclasses.dataclass(frozen=True)
class Policy:
    """How a pool's size follows its demand; refused if it contradicts itself."""

    max_size: int
    warm_up_s: float
    min_size: int = 0
    miss: float = 0.01
    window_s: float = 1200.0
    cooldown_s: float = 900.0
    zero_after_s: float | None = None
    openings: tuple[schedules.Opening, ...] = ()
    burst: bursts.Burst = bursts.SINGLE

    def __post_init__(self) -> None:
        self.demand(0)  # its checks apply here too
        if not 0 <= self.min_size <= self.max_size <= sizing.LARGEST_POOL:
            raise _refuse(
                f"invalid autoscale bounds: min {self.min_size}, max {self.max_size}",
                f"min must be at most max, both from 0 to {sizing.LARGEST_POOL:,}",
            )
        for name, seconds, days in (
            ("window", self.window_s, 7),
            ("cooldown", self.cooldown_s, 7),
            ("zero-after", self.zero_after_s, 30),
        ):
            if seconds is not None and not 1 <= seconds <= days * 86400:
                raise _refuse(
                    f"--{name} must be from 1s to {days}d (got {seconds:g}s)",
                    f"the autoscaler works with times from one second to {days} days",
                )
        if self.zero_after_s is not None and self.min_size:
            raise _refuse(
                f"--zero-after conflicts with a minimum of {self.min_size}",
                "a pool with a minimum never goes to zero",
            )
        for opening in self.openings:
            if opening.size > self.max_size:
                raise _refuse(
                    f"schedule {opening.text!r} is above the maximum",
                    f"the maximum is {self.max_size}",
                )

    def demand(self, claims_per_minute: float) -> sizing.Demand:
        return sizing.Demand(claims_per_minute, self.warm_up_s, miss=self.miss, burst=self.burst)

    @property
    def lead_s(self) -> float:
        """How long before an opening hosts must be started to be ready in time."""
        return self.warm_up_s + sizing.Demand.interval_s

    def spans(self, now_s: float, since_s: float) -> tuple[float, float]:
        """Return how far back claims are counted: for the rate, and for a jump."""
        # Not less than hosts take to come up: one claim in a pool's first second is not sixty a minute.
        window = min(self.window_s, max(self.lead_s, now_s - since_s))
        return window, min(window, self.lead_s)


def _refuse(what: str, why: str) -> errors.UsageError:
    return errors.UsageError(
        what, why=why, todo="correct the option: `overnight pool autoscale --help`"
    )


@dataclasses.dataclass(frozen=True)
class Seen:
    """The observed demand as counts; missed claims and waiting callers count too."""

    now_s: float  # since 1970
    size: int
    since_s: float  # when the observation began
    claims: int  # in the longer of `Policy.spans`
    lately: int  # in the shorter
    last_s: float | None = None  # the last claim ever


@dataclasses.dataclass(frozen=True)
class _Wish:
    grow: int
    keep: int
    why: str
    cause: str


def decide(policy: Policy, seen: Seen, memory: policies.Memory = ()) -> policies.Decision:
    wish, wanted = _wish(policy, seen)
    begin = seen.now_s - policy.cooldown_s
    kept = [(when, size) for when, size in memory if begin < when <= seen.now_s]
    # A later size that is as large makes an earlier one redundant: the memory stays short.
    kept = [(when, size) for when, size in kept if size > wish.keep]
    kept.append((seen.now_s, wish.keep))
    # Bounds always apply, whatever was wanted before.
    lowest = min(kept[0][1], policy.max_size)
    size, reason = _step(policy, seen.size, wish, lowest)
    cause = "max" if seen.size > policy.max_size else wish.cause
    return policies.Decision(size, reason, tuple(kept), wanted, cause)


def _step(policy: Policy, size: int, wish: _Wish, lowest: int) -> tuple[int, str]:
    if size > policy.max_size:
        return lowest, f"down to {lowest}: max is {policy.max_size}"
    if size < policy.min_size or wish.grow > size:
        return wish.grow, f"up to {wish.grow}: {wish.why}"
    if wish.keep >= size:
        unsure = f", and may want {wish.keep}" if wish.grow < size else ""
        return size, f"stays at {size}: {wish.why}{unsure}"
    cooldown = times.format_duration(policy.cooldown_s)
    if lowest >= size:
        return size, f"stays at {size}: {lowest} may have been needed within {cooldown}"
    if lowest and size - lowest < max(2, math.ceil(size / 10)):
        return size, f"stays at {size}: {lowest} would do, too near to change"
    why = wish.why
    if lowest > wish.keep:
        why = f"the most that may have been needed within {cooldown}"
    return lowest, f"down to {lowest}: {why}"


def _wish(policy: Policy, seen: Seen) -> tuple[_Wish, int]:
    """Return the largest of schedule, demand and minimum, with its reason; and its size without max."""
    wishes = [_Wish(policy.min_size, policy.min_size, f"min is {policy.min_size}", "min")]
    for opening in policy.openings:
        if _instant(opening, seen.now_s):
            why = f"schedule {opening.text!r}"
        elif _instant(opening, seen.now_s + policy.lead_s):
            why = f"schedule {opening.text!r} begins soon"
        else:
            continue
        wishes.append(_Wish(opening.size, opening.size, why, "schedule"))
    quiet = seen.now_s - (seen.since_s if seen.last_s is None else seen.last_s)
    if policy.zero_after_s is not None and quiet >= policy.zero_after_s:
        wishes.append(_Wish(0, 0, f"no claim for {times.format_duration(quiet)}", "quiet"))
    else:
        wishes.append(_for_demand(policy, seen))
    # Among equals the last: demand explains more than a minimum.
    first = max(reversed(wishes), key=lambda wish: wish.grow)
    keep = min(max(wish.keep for wish in wishes), policy.max_size)
    why = first.why
    if first.grow > policy.max_size:
        why = f"{why}, cut to max {policy.max_size}"
    return _Wish(min(first.grow, policy.max_size), keep, why, first.cause), first.grow


def _instant(opening: schedules.Opening, seconds: float) -> bool:
    return opening.holds(datetime.datetime.fromtimestamp(seconds, datetime.UTC))


def _for_demand(policy: Policy, seen: Seen) -> _Wish:
    """Return the size for the rate of the window, or for a significant jump."""
    window, short = policy.spans(seen.now_s, seen.since_s)
    count = seen.claims
    dispersion = policy.burst.dispersion
    rate, why = count / window, _asked(count, f"in {times.format_duration(window)}")
    highest = history.rate_between(count, window, dispersion, UNSURE)[1]
    # A jump shows first in the last minutes. Their mean would react to every random cluster, so the lower
    # end of its interval decides: a rate that is certain.
    sure = history.rate_between(seen.lately, short, dispersion)[0]
    if sure > rate:
        rate, why = sure, _asked(seen.lately, f"in the last {times.format_duration(short)}")
    grow = _size(policy, rate)
    keep = max(grow, _size(policy, highest))
    return _Wish(grow, keep, f"{why} {grow} for {100 * policy.miss:g} % misses", "demand")


def _asked(claims: int, when: str) -> str:
    return f"1 claim {when} wants" if claims == 1 else f"{claims} claims {when} want"


def _size(policy: Policy, claims_per_s: float) -> int:
    """Return the size for a rate; at least one, so that the first claim does not miss."""
    most = sizing.LARGEST_POOL / (policy.lead_s * policy.burst.dispersion)
    demand = policy.demand(60 * min(claims_per_s, most))
    return max(1, sizing.size_for_waiting(demand, 0))  # a claim wakes the replenishment
