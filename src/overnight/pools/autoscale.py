"""What size a pool is to have now: pure, from the clock, the schedule and the claims seen.

Up at once, down slowly, and with two measures: a pool grows to what the claims seen want, and shrinks to
what the largest rate that they allow would want, at its highest during the cooldown. So after a rise it
never falls before the cooldown is over, seldom rises just after a fall, and does not flap. A fall too
small to matter is left.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Sequence

from overnight import errors
from overnight.model import times
from overnight.pools import bursts, measuring, schedules, sizing

__all__ = ["Decision", "Memory", "Policy", "Seen", "decide"]

# A pool shrinks only to what the upper end of the 80 % interval of its rate wants.
UNSURE = 0.2


@dataclasses.dataclass(frozen=True)
class Policy:
    """How a pool's size follows its demand. Refused at the door when it contradicts itself."""

    max_size: int
    warm_up_s: float
    min_size: int = 0
    interval_s: float = 60.0
    woken: bool = True  # a claim wakes the replenishment, else the tick alone
    miss: float = 0.01
    window_s: float = 1200.0
    cooldown_s: float = 900.0
    zero_after_s: float | None = None
    openings: tuple[schedules.Opening, ...] = ()
    burst: bursts.Burst = bursts.SINGLE

    def __post_init__(self) -> None:
        self.demand(0)  # its checks hold for ours
        if not 0 <= self.min_size <= self.max_size <= sizing.LARGEST_POOL:
            raise _refuse(
                f"sizes from {self.min_size} to {self.max_size}",
                f"min is at most max, both from 0 to {sizing.LARGEST_POOL:,}",
            )
        for name, seconds in (("window", self.window_s), ("cooldown", self.cooldown_s)):
            if not 1 <= seconds <= 7 * 86400:
                raise _refuse(f"a {name} of {seconds:g} s", "it lasts from a second to a week")
        if self.zero_after_s is not None:
            if not 1 <= self.zero_after_s <= 30 * 86400:
                raise _refuse(
                    f"down to zero after {self.zero_after_s:g} s", "it is a second to 30 days"
                )
            if self.min_size:
                raise _refuse(
                    f"down to zero with at least {self.min_size} hosts",
                    "the two contradict each other",
                )
        for opening in self.openings:
            if opening.size > self.max_size:
                raise _refuse(
                    f"{opening.size} hosts in {opening.text!r}", f"max is {self.max_size}"
                )

    def demand(self, claims_per_minute: float) -> sizing.Demand:
        """What sizing is asked."""
        return sizing.Demand(
            claims_per_minute, self.warm_up_s, self.interval_s, self.miss, self.burst
        )

    @property
    def lead_s(self) -> float:
        """How long before an opening hosts have to be started, to be ready in time."""
        return self.warm_up_s + self.interval_s


def _refuse(what: str, why: str) -> errors.UsageError:
    return errors.UsageError(what, why=why, todo="correct the pool's autoscale policy")


@dataclasses.dataclass(frozen=True)
class Seen:
    """What is known now. Claims that missed count: they are demand."""

    now_s: float  # since 1970
    size: int
    claims_s: Sequence[float]  # at least those of the window, oldest first
    since_s: float  # when the pool began to be watched


@dataclasses.dataclass(frozen=True)
class Memory:
    """What one decision leaves for the next: the sizes to keep during the cooldown, with their times."""

    wanted: tuple[tuple[float, int], ...] = ()


NOTHING = Memory()


@dataclasses.dataclass(frozen=True)
class Decision:
    """The size from now on, why in words, and what to remember."""

    size: int
    reason: str
    memory: Memory


@dataclasses.dataclass(frozen=True)
class _Wish:
    """A size to grow to, one not to shrink below (never less), and why."""

    grow: int
    keep: int
    why: str


def decide(policy: Policy, seen: Seen, memory: Memory = NOTHING) -> Decision:
    """The size a pool is to have now."""
    wish = _wish(policy, seen)
    begin = seen.now_s - policy.cooldown_s
    kept = [(when, size) for when, size in memory.wanted if begin < when <= seen.now_s]
    # A later size that is as large makes an earlier one idle: memory stays short.
    kept = [(when, size) for when, size in kept if size > wish.keep]
    kept.append((seen.now_s, wish.keep))
    # Bounds are law: they hold whatever was wanted before.
    lowest = min(kept[0][1], policy.max_size)
    size, reason = _step(policy, seen.size, wish, lowest)
    return Decision(size, reason, Memory(tuple(kept)))


def _step(policy: Policy, size: int, wish: _Wish, lowest: int) -> tuple[int, str]:
    if size > policy.max_size:
        return lowest, f"down to {lowest}: max is {policy.max_size}"
    if size < policy.min_size or wish.grow > size:
        return wish.grow, f"up to {wish.grow}: {wish.why}"
    if wish.keep >= size:
        return size, f"stays at {size}: {wish.why}"
    cooldown = times.format_duration(policy.cooldown_s)
    if lowest >= size:
        return size, f"stays at {size}: {lowest} may have been needed within {cooldown}"
    if lowest and size - lowest < max(2, math.ceil(size / 10)):
        return size, f"stays at {size}: {lowest} would do, too near to change"
    why = wish.why
    if lowest > wish.keep:
        why = f"the most that may have been needed within {cooldown}"
    return lowest, f"down to {lowest}: {why}"


def _wish(policy: Policy, seen: Seen) -> _Wish:
    """The largest of: schedule, demand, minimum; with the reason of the one that decides."""
    wishes = [_Wish(policy.min_size, policy.min_size, f"min is {policy.min_size}")]
    for opening in policy.openings:
        if _instant(opening, seen.now_s):
            wishes.append(_Wish(opening.size, opening.size, f"schedule {opening.text!r}"))
        elif _instant(opening, seen.now_s + policy.lead_s):
            why = f"schedule {opening.text!r} begins soon"
            wishes.append(_Wish(opening.size, opening.size, why))
    quiet = seen.now_s - max([seen.since_s, *seen.claims_s[-1:]])
    if policy.zero_after_s is not None and quiet >= policy.zero_after_s:
        wishes.append(_Wish(0, 0, f"no claim for {times.format_duration(quiet)}"))
    else:
        wishes.append(_for_demand(policy, seen))
    # Of equal wishes the last: demand tells more than a minimum.
    first = max(reversed(wishes), key=lambda wish: wish.grow)
    keep = max(wish.keep for wish in wishes)
    if first.grow > policy.max_size:
        return _Wish(policy.max_size, policy.max_size, f"{first.why}, cut to max {policy.max_size}")
    return _Wish(first.grow, min(keep, policy.max_size), first.why)


def _instant(opening: schedules.Opening, seconds: float) -> bool:
    return opening.holds(datetime.datetime.fromtimestamp(seconds, datetime.UTC))


def _for_demand(policy: Policy, seen: Seen) -> _Wish:
    """For the rate of the window, or for a jump that is no chance any more."""
    window = min(policy.window_s, max(1.0, seen.now_s - seen.since_s))
    count = sum(1 for when in seen.claims_s if when > seen.now_s - window)
    dispersion = policy.burst.dispersion
    rate, why = count / window, f"{count} claims in {times.format_duration(window)}"
    highest = measuring.rate_between(count, window, dispersion, UNSURE)[1]
    # A jump shows in the last minutes first. Taking their mean would answer every cluster that chance
    # makes, so the lower end of its interval decides: a rate that is there for sure.
    short = min(window, policy.lead_s)
    lately = sum(1 for when in seen.claims_s if when > seen.now_s - short)
    sure = measuring.rate_between(lately, short, dispersion)[0]
    if sure > rate:
        rate, why = sure, f"{lately} claims in the last {times.format_duration(short)}"
    grow = _size(policy, rate)
    keep = max(grow, _size(policy, highest))
    return _Wish(grow, keep, f"{why} want {grow} for {100 * policy.miss:g} % misses")


def _size(policy: Policy, claims_per_s: float) -> int:
    """Without a claim yet one host stands ready: the first should not be told no."""
    most = sizing.LARGEST_POOL / (policy.lead_s * policy.burst.dispersion)
    demand = policy.demand(60 * min(claims_per_s, most))
    return max(1, sizing.size_for_waiting(demand, 0 if policy.woken else policy.interval_s))
