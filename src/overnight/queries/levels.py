"""One number of a signal in the incident window, compared with the baseline and its noise."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from overnight.model.times import SECOND_US

if TYPE_CHECKING:
    from overnight.model.selection import Window
    from overnight.queries import case as cases
    from overnight.queries import signals

# Above the highest stretch of the baseline: a window that is chosen because of an event is a little higher by
# chance, and a number that matters is several times as high.
FACTOR = 1.5
# Of the incident window: with less, an interval in which it rose may be missing.
COVERED = 0.5


@dataclasses.dataclass(frozen=True)
class Level:
    """The mean of the incident window; of the baseline its mean, and that of its highest stretch.

    A stretch is as long as the incident window. None: the baseline was not recorded.
    """

    now: float
    before: float | None = None
    highest: float | None = None

    def rose(self, floor: float) -> bool | None:
        """Return whether it is above the floor and above the baseline; None where that is not known."""
        if self.now <= floor:
            return False
        return None if self.highest is None else self.now > FACTOR * self.highest

    def scaled(self, factor: float) -> Level:
        parts = (self.now, self.before, self.highest)
        now, before, highest = (None if part is None else part * factor for part in parts)
        assert now is not None
        return Level(now, before, highest)


@dataclasses.dataclass(frozen=True)
class Series:
    """An amount in each interval, and what it is divided by: seconds, or another amount."""

    amount: signals.Floats
    base: signals.Floats

    def mean(self) -> float:
        total = float(self.base.sum())
        return float(self.amount.sum()) / total if total > 0 else 0.0

    def highest(self, length: int) -> float:
        """Return the highest mean of as many intervals in a row."""
        length = max(1, min(length, len(self.base)))
        sums = (np.convolve(part, np.ones(length), "valid") for part in (self.amount, self.base))
        amount, base = sums
        return float(np.divide(amount, base, out=np.zeros_like(amount), where=base > 0).max())


def compare(now: Series, before: Series | None) -> Level:
    if before is None or not len(before.base):
        return Level(now.mean())
    return Level(now.mean(), before.mean(), before.highest(len(now.base)))


def read_series(
    case: cases.Case,
    window: Window,
    signal: str,
    amounts: Collection[str],
    *,
    per: Collection[str] = (),
    keys: Collection[str] | None = None,
    end_us: int | None = None,
) -> Series | None:
    """Read the sum of some counters over the keys, per second or `per` the sum of others.

    Intervals that end after `end_us` are left out. A key without readings counts as 0. None: the signal was
    not recorded, or for less than half of the window.
    """
    rates = case.rates(signal, window, keys=keys, columns=(*amounts, *per))
    kept = rates.end_us <= (rates.end_us.max(initial=0) if end_us is None else end_us)
    seconds = rates.seconds[kept]
    wanted = min(window.end_us, end_us or window.end_us) - window.begin_us
    if not {*amounts, *per} <= rates.values.keys() or seconds.sum() < COVERED * wanted / SECOND_US:
        return None

    def add(columns: Collection[str]) -> signals.Floats:
        rises = (np.nansum(rates.values[name][kept], axis=1) * seconds for name in columns)
        return sum(rises, np.zeros(len(seconds)))

    return Series(add(amounts), add(per) if per else seconds)


def read_level(
    case: cases.Case,
    signal: str,
    amounts: Collection[str],
    *,
    per: Collection[str] = (),
    keys: Collection[str] | None = None,
    end_us: int | None = None,
    total: bool = False,
) -> Level | None:
    """Compare the incident window with the baseline; None where the window was not recorded.

    `total` gives the whole rise in the window, and that in as much of the baseline.
    """
    now = read_series(case, case.window, signal, amounts, per=per, keys=keys, end_us=end_us)
    if now is None:
        return None
    level = compare(now, read_series(case, case.baseline, signal, amounts, per=per, keys=keys))
    return level.scaled(float(now.base.sum())) if total else level
