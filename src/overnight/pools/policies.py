"""Checks of autoscale policies, and a policy within the bounds of its pool."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from overnight.model.pool import Autoscale, AutoscalePolicy, Pool
from overnight.pools import pool_errors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from overnight.pools import autoscale

NAMES = tuple(field.name for field in dataclasses.fields(AutoscalePolicy))
WHOLE = ("min_size", "max_size")
OPTIONAL = (*WHOLE, "warm_up_seconds", "zero_after_seconds")
# Used until a member has become ready.
ASSUMED_WARM_UP_S = 90.0
# What one decision passes to the next: (time, size) to keep during the cooldown.
Memory = tuple[tuple[float, int], ...]


@dataclasses.dataclass(frozen=True)
class Decision:
    """The new size, the reason, and the memory for the next decision."""

    size: int
    reason: str
    memory: Memory
    wanted: int = 0  # the size for schedule and demand, before max and cooldown
    cause: str = ""  # one word: min, max, schedule, demand, or quiet


def changed(pool: Pool, before: Autoscale, given: Mapping[str, object]) -> Autoscale:
    """Return the changed policy; refused if it contradicts itself or the pool."""
    pool_errors.check_known(given, NAMES)
    values: dict[str, Any] = {name: _checked(name, value) for name, value in given.items()}
    after = dataclasses.replace(before, **values)
    if "max_size" in given and after.max_size is not None and after.max_size > pool.max_size:
        raise pool_errors.BadSizeError(
            f"autoscale maximum {after.max_size} is above the maximum of pool {pool.name}",
            why=f"its max_size is {pool.max_size}, claimed members included",
            todo=f"`overnight pool update {pool.name} --max {2 * after.max_size}` first, or a lower --max here",
        )
    if "min_size" in given and after.min_size is not None and after.min_size < pool.min_size:
        raise pool_errors.BadSizeError(
            f"autoscale minimum {after.min_size} is below the minimum of pool {pool.name}",
            why=f"its min_size is {pool.min_size}",
            todo=f"`overnight pool update {pool.name} --min {after.min_size}` first, or a higher --min here",
        )
    _policy(
        after,
        pool.min_size if after.min_size is None else after.min_size,
        pool.max_size if after.max_size is None else after.max_size,
    )
    return after


def _checked(name: str, value: object) -> object:
    if name == "openings":
        if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
            raise pool_errors.BadKnobError(name, value, "a list of schedules")
        return tuple(value)
    if value is None and name in OPTIONAL:
        return None
    kind = int if name in WHOLE else (int, float)
    if isinstance(value, bool) or not isinstance(value, kind) or not math.isfinite(value):
        wanted = "a whole number" if name in WHOLE else "a number"
        raise pool_errors.BadKnobError(name, value, wanted)
    return value if name in WHOLE else float(value)


def effective(pool: Pool, stored: Autoscale) -> autoscale.Policy:
    """Return the policy within the pool's bounds, which may have changed since it was set."""
    most = pool.max_size if stored.max_size is None else min(stored.max_size, pool.max_size)
    least = pool.min_size if stored.min_size is None else max(stored.min_size, pool.min_size)
    return _policy(stored, min(least, most), most, cut=True)


def _policy(stored: Autoscale, least: int, most: int, *, cut: bool = False) -> autoscale.Policy:
    # Only here: numpy and scipy take longer to load than a claim takes.
    from overnight.pools import autoscale, bursts, schedules

    openings = [schedules.parse(text) for text in stored.openings]
    if cut:
        openings = [
            dataclasses.replace(opening, size=min(opening.size, most)) for opening in openings
        ]
    warm_up = stored.warm_up_seconds
    if warm_up is None:
        warm_up = stored.measured_warm_up_seconds
    return autoscale.Policy(
        max_size=most,
        min_size=least,
        warm_up_s=ASSUMED_WARM_UP_S if warm_up is None else warm_up,
        miss=stored.miss,
        window_s=stored.window_seconds,
        cooldown_s=stored.cooldown_seconds,
        zero_after_s=None if cut and least else stored.zero_after_seconds,
        openings=tuple(openings),
        burst=bursts.Burst(stored.burst_mean, stored.burst_spread),
    )


def assumed(stored: Autoscale) -> tuple[str, ...]:
    """Return the assumptions made where nothing is known."""
    if stored.warm_up_seconds is None and stored.measured_warm_up_seconds is None:
        return (
            f"a warm-up of {ASSUMED_WARM_UP_S:g} s: no member has become ready within the retention time",
        )
    return ()


def describe_change(before: Autoscale | None, after: Autoscale) -> str:
    old = before or Autoscale()
    return ", ".join(
        f"{name}: {_format(getattr(after, name))}"
        for name in NAMES
        if getattr(old, name) != getattr(after, name)
    )


def _format(value: object) -> str:
    if value is None or value == ():
        return "none"
    if isinstance(value, tuple):
        return "; ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
