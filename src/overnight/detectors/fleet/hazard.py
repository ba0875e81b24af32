"""The statistics of uptime hazard: do hosts fail more often the longer they have been up? Pure; see docs/fleet.md.

The null distribution moves each host's events, with their bursts, to a random host (in proportion to watched time)
and a random moment there: a constant hazard is not changed by that.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np

from overnight.detectors.fleet import permutation
from overnight.queries import rates

Floats = permutation.Floats
Integers = permutation.Integers

DAY = 86400.0
# Hours first, then days, then weeks: state accumulates by the cron job, the night or the release.
EDGES = tuple(DAY * d for d in (0.25, 0.5, 1, 2, 3, 5, 7, 10, 14, 21, 30, 45, 60, 90, 180))
SHARE = 0.05  # of the watched time on each side of an edge: less cannot be compared
BOOTSTRAPS = 499
MAX_CANDIDATES = 200
# Of the log-likelihood, for 95 %. The position of a step is not a regular parameter: chi-squared's 1.92
# covers 89 % (simulated). This is half of the 7.35 of thresholds (Hansen, Econometrica 68, 2000) and covers 95 %.
DROP = 3.68


@dataclasses.dataclass(frozen=True)
class Timeline:
    """Watched time in seconds, spell by spell and host by host, and the events in it."""

    host: Integers  # of each spell, ascending from 0
    uptime: Floats  # at the begin of each spell
    seconds: Floats
    event_spell: Integers
    event_into: Floats

    @property
    def event_uptime(self) -> Floats:
        return np.asarray(self.uptime[self.event_spell] + self.event_into, np.float64)

    @property
    def event_host(self) -> Integers:
        return np.asarray(self.host[self.event_spell], np.int64)

    def above(self, edges: Floats) -> Floats:
        """Return the watched seconds of each spell beyond each edge of uptime: [spell][edge]."""
        end = (self.uptime + self.seconds)[:, None]
        return np.maximum(0.0, end - np.maximum(self.uptime[:, None], edges[None, :]))


@dataclasses.dataclass(frozen=True)
class Band:
    """Events and watched seconds of a band of uptime, with the exact 95 % interval of the rate."""

    low: float
    high: float
    events: int
    seconds: float
    rate_low: float
    rate_high: float


@dataclasses.dataclass(frozen=True)
class Rise:
    """The contrast that stands out most. `p` is adjusted for all edges and for bursts on one host."""

    edge: float
    z: float  # below 0: fewer events beyond the edge
    p: float
    smallest: float  # p if all events were on the smaller side of an edge


@dataclasses.dataclass(frozen=True)
class Onset:
    """The uptime from which the rate differs, with a 95 % interval that covers bootstrap and likelihood."""

    uptime: float
    low: float
    high: float
    rate_ratio: float  # beyond by before, with half an event added to each


def bands(line: Timeline) -> tuple[Band, ...]:
    """Fit the Poisson regression on bands: events by watched time; bands without time are left out."""
    cuts = np.array([0.0, *EDGES, np.inf])
    seconds = -np.diff(line.above(cuts).sum(axis=0))
    counts = np.histogram(line.event_uptime, cuts)[0]
    return tuple(
        Band(float(low), float(high), int(count), float(time), *rates.bound_rate(count, time))
        for (low, high), count, time in zip(itertools.pairwise(cuts), counts, seconds, strict=True)
        if time > 0
    )


def find_rise(
    line: Timeline,
    chance: np.random.Generator,
    draws: int | None = None,
    *,
    same_host: bool = False,
) -> Rise | None:
    """Find the strongest contrast; None without events, or where all hosts were watched at one uptime.

    With `same_host` events move only along their own host, which removes all other differences between hosts.
    """
    edges = np.array(EDGES)
    share = line.above(edges).sum(axis=0) / line.seconds.sum()
    kept = (share >= SHARE) & (share <= 1 - SHARE)
    edges, share = edges[kept], share[kept]
    uptime = line.event_uptime
    count = len(uptime)
    if count == 0 or len(edges) == 0:
        return None
    scale = np.sqrt(count * share * (1 - share))
    z = ((uptime[:, None] >= edges).sum(axis=0) - count * share) / scale
    many = draws or permutation.draws_for(4 * count)
    moved = _moved(line, chance, many, same_host=same_host)
    drawn = np.stack([(moved >= edge).sum(axis=1) for edge in edges], axis=1)
    largest = np.abs((drawn - count * share) / scale).max(axis=1)
    strongest = int(np.abs(z).argmax())
    sick = len(np.unique(line.event_host))
    smallest = max(float(np.minimum(share, 1 - share).min()) ** sick, 1 / (many + 1))
    p = permutation.adjusted(np.abs(z), largest)
    return Rise(float(edges[strongest]), float(z[strongest]), float(p[strongest]), smallest)


def _moved(line: Timeline, chance: np.random.Generator, draws: int, *, same_host: bool) -> Floats:
    """Move the events to random times, with their distances, and return their uptimes, one row per draw."""
    begins = np.concatenate(([0.0], np.cumsum(line.seconds)))
    hosts = int(line.host.max()) + 1
    first = np.searchsorted(line.host, np.arange(hosts))
    start = begins[first]
    length = np.add.reduceat(line.seconds, first)
    owner = line.event_host
    sick, pattern = np.unique(owner, return_inverse=True)
    into = begins[line.event_spell] + line.event_into - start[owner]
    if same_host:
        target = np.broadcast_to(sick, (draws, len(sick)))
    else:
        target = chance.choice(hosts, (draws, len(sick)), p=length / length.sum())
    shift = chance.random((draws, len(sick))) * length[target]
    there = target[:, pattern]
    position = start[there] + np.mod(into[None, :] + shift[:, pattern], length[there])
    spell = np.clip(np.searchsorted(begins, position, side="right") - 1, 0, len(line.seconds) - 1)
    return np.asarray(line.uptime[spell] + position - begins[spell], np.float64)


def find_onset(line: Timeline, chance: np.random.Generator, *, rising: bool) -> Onset | None:
    """Find the step of greatest likelihood, with some time on both sides."""
    candidates = np.unique(line.event_uptime)
    if len(candidates) > MAX_CANDIDATES:
        candidates = candidates[np.linspace(0, len(candidates) - 1, MAX_CANDIDATES).astype(int)]
    longest = float((line.uptime + line.seconds).max())
    candidates = np.unique(np.concatenate((candidates, np.linspace(0, longest, MAX_CANDIDATES))))
    hosts = int(line.host.max()) + 1
    # One candidate at a time: all of them for every spell of 10,000 hosts would take 600 MB.
    beyond = np.stack(
        [np.bincount(line.host, line.above(each)[:, 0], hosts) for each in candidates[:, None]],
        axis=1,
    )
    total = np.bincount(line.host, line.seconds, hosts)
    after = np.zeros((hosts, len(candidates)))
    np.add.at(after, line.event_host, line.event_uptime[:, None] >= candidates)
    count = np.bincount(line.event_host, minlength=hosts).astype(np.float64)
    draws = min(BOOTSTRAPS, max(99, permutation.CELLS // (hosts + len(candidates))))
    weights = np.vstack(
        (np.ones(hosts), chance.multinomial(hosts, np.full(hosts, 1 / hosts), draws))
    ).astype(np.float64)
    late, late_time = weights @ after, weights @ beyond
    early = (weights @ count)[:, None] - late
    early_time = (weights @ total)[:, None] - late_time
    likelihood = _poisson(late, late_time) + _poisson(early, early_time)
    share = late_time / np.maximum(late_time + early_time, 1e-9)
    rises = late * early_time > early * late_time
    allowed = (share >= SHARE / 2) & (share <= 1 - SHARE / 2) & (rises == rising)
    likelihood = np.where(allowed, likelihood, -np.inf)
    if not allowed[0].any():
        return None
    best = likelihood.argmax(axis=1)[allowed.any(axis=1)]
    low, high = np.percentile(candidates[best], [2.5, 97.5])
    at = best[0]
    near = candidates[likelihood[0] >= likelihood[0, at] - DROP]
    low, high = min(low, near.min()), max(high, near.max())
    ratio = (late[0, at] + 0.5) / late_time[0, at] * early_time[0, at] / (early[0, at] + 0.5)
    return Onset(float(candidates[at]), float(low), float(high), float(ratio))


def _poisson(events: Floats, seconds: Floats) -> Floats:
    """Return the log-likelihood of the best rate, without the terms common to all rates."""
    rate = np.divide(events, seconds, out=np.ones_like(events), where=(events > 0) & (seconds > 0))
    return np.asarray(events * np.log(rate), np.float64)
