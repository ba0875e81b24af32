"""The statistics of cohort skew: do hosts that share a label fail more or less often? Pure; see docs/fleet.md.

p is against the largest and the smallest statistic of any cohort in random assignments of hosts, which accounts for
bursts, for the number of labels and for both directions.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from overnight.detectors.fleet import permutation

Booleans = permutation.Booleans
Floats = permutation.Floats
Integers = permutation.Integers

UPTIME = "uptime"  # a label computed here, from the mean uptime while a host was watched
MIN_HOSTS = 2  # one host is not a cohort


@dataclasses.dataclass(frozen=True)
class Groups:
    """Every set of hosts that shares a label's value, and all (label, value) pairs with that set."""

    names: tuple[tuple[tuple[str, str], ...], ...]  # of each group
    member: Booleans  # [host][group]

    def labels(self, group: int) -> frozenset[str]:
        return frozenset(label for label, _ in self.names[group])


@dataclasses.dataclass(frozen=True)
class Cohort:
    """One set of hosts against the others; `p` is adjusted for all sets."""

    names: tuple[tuple[str, str], ...]
    hosts: int
    sick: int  # hosts with an event
    events: float
    seconds: float
    expected: float  # events at the rate of all hosts
    rate_ratio: float  # its rate by that of the others, with half an event added to each
    z: float
    p: float
    smallest: float  # p attainable with this number of sick hosts if it were the only set
    smallest_adjusted: float  # the same among all sets
    spared: bool  # fewer events than the others, not more


def form_groups(labels: Mapping[str, Sequence[str]]) -> Groups:
    """Form all cohorts of two hosts or more that are not the whole fleet; "" is an unknown value."""
    sets: dict[bytes, tuple[list[tuple[str, str]], Booleans]] = {}
    count = 0
    for label, values in labels.items():
        count = len(values)
        having: dict[str, list[int]] = {}
        for number, value in enumerate(values):
            having.setdefault(value, []).append(number)
        for value in sorted(having.keys() - {""}):
            if MIN_HOSTS <= len(having[value]) < count:
                member = np.zeros(count, np.bool_)
                member[having[value]] = True
                sets.setdefault(member.tobytes(), ([], member))[0].append((label, value))
    if not sets:
        return Groups((), np.zeros((count, 0), np.bool_))
    return Groups(
        tuple(tuple(names) for names, _ in sets.values()),
        np.stack([member for _, member in sets.values()], axis=1),
    )


def excess(events: Floats, seconds: Floats, strata: Integers) -> Floats:
    """Return the events of each host minus the number at the rate of its stratum."""
    count = int(strata.max()) + 1
    total = np.bincount(strata, events, count)
    time = np.bincount(strata, seconds, count)
    rate = np.divide(total, time, out=np.zeros(count), where=time > 0)
    return np.asarray(events - rate[strata] * seconds, np.float64)


def compare(
    events: Floats,
    seconds: Floats,
    groups: Groups,
    chance: np.random.Generator,
    draws: int | None = None,
) -> tuple[Cohort, ...]:
    """Compare every cohort with the others, the most striking first; p is adjusted for all of them."""
    count = len(events)
    if not groups.names or events.sum() == 0:
        return ()
    strata = np.zeros(count, np.int64)
    z, drawn = _statistics(events, seconds, groups.member, strata, chance, draws)
    high, low = permutation.either(z, -z, drawn)
    most, least = (
        np.maximum(_best(sign * events, seconds, groups.member, strata), sign * z)
        for sign in (1.0, -1.0)
    )
    best = np.minimum(*permutation.either(most, least, drawn))
    rows = []
    for g, names in enumerate(groups.names):
        member = groups.member[:, g]
        inside, watched = float(events[member].sum()), float(seconds[member].sum())
        outside, other = float(events[~member].sum()), float(seconds[~member].sum())
        sick, spared = int((events[member] > 0).sum()), bool(low[g] < high[g])
        rows.append(
            Cohort(
                names,
                int(member.sum()),
                sick,
                inside,
                watched,
                float(events.sum()) * watched / (watched + other),
                (inside + 0.5) / max(watched, 1e-9) / ((outside + 0.5) / max(other, 1e-9)),
                float(z[g]),
                float(min(high[g], low[g])),
                _smallest_p(count, int(member.sum()), int((events > 0).sum()), spared=spared),
                float(best[g]),
                spared,
            )
        )
    return tuple(sorted(rows, key=lambda row: (row.p, -round(abs(row.z), 6), row.spared)))


def _smallest_p(hosts: int, group: int, sick: int, *, spared: bool) -> float:
    """Return the smallest p with all sick hosts inside, or all healthy ones; if all are sick, their counts differ."""
    return permutation.smallest_p(hosts, group, (hosts - sick or hosts) if spared and sick else sick)  # fmt: skip


def within(
    events: Floats,
    seconds: Floats,
    member: Booleans,
    strata: Integers,
    chance: np.random.Generator,
    draws: int | None = None,
    spared: Sequence[bool] | bool = False,
) -> Floats:
    """Return the p of each cohort, one column of `member` each, with hosts permuted only within strata.

    That removes the effect of the strata. All cohorts share the draws; those that are `spared` have fewer events.
    """
    z, drawn = _statistics(events, seconds, member, strata, chance, draws)
    sign = np.where(spared, -1.0, 1.0)
    columns = zip((sign * z)[:, None], (sign * drawn).T, strict=True)
    return np.array([permutation.adjusted(seen, chances)[0] for seen, chances in columns])


def smallest_stratified(
    events: Floats, member: Booleans, strata: Integers, *, spared: bool = False
) -> float:
    """Return the smallest p that `within` can give: the product over the strata that have information."""
    size, taken, sick = (
        np.bincount(strata, weights).astype(int)
        for weights in (np.ones(len(strata)), member, events > 0)
    )
    informative = (taken > 0) & (taken < size) & (sick > 0)
    products = (
        _smallest_p(int(size[s]), int(taken[s]), int(sick[s]), spared=spared)
        for s in np.flatnonzero(informative)
    )
    return math.prod(products, start=1.0)


def _statistics(
    events: Floats,
    seconds: Floats,
    member: Booleans,
    strata: Integers,
    chance: np.random.Generator,
    draws: int | None,
) -> tuple[Floats, Floats]:
    """Return the excess of each cohort in units of its spread under chance: observed, and one row per draw."""
    scores = excess(events, seconds, strata)
    size = np.bincount(strata)
    means = np.bincount(strata, scores) / np.maximum(size, 1)
    squares = np.bincount(strata, (scores - means[strata]) ** 2)
    spread = np.divide(squares, size - 1, out=np.zeros(len(size)), where=size > 1)
    # How many of each stratum are in each cohort: [stratum][cohort].
    taken = np.zeros((len(size), member.shape[1]))
    np.add.at(taken, strata, member)
    mean = means @ taken
    # Drawing `taken` of `size` without replacement.
    variance = (spread / np.maximum(size, 1)) @ (taken * (size[:, None] - taken))
    scale = np.sqrt(np.maximum(variance, 1e-300))
    varies = variance > 1e-12
    group, host = np.nonzero(member.T)
    total = np.bincount(group, scores[host], member.shape[1])
    seen = np.where(varies, (total - mean) / scale, 0.0)
    count = draws or permutation.draws_for(len(scores))
    drawn = permutation.shuffled_sums(scores, strata, member, count, chance)
    return seen, np.where(varies, (drawn - mean) / scale, 0.0)


def _best(events: Floats, seconds: Floats, member: Booleans, strata: Integers) -> Floats:
    """Return the largest statistic attainable for each cohort: with the hosts of the most excess."""
    scores = excess(events, seconds, strata)
    scores = scores - scores.mean()
    count = len(scores)
    sizes = member.sum(axis=0)
    sums = np.concatenate(([0.0], np.cumsum(np.sort(scores)[::-1])))
    variance = sizes * (count - sizes) / count * (scores**2).sum() / max(1, count - 1)
    scale = np.sqrt(np.maximum(variance, 1e-300))
    return np.where(variance > 1e-12, sums[sizes] / scale, 0.0)


def codes(*columns: Sequence[str]) -> Integers:
    """Number each combination of values: the strata of several labels together."""
    numbers: dict[tuple[str, ...], int] = {}
    rows = zip(*columns, strict=True)
    return np.array([numbers.setdefault(tuple(row), len(numbers)) for row in rows], np.int64)


def uptime_band(uptime_seconds: float) -> str:
    """Return the band of a host's mean uptime while it was watched.

    >>> uptime_band(5 * 86400)
    '3d to 7d'
    """
    days = uptime_seconds / 86400
    edges = (0.0, 1.0, 3.0, 7.0, 14.0, 30.0, math.inf)
    for low, high in itertools.pairwise(edges):
        if days < high:
            return f"{low:g}d to {high:g}d" if high < math.inf else f"over {low:g}d"
    return ""
