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
from overnight.pools import bursts, history, schedules, sizing

__all__ = ["Decision", "Memory", "Policy", "Seen", "decide", "look"]

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

    def spans(self, now_s: float, since_s: float) -> tuple[float, float]:
        """How far back claims are counted: for the rate, and for a jump.

        A pool that has just begun is not judged by a shorter time than hosts take to come: one claim in
        its first second is not sixty a minute.
        """
        window = min(self.window_s, max(self.lead_s, now_s - since_s))
        return window, min(window, self.lead_s)


def _refuse(what: str, why: str) -> errors.UsageError:
    return errors.UsageError(what, why=why, todo="correct the pool's autoscale policy")


@dataclasses.dataclass(frozen=True)
class Seen:
    """What is known now, as counts: a busy pool's claims are not read one by one.

    Claims that missed count, and those of who waits: they are demand.
    """

    now_s: float  # since 1970
    size: int
    since_s: float  # when the pool began to be watched
    claims: int  # in the longer of `Policy.spans`
    lately: int  # in the shorter
    last_s: float | None = None  # the last claim of all, be it before


def look(
    policy: Policy, now_s: float, size: int, claims_s: Sequence[float], since_s: float
) -> Seen:
    """The same from the times of claims: at least those of the window, oldest first."""
    window, short = policy.spans(now_s, since_s)
    return Seen(
        now_s,
        size,
        since_s,
        sum(1 for when in claims_s if when > now_s - window),
        sum(1 for when in claims_s if when > now_s - short),
        claims_s[-1] if claims_s else None,
    )


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
    wanted: int = 0  # what schedule and demand ask for, whatever max and the cooldown make of it
    cause: str = ""  # of the wish, in one word: min, max, schedule, demand, or quiet


@dataclasses.dataclass(frozen=True)
class _Wish:
    """A size to grow to, one not to shrink below (never less), and why."""

    grow: int
    keep: int
    why: str
    cause: str


def decide(policy: Policy, seen: Seen, memory: Memory = NOTHING) -> Decision:
    """The size a pool is to have now."""
    wish, wanted = _wish(policy, seen)
    begin = seen.now_s - policy.cooldown_s
    kept = [(when, size) for when, size in memory.wanted if begin < when <= seen.now_s]
    # A later size that is as large makes an earlier one idle: memory stays short.
    kept = [(when, size) for when, size in kept if size > wish.keep]
    kept.append((seen.now_s, wish.keep))
    # Bounds are law: they hold whatever was wanted before.
    lowest = min(kept[0][1], policy.max_size)
    size, reason = _step(policy, seen.size, wish, lowest)
    cause = "max" if seen.size > policy.max_size else wish.cause
    return Decision(size, reason, Memory(tuple(kept)), wanted, cause)


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
    """The largest of: schedule, demand, minimum; with the reason of the one that decides.

    Beside it, what that would be without max.
    """
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
    # Of equal wishes the last: demand tells more than a minimum.
    first = max(reversed(wishes), key=lambda wish: wish.grow)
    keep = min(max(wish.keep for wish in wishes), policy.max_size)
    why = first.why
    if first.grow > policy.max_size:
        why = f"{why}, cut to max {policy.max_size}"
    return _Wish(min(first.grow, policy.max_size), keep, why, first.cause), first.grow


def _instant(opening: schedules.Opening, seconds: float) -> bool:
    return opening.holds(datetime.datetime.fromtimestamp(seconds, datetime.UTC))


def _for_demand(policy: Policy, seen: Seen) -> _Wish:
    """For the rate of the window, or for a jump that is no chance any more."""
    window, short = policy.spans(seen.now_s, seen.since_s)
    count = seen.claims
    dispersion = policy.burst.dispersion
    rate, why = count / window, _asked(count, f"in {times.format_duration(window)}")
    highest = history.rate_between(count, window, dispersion, UNSURE)[1]
    # A jump shows in the last minutes first. Taking their mean would answer every cluster that chance
    # makes, so the lower end of its interval decides: a rate that is there for sure.
    sure = history.rate_between(seen.lately, short, dispersion)[0]
    if sure > rate:
        rate, why = sure, _asked(seen.lately, f"in the last {times.format_duration(short)}")
    grow = _size(policy, rate)
    keep = max(grow, _size(policy, highest))
    return _Wish(grow, keep, f"{why} {grow} for {100 * policy.miss:g} % misses", "demand")


def _asked(claims: int, when: str) -> str:
    return f"1 claim {when} wants" if claims == 1 else f"{claims} claims {when} want"


def _size(policy: Policy, claims_per_s: float) -> int:
    """Without a claim yet one host stands ready: the first should not be told no."""
    most = sizing.LARGEST_POOL / (policy.lead_s * policy.burst.dispersion)
    demand = policy.demand(60 * min(claims_per_s, most))
    return max(1, sizing.size_for_waiting(demand, 0 if policy.woken else policy.interval_s))
