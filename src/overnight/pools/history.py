"""A pool's own history as the numbers that sizing needs: claim rate, burstiness, warm-up time. Pure."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import special

from overnight import errors
from overnight.pools import bursts

MIN_BINS = 20
CHANCE = 0.05


@dataclasses.dataclass(frozen=True)
class History:
    """When hosts were requested and how long they took to be ready, over an observed time.

    `claims_s` has every request, missed ones too: an empty pool must not look unused.
    """

    begin_s: float
    end_s: float
    claims_s: Sequence[float]
    warm_ups_s: Sequence[float]


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
    """Return the confidence interval of a rate per second; exact for single claims, wider for bursts.

    Claims in bursts carry the evidence of fewer: the count divided by the dispersion.
    """
    count = claims / dispersion
    low = float(special.gammaincinv(count, chance / 2)) if count else 0.0
    high = float(special.gammaincinv(count + 1, 1 - chance / 2))
    return low * dispersion / seconds, high * dispersion / seconds


def measure(history: History, *, interval_s: float = 60.0) -> Measurement:
    """Measure the rate with its interval, the dispersion, and the warm-ups."""
    watched = history.end_s - history.begin_s
    claims = np.asarray(history.claims_s, dtype=float)
    warm_ups = np.asarray(history.warm_ups_s, dtype=float)
    _check(history, watched, claims, warm_ups)
    warm_up = _spread(warm_ups) if len(warm_ups) else None
    # Burstiness matters over the time that a host is away; shorter bins would miss slower waves.
    away = (warm_up.mean if warm_up else 0.0) + interval_s
    bins = math.floor(watched / away)
    dispersion, bursty = 1.0, False
    can_tell_bursts = bins >= MIN_BINS
    if can_tell_bursts and len(claims):
        edges = history.begin_s + away * np.arange(bins + 1)
        counts = np.histogram(claims, edges)[0]
        if counts.sum():
            dispersion = max(1.0, float(np.var(counts, ddof=1) / counts.mean()))
        # For a Poisson process (n - 1) * dispersion is chi-squared with n - 1 degrees of freedom.
        limit = float(special.gammaincinv((bins - 1) / 2, 1 - CHANCE)) * 2 / (bins - 1)
        bursty = dispersion > limit
    low, high = rate_between(len(claims), watched, dispersion if bursty else 1.0)
    return Measurement(
        len(claims), watched, 60 * len(claims) / watched, 60 * low, 60 * high,
        dispersion, bursty, warm_up, can_tell_bursts,
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
            todo="use --claims-per-minute and --warmup, or wait until the pool has a history",
        )
    inside = (claims >= history.begin_s) & (claims <= history.end_s)
    if not inside.all() or not ((warm_ups > 0) & np.isfinite(warm_ups)).all():
        raise errors.CannotError(
            "the history contradicts itself",
            why="a claim lies outside the observed time, or a warm-up is not positive",
            todo="use --claims-per-minute and --warmup instead, and check the clocks of the hosts",
        )


def burst(measured: Measurement) -> bursts.Burst:
    """Return how many claims arrive together: one, unless the history is significantly bursty."""
    return bursts.Burst.of_dispersion(measured.dispersion) if measured.bursty else bursts.SINGLE
