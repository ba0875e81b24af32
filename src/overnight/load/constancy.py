"""The gate: was the footprint constant? Pure; seconds go in, a verdict with its figures comes out.

Each limit is kept, crossed, or cannot be told yet. A drift of 1 %/h is not seen in a minute: as long as
the interval of the slope is wider than the limit, the gate says so, and about how long it will take.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from overnight.model import sizes, times
from overnight.model.load import CANNOT_TELL, CONSTANT, NOT_CONSTANT

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = [
    "LEAST_SECONDS",
    "Check",
    "Limits",
    "Seconds",
    "Series",
    "State",
    "Verdict",
    "format_figure",
    "judge",
    "slope",
]

LEAST_SECONDS = 10
LEAST_TRIALS = 5
MOST_BLOCKS = 240  # of a long run: slopes of pairs grow with the square
SURE = 2.576  # 99 times in 100: of all short runs of a constant load, 1 in 100 is called otherwise


@dataclasses.dataclass(frozen=True)
class Limits:
    """What counts as constant; shares, not percent."""

    cv: float = 0.02  # standard deviation of the seconds, of their mean
    drift: float = 0.01  # an hour
    # CV of the trials' durations: CPU time is held, the speed of a processor that is shared with other
    # guests is not (7 % on a quiet machine in a cloud, with the CPU share held to 0.25 %).
    trials: float = 0.1
    off: float = 0.05  # the mean, from what was asked for
    sys: float = 0.03  # standard deviation of a core's time in the kernel, of the core
    steal: float = 0.01  # of the load's cores, taken by the hypervisor


class State(enum.StrEnum):
    """How one limit stands."""

    KEPT = "kept"
    CROSSED = "crossed"
    UNKNOWN = "cannot tell"


@dataclasses.dataclass(frozen=True)
class Series:
    """One figure of the footprint, second by second."""

    name: str
    unit: str
    values: Sequence[float]
    gated: bool = True
    target: float | None = None


@dataclasses.dataclass(frozen=True)
class Seconds:
    """What was measured after the warm-up; `at` is in seconds, everything else a share or a rate."""

    at: Sequence[float]
    series: Sequence[Series]
    sys: Mapping[int, Sequence[float]] = dataclasses.field(default_factory=dict)
    steal: Sequence[float] = ()
    waits: Sequence[float] = ()
    pressure: Mapping[str, Sequence[float]] = dataclasses.field(default_factory=dict)
    trials: Sequence[float] = ()  # how long each took
    losses: Sequence[float] = ()
    deaths: tuple[str, ...] = ()  # of workers, in words


@dataclasses.dataclass(frozen=True)
class Check:
    """One limit, and how the run stands to it."""

    name: str
    state: State
    says: str
    value: float | None = None
    limit: float | None = None
    low: float | None = None  # of the interval, for a drift
    high: float | None = None
    needs_s: float | None = None  # about how long a run tells it

    def as_json(self) -> dict[str, object]:
        """The stable form."""
        rounded = {
            name: None if value is None else float(f"{value:.4g}")
            for name in ("value", "limit", "low", "high", "needs_s")
            for value in (getattr(self, name),)
        }
        return {"name": self.name, "state": str(self.state), "says": self.says, **rounded}


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Constant, not constant, or cannot tell; `told` are figures that no limit is on."""

    status: str
    seconds: int
    checks: tuple[Check, ...]
    told: tuple[str, ...] = ()

    @property
    def crossed(self) -> tuple[Check, ...]:
        """The limits that were."""
        return tuple(one for one in self.checks if one.state is State.CROSSED)

    @property
    def needs_s(self) -> float | None:
        """About how long a run would have to be for all limits to be told."""
        return max((one.needs_s for one in self.checks if one.needs_s), default=None)

    @property
    def says(self) -> str:
        """The worst first, in one line."""
        order = {State.CROSSED: 0, State.UNKNOWN: 1, State.KEPT: 2}
        return "; ".join(
            one.says for one in sorted(self.checks, key=lambda one: order[one.state])[:4]
        )

    def as_json(self) -> dict[str, Any]:
        """The stable form, stored and printed."""
        return {
            "status": self.status,
            "seconds": self.seconds,
            "says": self.says,
            "crossed": [one.says for one in self.crossed],
            "needs_s": None if self.needs_s is None else round(self.needs_s),
            "checks": [one.as_json() for one in self.checks],
            "told": list(self.told),
        }


def judge(seconds: Seconds, limits: Limits = Limits()) -> Verdict:  # noqa: B008 - frozen
    """The verdict on the seconds so far."""
    at = np.asarray(seconds.at, dtype=float)
    checks = [Check("workers", State.CROSSED, says) for says in seconds.deaths]
    for one in seconds.series:
        if one.gated:
            checks += _series(at, one, limits)
    checks += _trials(seconds, limits)
    checks += _host(seconds, limits)
    states = {one.state for one in checks}
    status = CONSTANT
    if State.CROSSED in states:
        status = NOT_CONSTANT
    elif State.UNKNOWN in states or not checks:
        status = CANNOT_TELL
    return Verdict(status, len(at), tuple(checks), tuple(_told(seconds)))


def slope(
    at: npt.NDArray[np.float64], values: npt.NDArray[np.float64]
) -> tuple[float, float, float]:
    """Theil-Sen: the median of the slopes of all pairs, and the interval that holds it 99 times in 100.

    The interval is Sen's, from the variance of Kendall's tau, made wider where neighbouring seconds are
    alike: they tell less than as many that are not.
    """
    at, values = _blocks(at, values)
    first, second = np.triu_indices(len(at), 1)
    slopes = np.sort((values[second] - values[first]) / (at[second] - at[first]))
    middle = float(np.median(slopes))
    n, pairs = len(at), len(slopes)
    rest = values - middle * at
    alike = max(0.0, min(_next_alike(rest), 0.9))
    spread = SURE * np.sqrt(n * (n - 1) * (2 * n + 5) / 18 * (1 + alike) / (1 - alike))
    low = max(int(np.floor((pairs - spread) / 2)), 0)
    high = min(int(np.ceil((pairs + spread) / 2)), pairs - 1)
    return middle, float(slopes[low]), float(slopes[high])


def _blocks(
    at: npt.NDArray[np.float64], values: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Means of equal stretches, where there are too many seconds for all pairs."""
    if len(at) <= MOST_BLOCKS:
        return at, values
    parts = np.array_split(np.arange(len(at)), MOST_BLOCKS)
    return np.array([at[p].mean() for p in parts]), np.array([values[p].mean() for p in parts])


def _next_alike(rest: npt.NDArray[np.float64]) -> float:
    """The correlation of each second with the next."""
    rest = rest - rest.mean()
    whole = float(rest @ rest)
    return float(rest[1:] @ rest[:-1]) / whole if whole > 0 else 0.0


def _series(at: npt.NDArray[np.float64], one: Series, limits: Limits) -> list[Check]:
    values = np.asarray(one.values, dtype=float)
    label = f"{one.name} CV"
    if len(values) < LEAST_SECONDS:
        says = f"{one.name}: {len(values)} of {LEAST_SECONDS} seconds that are needed"
        return [Check(label, State.UNKNOWN, says, limit=limits.cv, needs_s=float(LEAST_SECONDS))]
    mean = float(values.mean())
    if mean <= 0:
        return [Check(label, State.CROSSED, f"{one.name}: nothing was done", 0.0, limits.cv)]
    cv = float(values.std(ddof=1)) / mean
    found = [
        Check(
            label,
            State.CROSSED if cv > limits.cv else State.KEPT,
            f"{one.name} CV {_percent(cv)}",
            cv,
            limits.cv,
        ),
        _drift(at, values / mean, one.name, limits.drift),
    ]
    if one.target:
        off = mean / one.target - 1
        says = f"{one.name} {format_figure(mean, one.unit)} of {format_figure(one.target, one.unit)} asked for"
        state = State.CROSSED if abs(off) > limits.off else State.KEPT
        found.append(Check(f"{one.name} as asked", state, says, off, limits.off))
    return found


def _drift(
    at: npt.NDArray[np.float64], shares: npt.NDArray[np.float64], name: str, limit: float
) -> Check:
    middle, low, high = (3600 * one for one in slope(at, shares))
    says = f"{name} drift {_signed(middle)} %/h ({_signed(low)} to {_signed(high)})"
    needs = None
    if low > limit or high < -limit:
        state = State.CROSSED
    elif -limit <= low and high <= limit:
        state = State.KEPT
    else:
        state = State.UNKNOWN
        # The width of the interval falls with the length to the power of 3/2.
        wide = (high - low) / 2
        length = float(at[-1] - at[0]) + 1
        needs = length * max(wide / limit, 1.2) ** (2 / 3)
        says += f", which about {times.format_duration(_round_up(needs))} would tell"
    return Check(f"{name} drift", state, says, middle, limit, low, high, needs)


def _round_up(seconds: float) -> float:
    step = 10 if seconds < 120 else 60
    return float(-(-seconds // step) * step)


def _trials(seconds: Seconds, limits: Limits) -> list[Check]:
    if not seconds.trials:
        return []
    found = []
    different = len(set(seconds.losses))
    if different > 1:
        says = f"trials ended with {different} different losses, so they were not identical"
        found.append(Check("identical trials", State.CROSSED, says, float(different), 1.0))
    taken = np.asarray(seconds.trials, dtype=float)
    if len(taken) < LEAST_TRIALS:
        says = f"{len(taken)} of {LEAST_TRIALS} trials that are needed"
        needs = float(taken.mean()) * (LEAST_TRIALS + 2)
        found.append(
            Check("between trials", State.UNKNOWN, says, limit=limits.trials, needs_s=needs)
        )
        return found
    cv = float(taken.std(ddof=1) / taken.mean())
    says = f"{len(taken)} trials of {taken.mean():.2f} s, CV {_percent(cv)}"
    state = State.CROSSED if cv > limits.trials else State.KEPT
    found.append(Check("between trials", state, says, cv, limits.trials))
    return found


def _host(seconds: Seconds, limits: Limits) -> list[Check]:
    """What the host did on the load's own cores."""
    found = []
    if len(seconds.at) >= LEAST_SECONDS and seconds.sys:
        spread = {core: float(np.std(values, ddof=1)) for core, values in seconds.sys.items()}
        core = max(spread, key=lambda one: spread[one])
        mean = float(np.mean(seconds.sys[core]))
        says = f"core {core} in the kernel {_percent(mean)} ± {100 * spread[core]:.1f} points"
        state = State.CROSSED if spread[core] > limits.sys else State.KEPT
        found.append(Check("kernel time", state, says, spread[core], limits.sys))
    if len(seconds.steal) >= LEAST_SECONDS:
        stolen = float(np.mean(seconds.steal))
        state = State.CROSSED if stolen > limits.steal else State.KEPT
        found.append(Check("steal", state, f"steal {_percent(stolen)}", stolen, limits.steal))
    return found


def _told(seconds: Seconds) -> list[str]:
    """Figures that have no limit: pressure is of the whole host, and a fault elsewhere raises it, too."""
    said = []
    for one in seconds.series:
        if len(one.values):
            values = np.asarray(one.values, dtype=float)
            span = f"{format_figure(values.min(), one.unit)} to {format_figure(values.max(), one.unit)}"
            said.append(f"{one.name}: mean {format_figure(values.mean(), one.unit)}, {span}")
    if len(seconds.waits):
        said.append(f"workers waited for their cores {_percent(float(np.mean(seconds.waits)))}")
    said += [
        f"pressure {resource} {_percent(float(np.mean(shares)))} of the time"
        for resource, shares in seconds.pressure.items()
        if len(shares)
    ]
    return said


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"


def _signed(share: float) -> str:
    """Percent, two digits that matter.

    >>> _signed(-12.5), _signed(0.0042), _signed(0)
    ('-1,250', '+0.42', '0')
    """
    percent = 100 * share
    if abs(percent) < 0.005:
        return "0"
    return f"{percent:+,.0f}" if abs(percent) >= 10 else f"{percent:+.2g}"


def format_figure(value: float, unit: str) -> str:
    """With its unit.

    >>> format_figure(0.6, "cores"), format_figure(283e6, "B"), format_figure(5000, "/s")
    ('0.600 cores', '283 MB', '5,000/s')
    """
    if unit in ("B", "B/s"):
        return sizes.format_size(value) + unit.removeprefix("B")
    return f"{value:,.3f} cores" if unit == "cores" else f"{value:,.0f}{unit}"
