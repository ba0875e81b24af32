"""What there is more of before events than at other times: paired rate ratios of many items at once.

The windows of one recurrence are alike but for the label "right before the event". So the labels can be
dealt anew, recurrence by recurrence, and what chance makes of the very same counts can be seen: bursts,
items that go together and rare ones included. An item is said to be lifted only when

- its own interval excludes no change, with the spread between windows and between recurrences in it,
- it survives Benjamini-Hochberg over all items that were tested, and
- its score is beyond what the highest of all items reaches in 95 % of the deals (max statistic).
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import numpy.typing as npt

__all__ = ["ALPHA", "Lifts", "benjamini_hochberg", "lifts", "normal_tail"]

ALPHA = 0.05
Z = 1.645  # of the lower bound: 95 %, one-sided
HALF = 0.5  # added to counts, so that none is nothing and a logarithm exists
DEALS = 399
# Six standard deviations are all that one recurrence can say: a single burst does not carry the others.
MOST_EACH = 6.0

Floats = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Lifts:
    """One number an item. `low` is the lower bound of the log rate ratio, `lift` the ratio itself.

    `adjusted` is the chance that the highest of all items scores as high when labels are dealt;
    `smallest` the smallest that it can be with so many windows.
    """

    lift: Floats
    low: Floats
    p_value: Floats
    q_value: Floats
    adjusted: Floats
    smallest: float
    spread: Floats  # dispersion: 1 is that of samples alone
    recurrences: int
    tested: int

    def found(self) -> npt.NDArray[np.bool_]:
        """Those that pass all three."""
        passed: npt.NDArray[np.bool_] = (
            (self.low > 0) & (self.q_value <= ALPHA) & (self.adjusted <= ALPHA)
        )
        return passed


def lifts(
    counts: npt.NDArray[np.int64], there: npt.NDArray[np.bool_] | None = None, *, seed: int = 0
) -> Lifts:
    """`counts[item][recurrence][window]`, all windows of one length, window 0 the one before the event.

    A window that is not `there` (`[recurrence][window]`) was not recorded and takes no part.
    """
    items, recurrences, windows = counts.shape
    there = np.ones((recurrences, windows), bool) if there is None else there
    if not items or not recurrences or (there.sum(axis=1) < 2).any() or not there[:, 0].all():
        none, one = np.zeros(items), np.ones(items)
        return Lifts(one, none, one, one, one, 1.0, one, recurrences, items)
    # [recurrence][window][item]: a deal then takes whole rows.
    rates = np.ascontiguousarray(np.moveaxis(counts * there[None], 0, 2), np.float64)
    alone, off, free = _left_out(rates, there)
    deals, is_all = _deals(there, seed)
    score, spread = _score(alone, off, free, np.zeros(recurrences, np.int64))
    # Functions that call each other have the same counts; of these one is enough to know the highest.
    _, distinct = np.unique(
        np.ascontiguousarray(counts.reshape(items, -1)), axis=0, return_index=True
    )
    few, fewer = (np.ascontiguousarray(one[:, :, distinct]) for one in (alone, off))
    highest = np.array([float(_score(few, fewer, free, deal)[0].max()) for deal in deals])
    # The labels as they are are among all deals, but not among some of them.
    beyond = (highest[None, :] >= score[:, None] - 1e-9).sum(axis=1) + (0 if is_all else 1)
    whole = len(deals) + (0 if is_all else 1)
    lift, low = _bounds(rates, there, spread)
    p_value = normal_tail(score)
    return Lifts(
        lift,
        low,
        p_value,
        benjamini_hochberg(p_value),
        beyond / whole,
        1 / whole,
        spread,
        recurrences,
        items,
    )


def _deals(there: npt.NDArray[np.bool_], seed: int) -> tuple[npt.NDArray[np.int64], bool]:
    """Which window of each recurrence is called the one before the event: all ways, or some of them."""
    choices = [np.flatnonzero(row) for row in there]
    if math.prod(map(len, choices)) <= DEALS:
        grid = np.meshgrid(*choices, indexing="ij")
        return np.stack([one.ravel() for one in grid], axis=1), True
    chance = np.random.default_rng(seed)
    return np.stack([chance.choice(one, DEALS) for one in choices], axis=1), False


def _left_out(rates: Floats, there: npt.NDArray[np.bool_]) -> tuple[Floats, Floats, int]:
    """For every window, were it the labelled one: how far it stands out from the others of its
    recurrence (the signed root of Poisson's deviance), and how far those differ among themselves.
    """
    number = there.sum(axis=1)[:, None, None]
    total = rates.sum(axis=1, keepdims=True)
    rest = total - rates
    expected = total / number
    with np.errstate(divide="ignore", invalid="ignore"):
        deviance = 2 * (
            np.where(rates > 0, rates * np.log(rates / expected), 0.0)
            + np.where(rest > 0, rest * np.log(rest / (expected * (number - 1))), 0.0)
        )
    alone = np.sign(rates - expected) * np.sqrt(np.maximum(deviance, 0.0))
    mean = rest / (number - 1)
    squares = (rates**2).sum(axis=1, keepdims=True) - rates**2
    off = np.maximum(squares - (number - 1) * mean**2, 0.0) / np.maximum(mean, HALF)
    free = int((there.sum(axis=1) - 2).sum())
    return alone, off, max(1, free)


def _score(
    alone: Floats, off: Floats, free: int, label: npt.NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """Standard deviations by which each item stands out in the labelled windows, and its dispersion."""
    recurrences = len(label)
    spread = np.maximum(1.0, sum((off[r, w] for r, w in enumerate(label)), 0.0) / free)
    root = np.sqrt(spread)
    if recurrences == 1:
        return alone[0, label[0]] / root, spread
    each = (np.minimum(alone[r, w] / root, MOST_EACH) for r, w in enumerate(label))
    return sum(each, np.zeros_like(root)) / math.sqrt(recurrences), spread


def _bounds(rates: Floats, there: npt.NDArray[np.bool_], spread: Floats) -> tuple[Floats, Floats]:
    """The ratio, drawn towards 1 where counts are small, and the lower bound of its logarithm.

    Per recurrence, paired: what is usual differs from hour to hour. The bound has the spread of the windows
    and that between recurrences in it; of one recurrence, only the former.
    """
    before, rest = rates[:, 0], rates[:, 1:].sum(axis=1)
    mean = rest / (there.sum(axis=1) - 1)[:, None]
    ratio = np.log((before + HALF) / (mean + HALF))
    sampling = spread[None] * (1 / (before + HALF) + 1 / (rest + HALF))
    centre = ratio.mean(axis=0)
    between = ratio.var(axis=0, ddof=1) if len(ratio) > 1 else np.zeros_like(centre)
    error = np.sqrt(np.maximum(sampling.mean(axis=0), between) / len(ratio))
    return np.exp(centre), centre - Z * error


def normal_tail(score: Floats) -> Floats:
    """P(Z >= score)."""
    return np.array([0.5 * math.erfc(one / math.sqrt(2)) for one in score.tolist()])


def benjamini_hochberg(p_values: Floats) -> Floats:
    """The smallest false discovery rate at which each is still called.

    >>> benjamini_hochberg(np.array([0.01, 0.02, 0.5])).round(3).tolist()
    [0.03, 0.03, 0.5]
    """
    if not len(p_values):
        return p_values
    order = np.argsort(p_values)
    scaled = p_values[order] * len(p_values) / np.arange(1, len(p_values) + 1)
    made = np.empty_like(p_values)
    made[order] = np.minimum(1.0, np.minimum.accumulate(scaled[::-1])[::-1])
    return made
