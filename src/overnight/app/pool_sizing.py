"""What a pool is asked for, from its own history: the numbers that sizing takes, and how sure they are."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from overnight import errors

if TYPE_CHECKING:
    from overnight.model.pool import Past, Pool
    from overnight.pools import bursts, control, history

__all__ = ["FEWEST_CLAIMS", "Known", "Told", "assumed", "measure_demand"]

# From fewer the rate is not known to a half: the interval of 20 claims is 0.61 to 1.54 of it.
FEWEST_CLAIMS = 20


@dataclasses.dataclass(frozen=True)
class Told:
    """What was said, and needs no measuring."""

    claims_per_minute: float | None = None
    warm_up_s: float | None = None
    burst: bursts.Burst | None = None


@dataclasses.dataclass(frozen=True)
class Known:
    """The demand of a pool, what of it was measured, and what was taken for granted."""

    pool: Pool
    past: Past
    measured: history.Measurement
    claims_per_minute: float
    warm_up_s: float
    burst: bursts.Burst
    assumed: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        """`measured` of `overnight pool size --pool NAME -O json`."""
        found = self.measured
        warm = found.warm_up
        return {
            "pool": self.pool.name,
            "target_size": self.pool.target_size,
            "begin_us": self.past.begin_us,
            "end_us": self.past.end_us,
            "watched_s": found.watched_s,
            "claims": found.claims,
            "missed": self.past.missed,
            "claims_per_minute": found.claims_per_minute,
            "low": found.low,
            "high": found.high,
            "dispersion": found.dispersion,
            "bursty": found.bursty,
            "warm_up": None if warm is None else dataclasses.asdict(warm),
            "assumed": list(self.assumed),
        }


def measure_demand(
    plane: control.ControlPlane, name: str, told: Told, *, over_s: float, interval_s: float = 60.0
) -> Known:
    """The demand of a pool; what was told goes before what is measured."""
    from overnight.pools import history

    if not 1 <= over_s <= 366 * 86400:
        raise errors.UsageError(
            f"a history of {over_s:g} s",
            why="it is looked back over a second to a year",
            todo="write it like --over 8h",
        )
    past = plane.past(name, int(over_s))
    pool = plane.show(name, recent=1).pool
    watched = history.History(
        past.begin_us / 1e6,
        past.end_us / 1e6,
        [at / 1e6 for at in past.asked_us],
        [max(1e-6, took / 1e6) for took in past.warm_ups_us],
    )
    found = history.measure(watched, interval_s=interval_s)
    rate = _rate(pool, found) if told.claims_per_minute is None else told.claims_per_minute
    if told.warm_up_s is not None:
        warm_up = told.warm_up_s
    elif found.warm_up is not None:
        warm_up = found.warm_up.mean
    else:
        raise errors.CannotError(
            f"the warm-up of pool {pool.name} is not known",
            why="none of its members became ready in the time that is kept",
            todo=f"give --warmup 90s, or fill the pool once: overnight pool replenish {pool.name}",
        )
    burst = history.burst(found) if told.burst is None else told.burst
    return Known(pool, past, found, rate, warm_up, burst, assumed(told, found))


def _rate(pool: Pool, found: history.Measurement) -> float:
    from overnight.model import times

    if found.claims >= FEWEST_CLAIMS:
        return found.claims_per_minute
    raise errors.CannotError(
        f"pool {pool.name} has too little history: {found.claims} claims in "
        f"{times.format_duration(found.watched_s)}",
        why=f"from so few the rate may be {found.low:.2g} to {found.high:.2g} claims a minute; "
        f"{FEWEST_CLAIMS} claims are needed",
        todo="wait for more, look further back with --over, or give --claims-per-minute 4",
    )


def assumed(told: Told, found: history.Measurement) -> tuple[str, ...]:
    """What the numbers take for granted, in words."""
    said = ["the claims to come are like those measured"]
    if told.claims_per_minute is not None:
        said[0] = f"{told.claims_per_minute:g} claims a minute, as given"
    if told.warm_up_s is not None:
        said.append(f"a warm-up of {told.warm_up_s:g} s, as given")
    if told.burst is not None:
        said.append(f"bursts of {told.burst.mean:g}, as given")
    elif not found.bursty:
        short = [note for note in found.notes if "bursts" in note]
        said.append("claims come one by one" + (f" ({short[0]})" if short else ""))
    return tuple(said)
