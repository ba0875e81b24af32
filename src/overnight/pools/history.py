"""A pool's own history as the numbers that sizing needs: claim rate, burstiness, warm-up time. Pure."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy import special

from overnight import errors
from overnight.model import times
from overnight.model.times import HOUR_US, SECOND_US
from overnight.pools import bursts, demand

if TYPE_CHECKING:
    from overnight.model.pool import Past

CHANCE = 0.05
QUIET_HOURS = 24


@dataclasses.dataclass(frozen=True)
class Spread:
    """Durations in seconds: mean and percentiles."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float


@dataclasses.dataclass(frozen=True)
class Measurement:
    """The demand that a history shows, with its uncertainty."""

    claims: int
    watched_s: float
    claims_per_minute: float
    low: float  # claims a minute, 95 % interval
    high: float
    dispersion: float  # variance of the counts divided by their mean; 1 is a Poisson process
    bursty: bool  # significantly more than Poisson
    warm_up: Spread | None  # None: no host became ready
    can_tell_bursts: bool  # False: the history is too short


def rate_between(
    claims: float, seconds: float, dispersion: float = 1.0, chance: float = CHANCE
) -> tuple[float, float]:
    """Return the confidence interval of a rate per second; exact for single claims, wider for bursts."""
    # Claims in bursts carry the evidence of fewer.
    count = claims / dispersion
    low = float(special.gammaincinv(count, chance / 2)) if count else 0.0
    high = float(special.gammaincinv(count + 1, 1 - chance / 2))
    return low * dispersion / seconds, high * dispersion / seconds


def measure(past: Past, *, interval_s: float = 60.0) -> Measurement:
    """Measure the rate with its interval, the dispersion, and the warm-ups."""
    watched_us, claims = past.end_us - past.begin_us, len(past.asked_us)
    if watched_us <= 0:
        begin, end = times.format_instant(past.begin_us), times.format_instant(past.end_us)
        raise errors.CannotError(
            "the history covers no time",
            why=f"it begins at {begin} and ends at {end}",
            todo="use --claims-per-minute and --warmup, or wait until the pool has a history",
        )
    if claims and past.asked_us[-1] > past.end_us:
        raise errors.CannotError(
            "the history contradicts itself",
            why="a claim is later than the end of the observed time",
            todo="use --claims-per-minute and --warmup instead, and check the clocks of the hosts",
        )
    warm_up = _spread(np.maximum(past.warm_ups_us, 1) / SECOND_US) if past.warm_ups_us else None
    # Burstiness matters over the time that a host is away; shorter bins would miss slower waves.
    away_us = max(1, round(((warm_up.mean if warm_up else 0.0) + interval_s) * SECOND_US))
    bins = watched_us // away_us
    can_tell_bursts = bins >= demand.MIN_BINS
    dispersion, bursty = 1.0, False
    if can_tell_bursts:
        dispersion = max(1.0, demand.dispersion(past.asked_us, past.end_us, away_us, bins))
        bursty = dispersion > demand.dispersion_limit(bins)
    watched = watched_us / SECOND_US
    low, high = rate_between(claims, watched, dispersion if bursty else 1.0)
    return Measurement(
        claims, watched, 60 * claims / watched, 60 * low, 60 * high,
        dispersion, bursty, warm_up, can_tell_bursts,
    )  # fmt: skip


def _spread(seconds: npt.NDArray[np.float64]) -> Spread:
    p50, p90, p99 = (float(value) for value in np.quantile(seconds, [0.5, 0.9, 0.99]))
    return Spread(len(seconds), float(seconds.mean()), p50, p90, p99)


def burst(measured: Measurement) -> bursts.Burst:
    """Return how many claims arrive together: one, unless the history is significantly bursty."""
    return bursts.Burst.of_dispersion(measured.dispersion) if measured.bursty else bursts.SINGLE


def quiet_rate(past: Past) -> float | None:
    """Return the claims a minute in the quietest tenth of the hours; None for less than a day."""
    hours = (past.end_us - past.begin_us) // HOUR_US
    if hours < QUIET_HOURS:
        return None
    edges = past.end_us - np.arange(hours, -1, -1) * HOUR_US
    counts, _ = np.histogram(past.asked_us, edges)
    return float(np.quantile(counts, 0.1)) / 60
