"""Arms of an investigation compared: rates of events, dose and response. Pure; docs/investigations.md has the formulas.

An arm is a set of hosts, each cut to the time in which the arm was observed. Hosts that were in both arms are compared
with themselves, others with each other (`rates.compare`).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from overnight.queries import rates

if TYPE_CHECKING:
    from overnight.model.fleet import Host

Floats = rates.Floats
HOUR = 3600.0
DRAWS = 4999  # permutations, where there are more than that
SEED = 31407  # the same evidence gives the same answer
DROP = 1.9207  # of the log-likelihood, for 95 %: half of chi-squared with one degree of freedom
MAX_LOG = 50.0  # of a ratio: beyond it, a bound is not one
EQUAL = 1e-9
NEEDED_HOSTS = "a trend needs five hosts with different doses, or six that were in two arms"
# The arm in question, and the one it is compared with.
PAIRS = (("hot", "cold"), ("purged", "hot"), ("fixed", "hot"), ("experiment", "hot"))
# Arms that differ in doses only; a fix may stop the event whatever the dose.
DOSED = ("cold", "hot", "purged")


@dataclasses.dataclass(frozen=True)
class Observed:
    """A host while one arm was observed. `doses` are what may make an event more frequent: zombies, uptime_s, load."""

    host: Host
    cores: int = 0  # 0: not known
    doses: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def hours(self) -> float:
        return self.host.seconds / HOUR

    def exposure(self, *, by_core: bool) -> float:
        return self.hours * (self.cores if by_core else 1)


@dataclasses.dataclass(frozen=True)
class Arm:
    name: str
    hosts: tuple[Observed, ...]


@dataclasses.dataclass(frozen=True)
class ArmRate:
    """One kind of event in one arm. The rate is per core-hour, or per host-hour where cores are not known."""

    arm: str
    kind: str
    hosts: int
    host_hours: float
    cores: int  # of all hosts; 0: not known
    core_hours: float
    rate: rates.Rate | None  # None: nothing was observed


@dataclasses.dataclass(frozen=True)
class Pair:
    """One kind of event in two arms; `compared.before` is the arm `base`."""

    kind: str
    arm: str
    base: str
    compared: rates.Comparison
    same_hosts: bool
    # Other hosts, and too few of them to tell the arm from the hosts, whatever the events.
    is_confounded: bool = False


@dataclasses.dataclass(frozen=True)
class Point:
    """A host in an arm: its dose, and its events."""

    arm: str
    host: str
    dose: float
    events: int
    host_hours: float
    rate: float  # per host-hour
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Trend:
    """Whether a kind of event comes more often with a dose.

    `ratio` is the rate at the highest dose by that at the lowest, fitted (conditional Poisson regression); `p` is
    that of as large a trend if doses were assigned to hosts at random.
    """

    dose: str
    kind: str
    outcome: rates.Outcome
    points: tuple[Point, ...]
    ratio: float | None = None  # None: not known, or not bounded
    low: float | None = None
    high: float | None = None
    p: float | None = None
    smallest_p: float | None = None
    why: str = ""  # it cannot tell

    @property
    def has_events(self) -> bool:
        return any(point.events for point in self.points)

    @property
    def can_tell(self) -> bool:
        """Whether these hosts and doses could show a trend, whatever the events."""
        return self.smallest_p is not None and self.smallest_p <= rates.ALPHA


@dataclasses.dataclass(frozen=True)
class Contrast:
    unit: str  # of exposures: core-hours or host-hours
    kinds: tuple[str, ...]
    arms: tuple[ArmRate, ...]
    pairs: tuple[Pair, ...]
    trends: tuple[Trend, ...]


def contrast(arms: Sequence[Arm], kinds: Sequence[str]) -> Contrast:
    """Compare the arms; each kind of event may be a prefix that ends with a dot."""
    by_core = all(each.cores for arm in arms for each in arm.hosts)
    observed = {arm.name: arm for arm in arms if any(each.hours > 0 for each in arm.hosts)}
    pairs = [
        _compare(kind, observed[name], observed[base], rates.ALPHA / len(kinds), by_core=by_core)
        for kind in kinds
        for name, base in PAIRS
        if name in observed and base in observed
    ]
    dosed = [arm for arm in arms if arm.name in DOSED]
    doses = sorted({name for arm in dosed for each in arm.hosts for name in each.doses})
    return Contrast(
        "core-hours" if by_core else "host-hours",
        tuple(kinds),
        tuple(_measure(kind, arm, by_core=by_core) for kind in kinds for arm in arms),
        tuple(pairs),
        tuple(find_trend(dose, kind, dosed) for kind in kinds for dose in doses),
    )


def _measure(kind: str, arm: Arm, *, by_core: bool) -> ArmRate:
    spans = [span for each in arm.hosts for span in each.host.spans(kind)]
    count = sum(len(events) for _, events in spans)
    exposure = sum(each.exposure(by_core=by_core) for each in arm.hosts)
    rate = None
    if exposure > 0:
        bounds = rates.bound_rate(count, exposure, rates.measure_dispersion([spans]))
        rate = rates.Rate(count, exposure, count / exposure, *bounds)
    known = all(each.cores for each in arm.hosts)
    return ArmRate(
        arm.name,
        kind,
        sum(each.hours > 0 for each in arm.hosts),
        sum(each.hours for each in arm.hosts),
        sum(each.cores for each in arm.hosts) if known else 0,
        sum(each.hours * each.cores for each in arm.hosts),
        rate,
    )


def _compare(kind: str, arm: Arm, base: Arm, alpha: float, *, by_core: bool) -> Pair:
    sides = [{each.host.name: each for each in side.hosts} for side in (base, arm)]
    names = sorted({name for side in sides for name in side})
    rows = [[side.get(name) for side in sides] for name in names]
    events = np.array([[len(e.host.places(kind)) if e else 0 for e in row] for row in rows], float)
    exposures = np.array([[e.exposure(by_core=by_core) if e else 0 for e in row] for row in rows])
    spans = [
        [span for each in side.hosts for span in each.host.spans(kind)] for side in (base, arm)
    ]
    dispersion = rates.measure_dispersion(spans)
    compared = rates.compare(events, exposures, dispersion=dispersion, alpha=alpha)
    both = (exposures > 0).all(axis=1)
    if both.any():
        return Pair(kind, arm.name, base.name, compared, same_hosts=True)
    kept = exposures.sum(axis=1) > 0
    counts, hours = (table[kept].sum(axis=1) for table in (events, exposures))
    is_member = exposures[kept, 1] > 0
    # Which arm should have more was known before: the aged one.
    more = 1 if arm.name == "hot" else -1
    one = np.zeros(len(counts), int)
    p, _ = permute_doses(is_member.astype(float), counts, hours, one, expected=more)
    smallest = 1 / math.comb(len(counts), int(is_member.sum()))
    compared = dataclasses.replace(compared, p_hosts=p)
    return Pair(kind, arm.name, base.name, compared, False, smallest > rates.ALPHA)


# --- dose and response


def find_trend(dose: str, kind: str, arms: Iterable[Arm]) -> Trend:
    """Fit the rate of a kind of event to a dose of all hosts in all arms that have it.

    Hosts that were in several arms are compared with themselves only: they may differ in more than the dose.
    """
    rows = [
        (arm.name, each)
        for arm in arms
        for each in arm.hosts
        if each.hours > 0 and math.isfinite(each.doses.get(dose, math.nan))
    ]
    points = tuple(_point(name, each, dose, kind) for name, each in rows)
    doses = np.array([point.dose for point in points])
    events = np.array([point.events for point in points], float)
    if not events.any():
        return Trend(dose, kind, rates.Outcome.NO_EVENTS, points)
    names = [point.host for point in points]
    repeated = len({*names}) < len(names)
    strata = np.array([sorted({*names}).index(n) if repeated else 0 for n in names])
    if not any(np.ptp(doses[strata == stratum]) > 0 for stratum in strata):
        why = "the dose is the same everywhere" if len(points) > 1 else "only one host has it"
        return Trend(dose, kind, rates.Outcome.CANNOT_TELL, points, why=why)
    dispersion = rates.measure_dispersion([each.host.spans(kind) for _, each in rows])
    hours = np.array([point.host_hours for point in points])
    ratio, low, high = fit_trend(doses, events / dispersion, hours, strata)
    p, smallest = permute_doses(doses, events, hours, strata)
    outcome, why = _judge(low, high, p, smallest)
    return Trend(dose, kind, outcome, points, ratio, low, high, p, smallest, why)


def _point(arm: str, each: Observed, dose: str, kind: str) -> Point:
    count = len(each.host.places(kind))
    low, high = rates.bound_rate(count, each.hours)
    name = each.host.name
    return Point(arm, name, each.doses[dose], count, each.hours, count / each.hours, low, high)


def _judge(low: float, high: float | None, p: float, smallest: float) -> tuple[rates.Outcome, str]:
    top = math.inf if high is None else high
    if smallest > rates.ALPHA:
        return rates.Outcome.CANNOT_TELL, f"too few hosts: {NEEDED_HOSTS}"
    if low > rates.HALF and top < 1 / rates.HALF:
        return rates.Outcome.UNCHANGED, ""
    if low <= 1 <= top:
        return rates.Outcome.CANNOT_TELL, "the interval includes no effect"
    if p > rates.ALPHA:
        return rates.Outcome.CANNOT_TELL, "hosts differ as much without regard to the dose"
    return (rates.Outcome.ROSE if low > 1 else rates.Outcome.FELL), ""


def fit_trend(
    doses: Floats, events: Floats, hours: Floats, strata: npt.NDArray[np.int_]
) -> tuple[float | None, float, float | None]:
    """Return the ratio of the rates at the highest and the lowest dose with its 95 % profile-likelihood interval.

    log(rate) is linear in the dose; given the events of a stratum, its level drops out (Poisson regression with
    fixed effects, Hausman, Hall and Griliches 1984). None: not bounded, as all events are at the highest dose.
    """
    from scipy import optimize, special

    spread = float(np.ptp(doses))
    x = (doses - doses.min()) / spread

    def likelihood(slope: float) -> float:
        total = float(events @ (slope * x))
        for stratum in np.unique(strata):
            inside = strata == stratum
            level = special.logsumexp(slope * x[inside], b=hours[inside])
            total -= float(events[inside].sum()) * float(level)
        return total

    found = optimize.minimize_scalar(
        lambda slope: -likelihood(slope), bounds=(-MAX_LOG, MAX_LOG), method="bounded"
    )
    best, most = float(found.x), -float(found.fun)

    def excess(slope: float) -> float:
        return likelihood(slope) - most + DROP

    def bound(end: float) -> float | None:
        return float(optimize.brentq(excess, best, end)) if excess(end) < 0 else None

    low, high = bound(-MAX_LOG), bound(MAX_LOG)
    return (
        None if high is None else math.exp(best),
        0.0 if low is None else math.exp(low),
        None if high is None else math.exp(high),
    )


def permute_doses(
    doses: Floats, events: Floats, hours: Floats, strata: npt.NDArray[np.int_], *, expected: int = 0
) -> tuple[float, float]:
    """Return p with doses permuted over the hosts of a stratum, and the smallest attainable.

    Two-sided, unless the trend has the sign that was `expected`. All permutations where there are few, so that the
    test is exact.
    """
    groups = [np.flatnonzero(strata == stratum) for stratum in np.unique(strata)]
    excess = events.copy()
    for group in groups:
        excess[group] -= events[group].sum() / hours[group].sum() * hours[group]
    seen = float(excess @ doses)
    if math.prod(math.factorial(len(group)) for group in groups) <= DRAWS:
        drawn, added = np.zeros(1), 0
        for group in groups:
            orders = itertools.permutations(doses[group])
            own = np.array([float(excess[group] @ np.array(order)) for order in orders])
            drawn = (drawn[:, None] + own).ravel()
    else:
        chance = np.random.default_rng(SEED)
        drawn, added = np.zeros(DRAWS), 1  # what was observed is one more draw
        for group in groups:
            drawn += chance.permuted(np.tile(doses[group], (DRAWS, 1)), axis=1) @ excess[group]
    sizes = drawn * expected if seen * expected > 0 else np.abs(drawn)
    tolerance = EQUAL * max(1.0, abs(seen))
    as_large = added + int((sizes >= abs(seen) - tolerance).sum())
    largest = added or int((sizes >= sizes.max() - tolerance).sum())
    return as_large / (added + len(drawn)), largest / (added + len(drawn))
