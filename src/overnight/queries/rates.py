"""Two rates of events compared: exact Poisson intervals, widened where events come in bursts. Pure.

docs/outcomes.md has the formulas. A count is divided by the dispersion (variance by mean of the counts in cells of
time) before it enters an exact formula: ten events of one burst count as one.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
from collections.abc import Iterable, Sequence

ALPHA = 0.05
HALF = 0.5  # the ratio that counts as an effect
MIN_CELL_S, MAX_CELL_S = 60.0, 3600.0
CELLS = 100  # at least, if they are not shorter than a minute


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
    low: float
    high: float

    @property
    def rate(self) -> float:
        return self.events / self.exposure


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The rate after by the rate before; None: not known, or not bounded."""

    before: Rate
    after: Rate
    dispersion: float
    confidence: float
    ratio: float | None
    low: float
    high: float | None
    # More exposure after, without an event, until the interval lies below one half; None: no exposure shows it.
    wait: float | None

    @property
    def outcome(self) -> Outcome:
        if not self.before.events and not self.after.events:
            return Outcome.NO_EVENTS
        if self.high is not None and self.high < 1:
            return Outcome.FELL
        if self.low > 1:
            return Outcome.ROSE
        if self.low > HALF and self.high is not None and self.high < 1 / HALF:
            return Outcome.UNCHANGED
        return Outcome.CANNOT_TELL


@dataclasses.dataclass(frozen=True)
class Span:
    """Observed time without interruption, and the events in it, in seconds since any origin."""

    begin: float
    end: float
    events: tuple[float, ...] = ()


def compare(
    before: tuple[int, float],
    after: tuple[int, float],
    *,
    dispersion: float = 1.0,
    alpha: float = ALPHA,
) -> Comparison:
    """Compare events and exposure of two sides; the exposures are greater than 0.

    >>> compared = compare((10, 100.0), (1, 100.0))
    >>> compared.ratio, round(compared.low, 4), round(compared.high, 4), compared.outcome.value
    (0.1, 0.0023, 0.7029, 'fell')
    """
    from scipy import special

    (count_0, time_0), (count_1, time_1) = before, after
    many_0, many_1 = count_0 / dispersion, count_1 / dispersion
    odds = time_0 / time_1
    least, most = 0.0, 1.0
    # Given the sum of both, the second count is binomial (Clopper and Pearson's interval of its share).
    if many_1:
        least = float(special.betaincinv(many_1, many_0 + 1, alpha / 2))
    if many_0:
        most = float(special.betaincinv(many_1 + 1, many_0, 1 - alpha / 2))
    high = most / (1 - most) * odds if most < 1 else None
    return Comparison(
        Rate(count_0, time_0, *bound_rate(count_0, time_0, dispersion, alpha)),
        Rate(count_1, time_1, *bound_rate(count_1, time_1, dispersion, alpha)),
        dispersion,
        1 - alpha,
        count_1 / count_0 * odds if count_0 else None,
        least / (1 - least) * odds,
        high,
        # The upper bound is inversely proportional to the exposure.
        None if high is None else max(0.0, time_1 * (high / HALF - 1)),
    )


def bound_rate(
    count: int, exposure: float, dispersion: float = 1.0, alpha: float = ALPHA
) -> tuple[float, float]:
    """Return the exact interval of a rate (Garwood 1936).

    >>> [round(bound, 4) for bound in bound_rate(0, 1.0)], [round(bound, 4) for bound in bound_rate(10, 1.0)]
    ([0.0, 3.6889], [4.7954, 18.3904])
    """
    from scipy import special

    many, scale = count / dispersion, dispersion / exposure
    low = float(special.gammaincinv(many, alpha / 2)) if count else 0.0
    return low * scale, float(special.gammaincinv(many + 1, 1 - alpha / 2)) * scale


def measure_dispersion(sides: Sequence[Iterable[Span]]) -> float:
    """Return the variance of the counts in cells of time by their mean, at least 1; each side has its own rate."""
    spans = [tuple(side) for side in sides]
    observed = sum(span.end - span.begin for side in spans for span in side)
    cell = min(MAX_CELL_S, max(MIN_CELL_S, observed / CELLS))
    squares, cells, total = 0.0, 0, 0
    for side in spans:
        time = sum(span.end - span.begin for span in side)
        count = sum(len(span.events) for span in side)
        rate = count / time if time else 0.0
        total += count
        for span in side:
            whole, rest = divmod(span.end - span.begin, cell)
            cells += int(whole) + (rest > 0)
            # Cells without events first, then what the events change.
            squares += rate**2 * (whole * cell**2 + rest**2)
            for number, many in collections.Counter(
                int((at - span.begin) // cell) for at in span.events
            ).items():
                length = min(cell, span.end - span.begin - number * cell)
                squares += many**2 - 2 * many * rate * max(0.0, length)
    if not total or cells <= len(spans):
        return 1.0
    return max(1.0, squares / total * cells / (cells - len(spans)))
