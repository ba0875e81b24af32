"""Chance, as it is on this fleet: what else could have come out had the labels meant nothing."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

__all__ = [
    "Booleans",
    "Floats",
    "Integers",
    "adjusted",
    "draws_for",
    "false_discovery",
    "fraction",
    "generator",
    "shuffled",
    "smallest_p",
    "smallest_table_p",
]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

DRAWS = 4999  # the smallest p is 1 in 5000; twenty times finer than what is needed to decide at 5 %
CELLS = 10_000_000  # numbers held at once
# The same evidence gives the same answer, here and wherever a bundle of it is opened.
SEED = 31407
EQUAL = 1e-9  # sums of floats that ought to be equal


def generator() -> np.random.Generator:
    """Chance that repeats itself."""
    return np.random.default_rng(SEED)


def draws_for(cells: int) -> int:
    """How many draws of so many numbers are affordable; never so few that 5 % cannot be seen."""
    return max(199, min(DRAWS, CELLS // max(1, cells)))


def adjusted(seen: Floats, largest: Floats) -> Floats:
    """The p of each value against the largest of all in each draw: as many looks as were had are paid for.

    What was seen counts as one of the draws, so that no p is 0.
    """
    order = np.sort(largest)
    above = len(order) - np.searchsorted(order, seen - EQUAL, side="left")
    return np.asarray((1 + above) / (1 + len(order)), np.float64)


def shuffled(values: Floats, strata: Integers, draws: int, chance: np.random.Generator) -> Floats:
    """`values` dealt out anew within each stratum, a row a draw."""
    keys = strata[None, :] + chance.random((draws, len(values)))
    rows = np.empty((draws, len(values)))
    rows[:, np.argsort(strata, kind="stable")] = values[np.argsort(keys, axis=1)]
    return rows


def smallest_p(hosts: int, group: int, sick: int) -> float:
    """The smallest p that a group of hosts can get when so many of all are sick.

    All sick hosts in the group, or, where there are more of them, the group the sickest of all.

    >>> round(1 / smallest_p(12, 3, 3))
    220
    """
    if not 0 < group < hosts or sick <= 0:
        return 1.0
    if sick <= group:
        return math.comb(group, sick) / math.comb(hosts, sick)
    return 1 / math.comb(hosts, group)


def smallest_table_p(hosts: int, group: int, sick: int) -> float:
    """The smallest p of Fisher's test with these margins, towards more sick hosts in the group.

    >>> round(1 / smallest_table_p(12, 3, 3)), round(smallest_table_p(4, 2, 2), 3)
    (220, 0.167)
    """
    if not 0 < group < hosts or not 0 < sick < hosts:
        return 1.0
    most = min(group, sick)
    return math.comb(group, most) * math.comb(hosts - group, sick - most) / math.comb(hosts, sick)


def false_discovery(p: Floats) -> Floats:
    """Benjamini and Hochberg's q: the share of false ones among all that are no less sure.

    >>> false_discovery(np.array([0.01, 0.04, 0.03])).round(3).tolist()
    [0.03, 0.04, 0.04]
    """
    order = np.argsort(p)
    q = p[order] * len(p) / np.arange(1, len(p) + 1)
    found = np.empty(len(p))
    found[order] = np.minimum(1.0, np.minimum.accumulate(q[::-1])[::-1])
    return found


def fraction(p: float) -> str:
    """A p in words: small ones as one in so many.

    >>> fraction(1 / 220), fraction(0.031), fraction(1.0)
    ('1/220', '0.031', '1')
    """
    return f"1/{round(1 / p):,}" if 0 < p < 0.01 else f"{p:.2g}"
