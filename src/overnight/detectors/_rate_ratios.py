"""Items that are more frequent before events than at other times: paired rate ratios of many items at once.

The windows of one recurrence differ only in the label "right before the event", so labels are permuted to see
what chance makes of the same counts. Each labelled window is compared with those that lie to it as the event's
do: with a drift over minutes, labels compared with all other windows gave up to 39 false alarms of 100, these 6.
An item is lifted only if

- its own interval excludes no change, with the spread between windows and between recurrences in it,
- it survives Benjamini-Hochberg over all tested items, and
- its score is beyond what the highest of all items reaches in 95 % of the permutations (max statistic).
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import numpy.typing as npt

ALPHA = 0.05
Z = 1.645  # of the lower bound: 95 %, one-sided
HALF = 0.5  # added to counts, so that zero has a logarithm
PERMUTATIONS = 399
# One recurrence counts with at most six standard deviations: a single burst does not carry the others.
MAX_EACH = 6.0

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclasses.dataclass(frozen=True)
class Lifts:
    """One number per item; `low` is the lower bound of the logarithm of the rate ratio `lift`."""

    lift: Floats
    low: Floats
    q_value: Floats
    adjusted: Floats  # the chance that the highest of all items scores as high with permuted labels
    smallest: float  # that `adjusted` can be with this number of windows
    spread: Floats  # dispersion: 1 is that of samples alone
    recurrences: int
    tested: int

    def passed(self) -> Bools:
        """Return which items pass all three tests."""
        passed: Bools = (self.low > 0) & (self.q_value <= ALPHA) & (self.adjusted <= ALPHA)
        return passed


def compute_lifts(
    counts: npt.NDArray[np.int64],
    is_there: Bools | None = None,
    compared: Bools | None = None,
    *,
    seed: int = 0,
) -> Lifts:
    """Compute lifts from `counts[item][recurrence][window]`; window 0 is the one before the event.

    Windows that are not `is_there[recurrence][window]` take no part. A window may get the label if
    `compared[recurrence][window]` names others to compare it with; by default all of its recurrence.
    """
    items, recurrences, windows = counts.shape
    is_there = np.ones((recurrences, windows), bool) if is_there is None else is_there
    if compared is None:
        compared = is_there[:, :, None] & is_there[:, None, :] & ~np.eye(windows, dtype=bool)
    number = compared.sum(axis=2)
    if not items or not recurrences or not number[:, 0].all() or (number > 0).sum() <= recurrences:
        zeros, ones = np.zeros(items), np.ones(items)
        return Lifts(ones, zeros, ones, ones, 1.0, ones, recurrences, items)
    first, same = _distinct(counts)
    few = counts[first] * is_there[None]
    deviations = [
        _deviations(few[:, r].T.astype(np.float64), compared[r]) for r in range(recurrences)
    ]
    permutations, is_all = _permute(number > 0, seed)
    score, spread = _score(deviations, number, np.zeros(recurrences, np.int64))
    highest = np.array([float(_score(deviations, number, row)[0].max()) for row in permutations])
    # The actual labels are among all permutations, but not among a sample of them.
    extra = 0 if is_all else 1
    highest.sort()
    beyond = len(permutations) - np.searchsorted(highest, score - 1e-9) + extra
    whole = len(permutations) + extra
    lift, low = _bounds(few, compared[:, 0], spread)
    return Lifts(
        lift[same],
        low[same],
        benjamini_hochberg(normal_tail(score)[same]),
        (beyond / whole)[same],
        1 / whole,
        spread[same],
        recurrences,
        items,
    )


def _distinct(counts: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return items of which no two have the same counts, and for each item the one it equals.

    By a sum with random weights, because sorting whole rows takes seconds: two of 100,000 collide once in 10^9.
    """
    flat = counts.reshape(len(counts), -1).astype(np.uint64)
    weights = np.random.default_rng(7).integers(0, 1 << 63, flat.shape[1], np.uint64) * 2 + 1
    with np.errstate(over="ignore"):
        _, first, same = np.unique(flat @ weights, return_index=True, return_inverse=True)
    return first, same


def _permute(may: Bools, seed: int) -> tuple[npt.NDArray[np.int64], bool]:
    """Choose the labelled window of each recurrence: in all ways, or in a sample of them."""
    choices = [np.flatnonzero(row) for row in may]
    if math.prod(map(len, choices)) <= PERMUTATIONS:
        grid = np.meshgrid(*choices, indexing="ij")
        return np.stack([axis.ravel() for axis in grid], axis=1), True
    chance = np.random.default_rng(seed)
    return np.stack([chance.choice(windows, PERMUTATIONS) for windows in choices], axis=1), False


def _deviations(rates: Floats, compared: Bools) -> tuple[Floats, Floats]:
    """Return for every window of one recurrence, if it had the label, how far it stands out from those it is
    compared with (the signed root of Poisson's deviance), and how far those differ among themselves.
    """
    alone, off = np.zeros_like(rates), np.zeros_like(rates)
    for window in np.flatnonzero(compared.any(axis=1)).tolist():
        others = rates[compared[window]]
        number, own = len(others), rates[window]
        rest = others.sum(axis=0)
        expected = (own + rest) / (number + 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            deviance = 2 * (
                np.where(own > 0, own * np.log(own / expected), 0.0)
                + np.where(rest > 0, rest * np.log(rest / (expected * number)), 0.0)
            )
        alone[window] = np.sign(own - expected) * np.sqrt(np.maximum(deviance, 0.0))
        mean = rest / number
        squares = np.maximum((others**2).sum(axis=0) - number * mean**2, 0.0)
        off[window] = squares / np.maximum(mean, HALF)
    return alone, off


def _score(
    deviations: list[tuple[Floats, Floats]],
    number: npt.NDArray[np.int64],
    label: npt.NDArray[np.int64],
) -> tuple[Floats, Floats]:
    """Return by how many standard deviations each item stands out in the labelled windows, and its dispersion."""
    recurrences = len(label)
    free = max(1, int(sum(number[r, w] - 1 for r, w in enumerate(label))))
    spread = np.maximum(1.0, sum((deviations[r][1][w] for r, w in enumerate(label)), 0.0) / free)
    root = np.sqrt(spread)
    if recurrences == 1:
        return deviations[0][0][label[0]] / root, spread
    each = (np.minimum(deviations[r][0][w] / root, MAX_EACH) for r, w in enumerate(label))
    return sum(each, np.zeros_like(root)) / math.sqrt(recurrences), spread


def _bounds(
    counts: npt.NDArray[np.int64], compared: Bools, spread: Floats
) -> tuple[Floats, Floats]:
    """Return the ratio, drawn towards 1 where counts are small, and the lower bound of its logarithm.

    Per recurrence, paired, because the baseline differs from hour to hour.
    """
    before = counts[:, :, 0].T.astype(np.float64)
    rest = (counts * compared[None]).sum(axis=2).T.astype(np.float64)
    mean = rest / compared.sum(axis=1)[:, None]
    ratio = np.log((before + HALF) / (mean + HALF))
    sampling = spread[None] * (1 / (before + HALF) + 1 / (rest + HALF))
    centre = ratio.mean(axis=0)
    between = ratio.var(axis=0, ddof=1) if len(ratio) > 1 else np.zeros_like(centre)
    error = np.sqrt(np.maximum(sampling.mean(axis=0), between) / len(ratio))
    return np.exp(centre), centre - Z * error


def normal_tail(score: Floats) -> Floats:
    """Return P(Z >= score)."""
    return np.array([0.5 * math.erfc(z / math.sqrt(2)) for z in score.tolist()])


def benjamini_hochberg(p_values: Floats) -> Floats:
    """Return the smallest false discovery rate at which each is still accepted.

    >>> benjamini_hochberg(np.array([0.01, 0.02, 0.5])).round(3).tolist()
    [0.03, 0.03, 0.5]
    """
    if not len(p_values):
        return p_values
    order = np.argsort(p_values)
    scaled = p_values[order] * len(p_values) / np.arange(1, len(p_values) + 1)
    q_values = np.empty_like(p_values)
    q_values[order] = np.minimum(1.0, np.minimum.accumulate(scaled[::-1])[::-1])
    return q_values
