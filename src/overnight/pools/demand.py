"""What a pool's history shows about its size. Standard library only, for `overnight pool show`."""

from __future__ import annotations

import bisect
import collections
import math
from typing import TYPE_CHECKING

from overnight.model.times import MINUTE_US, SECOND_US

if TYPE_CHECKING:
    from collections.abc import Sequence

    from overnight.model.pool import Past

# From fewer the rate is not known to a factor of 1.5: the interval of 20 claims is 0.61 to 1.54 of it.
MIN_CLAIMS = 20
TICK_US = MINUTE_US  # a claim wakes the reaper; should that be lost, the tick comes within this

TOGETHER_US = 5 * SECOND_US  # claims this close are one burst
MIN_BINS = 20
Z95 = 1.645  # of the normal distribution, one-sided


def after(instants_us: Sequence[int], since_us: int) -> Sequence[int]:
    """Return the instants after another; they are sorted."""
    return instants_us[bisect.bisect_right(instants_us, since_us) :]


def most_within(instants_us: Sequence[int], span_us: int) -> int:
    """Return the largest number of instants that lie within `span_us` of each other; they are sorted."""
    most = first = 0
    for last, at in enumerate(instants_us):
        while at - instants_us[first] > span_us:
            first += 1
        most = max(most, last - first + 1)
    return most


def refill_us(past: Past) -> int:
    """Return the time until a claimed member is replaced: the mean warm-up and a tick."""
    return TICK_US + sum(past.warm_ups_us) // max(1, len(past.warm_ups_us))


def is_bursty(instants_us: Sequence[int], begin_us: int, end_us: int, bin_us: int) -> bool:
    """Whether the counts vary significantly more than those of a Poisson process."""
    bins = (end_us - begin_us) // bin_us
    return bins >= MIN_BINS and (
        dispersion(instants_us, end_us, bin_us, bins) > dispersion_limit(bins)
    )


def dispersion(instants_us: Sequence[int], end_us: int, bin_us: int, bins: int) -> float:
    """Return the variance of the counts in the last bins divided by their mean; 0 for no instants."""
    inside = after(instants_us, end_us - bins * bin_us)
    if not inside:
        return 0.0
    counts = collections.Counter((end_us - at) // bin_us for at in inside)
    mean = len(inside) / bins
    squares = sum((count - mean) ** 2 for count in counts.values()) + (bins - len(counts)) * mean**2
    return squares / (bins - 1) / mean


def dispersion_limit(bins: int) -> float:
    """Return what the dispersion of a Poisson process exceeds once in 20 (Wilson and Hilferty)."""
    spread = 2 / (9 * (bins - 1))
    return (1 - spread + Z95 * math.sqrt(spread)) ** 3
