"""What there is more of before events than at other times: paired rate ratios of many items at once.

The windows of one recurrence are alike but for the label "right before the event". So the labels can be
dealt anew, recurrence by recurrence, and what chance makes of the very same counts can be seen: bursts,
items that go together and rare ones included. For that, wherever a label is dealt, its window must be
compared with others that lie to it as those of the event lie to the event's (`against`): load that drifts
makes a window stand out from distant ones more than from its neighbours. With the drift of minutes, labels
compared with all other windows gave up to 39 false alarms of 100, these 6. An item is said to be lifted
only when

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
Bools = npt.NDArray[np.bool_]


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

    def found(self) -> Bools:
        """Those that pass all three."""
        passed: Bools = (self.low > 0) & (self.q_value <= ALPHA) & (self.adjusted <= ALPHA)
        return passed


def lifts(
    counts: npt.NDArray[np.int64],
    there: Bools | None = None,
    against: Bools | None = None,
    *,
    seed: int = 0,
) -> Lifts:
    """`counts[item][recurrence][window]`, all windows of one length, window 0 the one before the event.

    A window that is not `there` (`[recurrence][window]`) was not recorded and takes no part. A window may
    be dealt the label where `against[recurrence][window]` names others, the ones that it is compared with;
    without it, each is compared with all others of its recurrence.
    """
    items, recurrences, windows = counts.shape
    there = np.ones((recurrences, windows), bool) if there is None else there
    if against is None:
        against = there[:, :, None] & there[:, None, :] & ~np.eye(windows, dtype=bool)
    number = against.sum(axis=2)
    if not items or not recurrences or not number[:, 0].all() or (number > 0).sum() <= recurrences:
        none, one = np.zeros(items), np.ones(items)
        return Lifts(one, none, one, one, one, 1.0, one, recurrences, items)
    first, same = _distinct(counts)
    few = counts[first] * there[None]
    stands = [_stands_out(few[:, r].T.astype(np.float64), against[r]) for r in range(recurrences)]
    deals, is_all = _deals(number > 0, seed)
    score, spread = _score(stands, number, np.zeros(recurrences, np.int64))
    highest = np.array([float(_score(stands, number, deal)[0].max()) for deal in deals])
    # The labels as they are are among all deals, but not among some of them.
    extra = 0 if is_all else 1
    highest.sort()
    beyond = len(deals) - np.searchsorted(highest, score - 1e-9) + extra
    whole = len(deals) + extra
    lift, low = _bounds(few, against[:, 0], spread)
    p_value = normal_tail(score)[same]
    return Lifts(
        lift[same],
        low[same],
        p_value,
        benjamini_hochberg(p_value),
        (beyond / whole)[same],
        1 / whole,
        spread[same],
        recurrences,
        items,
    )


def _distinct(counts: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Items of which no two have the same counts, and for each item which of these it is like.

    Functions that call each other are alike, most of tens of thousands. By a sum with random weights, for
    to sort whole rows takes seconds: that two of 100,000 meet by chance is one in 10^9.
    """
    flat = counts.reshape(len(counts), -1).astype(np.uint64)
    weights = np.random.default_rng(7).integers(0, 1 << 63, flat.shape[1], np.uint64) * 2 + 1
    with np.errstate(over="ignore"):
        _, first, same = np.unique(flat @ weights, return_index=True, return_inverse=True)
    return first, same


def _deals(may: Bools, seed: int) -> tuple[npt.NDArray[np.int64], bool]:
    """Which window of each recurrence is called the one before the event: all ways, or some of them."""
    choices = [np.flatnonzero(row) for row in may]
    if math.prod(map(len, choices)) <= DEALS:
        grid = np.meshgrid(*choices, indexing="ij")
        return np.stack([one.ravel() for one in grid], axis=1), True
    chance = np.random.default_rng(seed)
    return np.stack([chance.choice(one, DEALS) for one in choices], axis=1), False


def _stands_out(rates: Floats, against: Bools) -> tuple[Floats, Floats]:
    """For every window of one recurrence, were it the labelled one: how far it stands out from those it
    is compared with (the signed root of Poisson's deviance), and how far those differ among themselves.
    """
    alone, off = np.zeros_like(rates), np.zeros_like(rates)
    for window in np.flatnonzero(against.any(axis=1)).tolist():
        others = rates[against[window]]
        number, mine = len(others), rates[window]
        rest = others.sum(axis=0)
        expected = (mine + rest) / (number + 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            deviance = 2 * (
                np.where(mine > 0, mine * np.log(mine / expected), 0.0)
                + np.where(rest > 0, rest * np.log(rest / (expected * number)), 0.0)
            )
        alone[window] = np.sign(mine - expected) * np.sqrt(np.maximum(deviance, 0.0))
        mean = rest / number
        squares = np.maximum((others**2).sum(axis=0) - number * mean**2, 0.0)
        off[window] = squares / np.maximum(mean, HALF)
    return alone, off


def _score(
    stands: list[tuple[Floats, Floats]],
    number: npt.NDArray[np.int64],
    label: npt.NDArray[np.int64],
) -> tuple[Floats, Floats]:
    """Standard deviations by which each item stands out in the labelled windows, and its dispersion."""
    recurrences = len(label)
    free = max(1, int(sum(number[r, w] - 1 for r, w in enumerate(label))))
    spread = np.maximum(1.0, sum((stands[r][1][w] for r, w in enumerate(label)), 0.0) / free)
    root = np.sqrt(spread)
    if recurrences == 1:
        return stands[0][0][label[0]] / root, spread
    each = (np.minimum(stands[r][0][w] / root, MOST_EACH) for r, w in enumerate(label))
    return sum(each, np.zeros_like(root)) / math.sqrt(recurrences), spread


def _bounds(counts: npt.NDArray[np.int64], against: Bools, spread: Floats) -> tuple[Floats, Floats]:
    """The ratio, drawn towards 1 where counts are small, and the lower bound of its logarithm.

    Per recurrence, paired: what is usual differs from hour to hour. The bound has the spread of the windows
    and that between recurrences in it; of one recurrence, only the former.
    """
    before = counts[:, :, 0].T.astype(np.float64)
    rest = (counts * against[None]).sum(axis=2).T.astype(np.float64)
    mean = rest / against.sum(axis=1)[:, None]
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
