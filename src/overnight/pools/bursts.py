"""Claims in bursts: how many arrive together, and how many arrive within a time."""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np
import numpy.typing as npt
from scipy import fft, special

from overnight import errors

Numbers = npt.NDArray[np.float64]
LARGEST = 1000.0
WIDEST = 26_000.0  # variance for each claim beyond the first; of the largest burst, 5 times spread: 25,025
# Probability that a truncated distribution may lack; below any accepted miss rate.
LEFT_OUT = 1e-13


@dataclasses.dataclass(frozen=True)
class Burst:
    """How many claims arrive together: mean and standard deviation.

    The spread is at least the minimum for whole numbers with that mean: 2.5 claims on average are twos and
    threes. The distribution is chosen so that both numbers are met exactly.
    """

    mean: float = 1.0
    spread: float = 0.0

    def __post_init__(self) -> None:
        if not 1 <= self.mean <= LARGEST:
            raise errors.UsageError(
                f"the mean of --burst must be from 1 to {LARGEST:g} (got {self.mean:g})",
                why="a burst is at least one claim, and larger ones are too much for a pool",
                todo="use the mean number of claims that arrive together, such as --burst 5",
            )
        # Nearly always one claim and very rarely thousands: the distribution would not fit into memory.
        rare = self.spread**2 > WIDEST * (self.mean - 1)
        if not 0 <= self.spread <= 5 * self.mean or rare:
            raise errors.UsageError(
                f"invalid spread {self.spread:g} for bursts of {self.mean:g}",
                why="the spread is a standard deviation: from 0 to five times the mean, 0 if every claim "
                "arrives alone, and small if nearly every one does",
                todo="write mean and spread like --burst 5:2",
            )

    @classmethod
    def of_dispersion(cls, dispersion: float) -> Burst:
        """Return the geometric burst whose counts have this ratio of variance to mean."""
        mean = min(LARGEST, (max(1.0, dispersion) + 1) / 2)
        return cls(mean, math.sqrt(mean * (mean - 1)))

    @functools.cached_property
    def probabilities(self) -> Numbers:
        """The probabilities of a burst of 0 (never), 1, 2, … claims."""
        whole = math.floor(self.mean)
        part = self.mean - whole
        narrow = np.zeros(whole + 2)
        narrow[whole], narrow[whole + 1] = 1 - part, part
        least, variance, more = part * (1 - part), self.spread**2, self.mean - 1
        if variance <= least:
            return narrow
        # Closer to a Poisson the logarithms of its gamma functions cancel: the mean would be off by 1e-5.
        if variance > more * (1 + 1e-6):
            return _one_and(_negative_binomial(more, variance))
        # Between the narrowest distribution and one plus a Poisson: a mixture has the mixed variance.
        wide = _one_and(_poisson(more))
        weight = min(1.0, (variance - least) / (more - least))
        mixed = weight * np.pad(wide, (0, max(0, len(narrow) - len(wide))))
        mixed[: len(narrow)] += (1 - weight) * narrow
        return mixed

    @property
    def dispersion(self) -> float:
        """E[B^2] / E[B]: the variance of a count divided by its mean; 1 when every claim arrives alone."""
        sizes = np.arange(len(self.probabilities))
        return float(self.probabilities @ sizes**2 / (self.probabilities @ sizes))


SINGLE = Burst()


@dataclasses.dataclass(frozen=True)
class Traffic:
    """The claims on a pool and its refill: a warm-up after the next tick, or after the claim for interval 0."""

    burst: Burst
    claims_per_s: float
    warm_up_s: float
    interval_s: float

    @property
    def refill_s(self) -> float:
        """The longest time until a claimed host is replaced."""
        return self.warm_up_s + self.interval_s


def _one_and(rest: Numbers) -> Numbers:
    return np.concatenate([[0.0], rest / rest.sum()])


def _poisson(mean: float) -> Numbers:
    counts = np.arange(math.ceil(mean + 12 * math.sqrt(mean) + 30))
    probabilities: Numbers = np.exp(
        special.xlogy(counts, mean) - mean - special.gammaln(counts + 1)
    )
    return probabilities


def _negative_binomial(mean: float, variance: float) -> Numbers:
    p, n = mean / variance, mean**2 / (variance - mean)
    # The tail falls by a factor of (1-p) a step, once beyond the mode.
    length = mean + 12 * math.sqrt(variance) + math.log(LEFT_OUT) / math.log1p(-p)
    counts = np.arange(math.ceil(length))
    probabilities: Numbers = np.exp(
        special.gammaln(counts + n) - special.gammaln(n) - special.gammaln(counts + 1)
        + n * math.log(p) + counts * math.log1p(-p)
    )  # fmt: skip
    return probabilities


def ahead(burst: Burst) -> Numbers:
    """Return the probabilities that 0, 1, 2, … claims of its own burst are ahead of a claim."""
    larger = 1 - np.cumsum(burst.probabilities)
    return np.clip(larger[:-1], 0, None) / burst.mean


def arrivals(traffic: Traffic, *, before_a_claim: bool = False) -> Numbers:
    """Return the probabilities of 0, 1, 2, … claims in a refill that begins at any time of the interval.

    With `before_a_claim` those ahead in the claim's own burst count too. Exact for bursts at random times
    (compound Poisson): one Fourier transform inverts the characteristic function, averaged over the lengths.
    """
    burst = traffic.burst
    bursts = traffic.claims_per_s / burst.mean
    mean = traffic.claims_per_s * traffic.refill_s
    reach = (
        mean
        + 12 * math.sqrt(mean * burst.dispersion)
        + 40 * burst.dispersion
        + 2 * len(burst.probabilities)
    )
    size = fft.next_fast_len(math.ceil(reach), real=True)
    exponent = fft.rfft(burst.probabilities, size) - 1
    begin = bursts * traffic.warm_up_s * exponent
    # exp(a) and the mean of exp over [0, b]: (exp(b) - 1) / b, which is 1 at b = 0.
    width = bursts * traffic.interval_s * exponent
    tiny = np.abs(width) < 1e-12
    evenly = np.where(tiny, 1, np.expm1(width) / np.where(tiny, 1, width))
    whole = np.exp(begin) * evenly
    if before_a_claim:
        whole *= fft.rfft(ahead(burst), size)
    probabilities: Numbers = fft.irfft(whole, size)
    return np.clip(probabilities, 0, None)
