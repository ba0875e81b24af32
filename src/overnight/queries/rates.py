"""Two rates of events compared: exact Poisson intervals, widened where events come in bursts. Pure.

docs/outcomes.md has the formulas. A count is divided by the dispersion (variance by mean of the counts in cells of
time) before it enters an exact formula: ten events of one burst count as one. scipy's own intervals
(`binomtest`, `poisson_means_test`) take whole counts only.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

ALPHA = 0.05
HALF = 0.5  # the ratio that counts as an effect
MIN_CELL_S, MAX_CELL_S = 60.0, 3600.0
CELLS = 100  # at least, if they are not shorter than a minute
MAX_LOG = 50.0  # of a ratio

Floats = npt.NDArray[np.float64]
Span = tuple[
    float, Sequence[float]
]  # seconds without interruption, and the events that far into it


class Outcome(enum.StrEnum):
    """What the interval of the ratio shows."""

    FELL = "fell"
    ROSE = "rose"
    UNCHANGED = "unchanged"  # neither halved nor doubled
    CANNOT_TELL = "cannot-tell"
    NO_EVENTS = "no-events"


@dataclasses.dataclass(frozen=True)
class Rate:
    """Events per unit of exposure, with the bounds of their rate."""

    events: int
    exposure: float
    rate: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The rate after by the rate before; None: not known, or not bounded."""

    before: Rate
    after: Rate
    dispersion: float
    confidence: float
    ratio: float | None
    ratio_low: float
    ratio_high: float | None
    # More exposure after, without an event, until the interval lies below one half; None: no exposure shows it.
    wait: float | None
    p_hosts: float | None = None  # that groups of hosts differ as much by chance; None: not tested

    @property
    def is_change(self) -> bool:
        """Whether the interval excludes a ratio of 1."""
        return self.ratio_low > 1 or (self.ratio_high is not None and self.ratio_high < 1)

    @property
    def is_chance(self) -> bool:
        """Whether groups differ no more than hosts do: events on one host are one piece of evidence."""
        return self.is_change and self.p_hosts is not None and self.p_hosts > ALPHA

    @property
    def outcome(self) -> Outcome:
        if not self.before.events and not self.after.events:
            return Outcome.NO_EVENTS
        if not self.is_change:
            high = math.inf if self.ratio_high is None else self.ratio_high
            is_near = self.ratio_low > HALF and high < 1 / HALF
            return Outcome.UNCHANGED if is_near else Outcome.CANNOT_TELL
        if self.is_chance:
            return Outcome.CANNOT_TELL
        return Outcome.ROSE if self.ratio_low > 1 else Outcome.FELL


def compare(
    events: npt.ArrayLike, exposure: npt.ArrayLike, *, dispersion: float = 1.0, alpha: float = ALPHA
) -> Comparison:
    """Compare [before, after] of all hosts, or of each: one row per host. Both sides have exposure.

    Each host is compared with itself, so that a bad host that was off, or on for longer, does not change the ratio.
    Hosts with exposure on one side only are compared with each other.

    >>> compared = compare([10, 1], [100, 100])
    >>> [round(value, 4) for value in (compared.ratio, compared.ratio_low, compared.ratio_high)]
    [0.1, 0.0023, 0.7029]
    """
    from scipy import special

    counts, hours = (np.atleast_2d(np.asarray(rows, float)) for rows in (events, exposure))
    before, after = (
        Rate(int(count), float(time), float(count / time), *bound_rate(count, time, dispersion, alpha))
        for count, time in zip(counts.sum(axis=0), hours.sum(axis=0), strict=True)
    )  # fmt: skip
    is_both = (hours > 0).all(axis=1)
    counts, hours = (
        np.vstack((rows[is_both], rows[~is_both].sum(axis=0))) for rows in (counts, hours)
    )
    is_both = (hours > 0).all(axis=1)
    counts, odds = counts[is_both], hours[is_both, 1] / hours[is_both, 0]
    first, second = counts.sum(axis=0) / dispersion
    # Given the sum of both, the second count is binomial (Clopper and Pearson's interval of its share). Where the
    # share differs between hosts it varies less (Hoeffding 1956): the interval covers at least as often.
    low = special.betaincinv(second, first + 1, alpha / 2) if second else 0.0
    high = special.betaincinv(second + 1, first, 1 - alpha / 2) if first else 1.0
    ratio_high = _find_ratio(high, counts.sum(axis=1), odds) if first else None
    return Comparison(
        before,
        after,
        dispersion,
        1 - alpha,
        _find_ratio(second / (first + second), counts.sum(axis=1), odds) if first else None,
        _find_ratio(low, counts.sum(axis=1), odds),
        ratio_high,
        # The upper bound is inversely proportional to the exposure.
        None if ratio_high is None else max(0.0, after.exposure * (ratio_high / HALF - 1)),
    )


def _find_ratio(share: float, events: Floats, odds: Floats) -> float:
    """Return the ratio of the rates at which that share of the hosts' events is expected after."""
    from scipy import optimize

    def surplus(log_ratio: float) -> float:
        expected = np.exp(log_ratio) * odds
        return float(events @ (expected / (1 + expected)) / events.sum() - share)

    return float(np.exp(optimize.brentq(surplus, -MAX_LOG, MAX_LOG))) if share else 0.0


def bound_rate(
    count: float, exposure: float, dispersion: float = 1.0, alpha: float = ALPHA
) -> tuple[float, float]:
    """Return the exact interval of a rate (Garwood 1936).

    >>> [round(bound, 4) for bound in bound_rate(0, 1.0)], [round(bound, 4) for bound in bound_rate(10, 1.0)]
    ([0.0, 3.6889], [4.7954, 18.3904])
    """
    from scipy import special

    many, scale = count / dispersion, dispersion / exposure
    low = special.gammaincinv(many, alpha / 2) * scale if count else 0.0
    return float(low), float(special.gammaincinv(many + 1, 1 - alpha / 2) * scale)


def measure_dispersion(sides: Iterable[Sequence[Span]]) -> float:
    """Return the variance of the counts in cells of time by their mean, at least 1; each side has its own rate."""
    sides = tuple(sides)
    observed = sum(seconds for side in sides for seconds, _ in side)
    cell = min(MAX_CELL_S, max(MIN_CELL_S, observed / CELLS))
    squares, cells, total = 0.0, 0, 0
    for side in sides:
        count, time = sum(len(events) for _, events in side), sum(seconds for seconds, _ in side)
        for seconds, events in side:
            if not len(events):  # most spells of a large fleet: no need to count each cell
                cells += (full := math.ceil(seconds / cell))
                last = seconds - max(0, full - 1) * cell
                squares += (count / time) ** 2 * (max(0, full - 1) * cell**2 + last**2)
                continue
            edges = np.append(np.arange(0, seconds, cell), seconds)
            counts = np.histogram(events, edges)[0]
            squares += float(((counts - count / time * np.diff(edges)) ** 2).sum())
            cells += len(counts)
        total += count
    if not total or cells <= len(sides):
        return 1.0
    return max(1.0, squares / total * cells / (cells - len(sides)))
