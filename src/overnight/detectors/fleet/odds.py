"""The statistics of drift: columns of a table that separate sick hosts from healthy ones. Pure; see docs/fleet.md.

Plain lift prefers rare items, so columns are ranked by the lower 95 % bound of the log odds ratio.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import numpy as np

from overnight.detectors import _rate_ratios
from overnight.detectors.fleet import permutation

Booleans = permutation.Booleans
Floats = permutation.Floats

QUANTILE = 1.96  # two-sided 95 % of the normal distribution


class Table(NamedTuple):
    """Counts of hosts, one number per column: sick with and without an item, healthy with and without."""

    a: Floats
    b: Floats
    c: Floats
    d: Floats


@dataclasses.dataclass(frozen=True)
class Column:
    """An item that some hosts have; items that are equal or opposite on every host are one column."""

    items: tuple[
        tuple[int, bool], ...
    ]  # (index, present); not present: its absence goes with being sick
    sick_with: int
    sick: int  # hosts on which it is known
    healthy_with: int
    healthy: int
    log_odds: float
    low: float  # the lower bound, by which columns are ranked
    lift: float  # probability that a host with it is sick, by that of any host
    p: float  # Fisher, two-sided
    q: float  # Benjamini and Hochberg, over all columns
    p_max: float  # against the best of all columns when sick hosts are chosen at random


def lift(table: Table) -> Floats:
    """Return the share of sick hosts among those that have it, by the share among all."""
    a, b, c, d = table
    having, sick, count = a + c, a + b, a + b + c + d
    return np.where((having > 0) & (sick > 0), a * count / np.maximum(1e-9, having * sick), 0.0)


def bound(table: Table) -> tuple[Floats, Floats]:
    """Return log-odds and its lower 95 % bound in its direction."""
    a, b, c, d = (count + 0.5 for count in table)
    log_odds = np.log(a * d / (b * c))
    return log_odds, np.abs(log_odds) - QUANTILE * np.sqrt(1 / a + 1 / b + 1 / c + 1 / d)


def rank(
    present: Booleans,  # [host][item]
    known: Booleans,  # whether `present` is known there
    sick: Booleans,
    chance: np.random.Generator,
    draws: int | None = None,
) -> tuple[tuple[Column, ...], int]:
    """Rank columns that differ between hosts, the surest first; return also the number of draws for `p_max`."""
    has = present & known
    ill = sick.astype(np.float64)
    varies = has.any(axis=0) & (known & ~has).any(axis=0)
    where = np.flatnonzero(varies)
    if len(where) == 0:
        return (), 0
    has, known = has[:, where], known[:, where]
    log_odds, _ = bound(_counts(has, known, ill))
    flip = log_odds < 0
    has = np.where(flip, known & ~has, has)
    groups: dict[bytes, list[int]] = {}
    packed = np.packbits(np.concatenate((has, known), axis=0), axis=0).T
    for number, row in enumerate(np.ascontiguousarray(packed)):
        groups.setdefault(row.tobytes(), []).append(number)
    first = np.array([numbers[0] for numbers in groups.values()])
    has, known = has[:, first], known[:, first]
    table = _counts(has, known, ill)
    log_odds, low = bound(table)
    lifts = lift(table)
    many = draws or permutation.draws_for(3 * len(first))
    rows = permutation.shuffled(ill, np.zeros(len(ill), np.int64), many, chance)
    best = np.concatenate(
        [bound(_counts(has, known, some))[1].max(axis=1) for some in np.array_split(rows, 8)]
    )
    p_max = permutation.adjusted(low, best)
    p = fisher(table)
    a, b, c, d = table
    q = _rate_ratios.benjamini_hochberg(p)
    ranked = [
        Column(
            tuple((int(where[n]), not bool(flip[n])) for n in numbers),
            int(a[k]), int(a[k] + b[k]), int(c[k]), int(c[k] + d[k]),
            float(log_odds[k]), float(low[k]), float(lifts[k]), float(p[k]), float(q[k]), float(p_max[k]),
        )
        for k, numbers in enumerate(groups.values())
    ]  # fmt: skip
    return tuple(sorted(ranked, key=lambda row: (-row.low, row.p, row.items))), many


def smallest_p(sick: int, healthy: int, draws: int) -> float:
    """Return the smallest attainable `p_max`: of a column that only sick hosts have, or only healthy ones."""
    if not sick or not healthy:
        return 1.0
    ways = math.comb(sick + healthy, sick)
    return min(1.0, max((2 if sick == healthy else 1) / ways, 1 / (draws + 1)))


def _counts(has: Booleans, known: Booleans, ill: Floats) -> Table:
    """Count sick with and without, healthy with and without; one row per row of `ill`."""
    with_it, counted = has.astype(np.float64), known.astype(np.float64)
    a = ill @ with_it
    b = ill @ counted - a
    c = with_it.sum(axis=0) - a
    return Table(a, b, c, counted.sum(axis=0) - a - b - c)


def fisher(table: Table) -> Floats:
    """Compute Fisher's exact test of each table, two-sided: all tables with these margins that are not likelier.

    scipy's own takes one table at a time, 0.3 ms each; here there are thousands.
    """
    from scipy import special

    def log_ways(of: Floats, take: Floats) -> Floats:
        whole, taken, left = (special.gammaln(count + 1) for count in (of, take, of - take))
        return np.asarray(whole - taken - left, np.float64)

    a, b, c, d = table
    having, sick, count = a + c, a + b, a + b + c + d
    cells = np.arange(int(max(sick.max(), 0)) + 1, dtype=np.float64)[None, :]
    row, column, total = sick[:, None], having[:, None], count[:, None]
    possible = (cells <= np.minimum(row, column)) & (cells >= row + column - total)
    first = np.where(possible, cells, np.minimum(row, column))
    log_p = log_ways(row, first) + log_ways(total - row, column - first)
    log_p -= log_ways(total, column)
    seen = np.take_along_axis(log_p, a[:, None].astype(np.int64), axis=1)
    # The margin is scipy's, for tables that differ only by rounding.
    return np.asarray(
        np.minimum(
            1.0, np.where(possible & (log_p <= seen + 1e-7), np.exp(log_p), 0.0).sum(axis=1)
        ),
        np.float64,
    )
