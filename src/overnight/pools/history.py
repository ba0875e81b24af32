"""A pool's own history as the numbers that sizing needs: how many claim, how evenly, how long a warm-up is.

Pure: the times come from whoever keeps them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import special

from overnight import errors
from overnight.pools import bursts, sizing

__all__ = ["History", "Measurement", "Spread", "burst", "demand", "measure", "rate_between"]

FEWEST_BINS = 20
CHANCE = 0.05


@dataclasses.dataclass(frozen=True)
class History:
    """When hosts were claimed and how long they took to be ready, over a time that was watched.

    `claims_s` holds every claim that was asked for, missed ones too: a pool that is empty must not look
    like one that nobody wants.
    """

    begin_s: float
    end_s: float
    claims_s: Sequence[float]
    warm_ups_s: Sequence[float]


@dataclasses.dataclass(frozen=True)
class Spread:
    """Durations in seconds: the mean, and what a half, nine in ten and 99 in 100 are below."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float


@dataclasses.dataclass(frozen=True)
class Measurement:
    """What a history says, and how sure it is."""

    claims: int
    watched_s: float
    claims_per_minute: float
    low: float  # claims a minute, 95 % interval
    high: float
    dispersion: float  # variance of the counts by their mean; 1 is chance alone
    bursty: bool  # more uneven than chance alone gives
    bin_s: float
    warm_up: Spread | None
    notes: tuple[str, ...]


def rate_between(
    claims: float, seconds: float, dispersion: float = 1.0, chance: float = CHANCE
) -> tuple[float, float]:
    """The interval of a rate per second from a count; exact for single claims, wider for bursts.

    Claims that come in bursts carry the evidence of fewer: the count divided by the dispersion.
    """
    count = claims / dispersion
    low = float(special.gammaincinv(count, chance / 2)) if count else 0.0
    high = float(special.gammaincinv(count + 1, 1 - chance / 2))
    return low * dispersion / seconds, high * dispersion / seconds


def measure(history: History, *, interval_s: float = 60.0) -> Measurement:
    """Rate with its interval, dispersion, and warm-ups, from a pool's history."""
    watched = history.end_s - history.begin_s
    claims = np.asarray(history.claims_s, dtype=float)
    warm_ups = np.asarray(history.warm_ups_s, dtype=float)
    _check(history, watched, claims, warm_ups)
    notes = []
    warm_up = _spread(warm_ups) if len(warm_ups) else None
    # Unevenness matters over the time that a host is away; a shorter bin would miss slower waves.
    away = (warm_up.mean if warm_up else 0.0) + interval_s
    bins = math.floor(watched / away)
    dispersion, bursty = 1.0, False
    if bins < FEWEST_BINS:
        notes.append(
            f"too short to tell bursts: {bins} of at least {FEWEST_BINS} times that a host is away"
        )
    elif len(claims):
        edges = history.begin_s + away * np.arange(bins + 1)
        counts = np.histogram(claims, edges)[0]
        if counts.sum():
            dispersion = max(1.0, float(np.var(counts, ddof=1) / counts.mean()))
        # Chance alone: (n - 1) * dispersion is chi-squared with n - 1 degrees of freedom.
        limit = float(special.gammaincinv((bins - 1) / 2, 1 - CHANCE)) * 2 / (bins - 1)
        bursty = dispersion > limit
    low, high = rate_between(len(claims), watched, dispersion if bursty else 1.0)
    if warm_up is None:
        notes.append("no host became ready: the warm-up is not known")
    return Measurement(
        len(claims), watched, 60 * len(claims) / watched, 60 * low, 60 * high,
        dispersion, bursty, away, warm_up, tuple(notes),
    )  # fmt: skip


def _spread(seconds: npt.NDArray[np.float64]) -> Spread:
    p50, p90, p99 = (float(value) for value in np.quantile(seconds, [0.5, 0.9, 0.99]))
    return Spread(len(seconds), float(seconds.mean()), p50, p90, p99)


def _check(
    history: History,
    watched: float,
    claims: npt.NDArray[np.float64],
    warm_ups: npt.NDArray[np.float64],
) -> None:
    if not 0 < watched < math.inf:
        raise errors.CannotError(
            "the history covers no time",
            why=f"it begins at {history.begin_s} and ends at {history.end_s}",
            todo="give --claims-per-minute and --warmup, or wait until the pool has a history",
        )
    inside = (claims >= history.begin_s) & (claims <= history.end_s)
    if not inside.all() or not ((warm_ups > 0) & np.isfinite(warm_ups)).all():
        raise errors.CannotError(
            "the history contradicts itself",
            why="a claim lies outside the time watched, or a warm-up is not a time above 0",
            todo="give --claims-per-minute and --warmup instead, and check the clock of the hosts",
        )


def burst(measured: Measurement) -> bursts.Burst:
    """How many claims come together, as far as the history tells: one, unless it is no chance."""
    return bursts.Burst.of_dispersion(measured.dispersion) if measured.bursty else bursts.SINGLE


def demand(
    measured: Measurement,
    *,
    interval_s: float = 60.0,
    miss: float = 0.01,
    callers: sizing.Callers = sizing.Callers.GIVE_UP,
    cost_per_host_hour: float | None = None,
) -> sizing.Demand:
    """The demand to size for: measured rate, mean warm-up, and bursts where they are no chance.

    The mean is the right warm-up, not a high quantile: hosts that warm up one by one even out, and a
    test plays it. Where they are slow together, size for the slow day by hand.
    """
    if measured.warm_up is None:
        raise errors.CannotError(
            "the pool's warm-up is not known",
            why="no host of it became ready in the time that is kept",
            todo="give --warmup, or fill the pool once: overnight pool replenish NAME",
        )
    return sizing.Demand(
        measured.claims_per_minute,
        measured.warm_up.mean,
        interval_s,
        miss,
        burst(measured),
        callers,
        cost_per_host_hour,
    )
