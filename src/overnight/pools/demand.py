"""What a pool's history shows about its size. Standard library only, for `overnight pool show`; see `history`."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING

from overnight.model.times import MINUTE_US

if TYPE_CHECKING:
    from collections.abc import Sequence

    from overnight.model.pool import Past

# From fewer the rate is not known to a factor of 1.5: the interval of 20 claims is 0.61 to 1.54 of it.
MIN_CLAIMS = 20
TICK_US = MINUTE_US  # a claim wakes the reaper; should that be lost, the tick comes within this


def count_since(instants_us: Sequence[int], since_us: int) -> int:
    """Count the instants after another; they are sorted."""
    return len(instants_us) - bisect.bisect_right(instants_us, since_us)


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
