"""Permutation tests: the results that chance gives on this very fleet if labels mean nothing."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

DRAWS = 4999  # the smallest p is 1/5000: fine enough to decide at 5 %
CELLS = 10_000_000  # numbers that are drawn for one test
CHUNK = 400_000  # numbers in memory at once
# The same evidence gives the same answer, also in a bundle on another machine.
SEED = 31407
EQUAL = 1e-9  # tolerance for sums of floats that should be equal


def generator() -> np.random.Generator:
    return np.random.default_rng(SEED)


def draws_for(cells: int) -> int:
    """Return the number of draws that fits in memory; never so few that 5 % cannot be decided."""
    return max(199, min(DRAWS, CELLS // max(1, cells)))


def adjusted(seen: Floats, largest: Floats) -> Floats:
    """Return the p of each value against the largest of all in each draw; the observed value is one more draw."""
    order = np.sort(largest)
    above = len(order) - np.searchsorted(order, seen - EQUAL, side="left")
    return np.asarray((1 + above) / (1 + len(order)), np.float64)


def either(high: Floats, low: Floats, drawn: Floats) -> tuple[Floats, Floats]:
    """Return the p of values as the largest and, with their sign changed, as the smallest of their draws.

    Both are adjusted for all values and for the two directions. Each is compared with its own side: bursts make
    the largest vary much more than the smallest.
    """
    top, bottom = drawn.max(axis=1), -drawn.min(axis=1)
    least = -np.minimum(adjusted(top, top), adjusted(bottom, bottom))
    return adjusted(-adjusted(high, top), least), adjusted(-adjusted(low, bottom), least)


def shuffled(values: Floats, strata: Integers, draws: int, chance: np.random.Generator) -> Floats:
    """Permute `values` within each stratum, one row per draw."""
    keys = strata[None, :] + chance.random((draws, len(values)))
    rows = np.empty((draws, len(values)))
    rows[:, np.argsort(strata, kind="stable")] = values[np.argsort(keys, axis=1)]
    return rows


def shuffled_sums(
    values: Floats, strata: Integers, member: Booleans, draws: int, chance: np.random.Generator
) -> Floats:
    """Permute `values` within each stratum, and return the sum over each group: one row per draw."""
    group, host = np.nonzero(member.T)
    filled, starts = np.unique(group, return_index=True)  # an empty group has a sum of 0
    sums = np.zeros((draws, member.shape[1]))
    # A few draws at a time, from the same random numbers: all draws of 10,000 hosts would take 400 MB.
    step = max(1, CHUNK // max(len(values), len(host)))
    for first in range(0, draws, step):
        rows = shuffled(values, strata, min(step, draws - first), chance)
        if len(filled):
            picked = np.take(rows, host, axis=1)
            sums[first : first + step, filled] = np.add.reduceat(picked, starts, axis=1)
    return sums


def smallest_p(hosts: int, group: int, sick: int) -> float:
    """Return the smallest p that a group can get: with all sick hosts, or only sick ones where there are more.

    >>> round(1 / smallest_p(12, 3, 3))
    220
    """
    if not 0 < group < hosts or sick <= 0:
        return 1.0
    if sick <= group:
        return math.comb(group, sick) / math.comb(hosts, sick)
    return 1 / math.comb(hosts, group)
