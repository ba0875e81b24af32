"""The gate: was the footprint constant? Pure: seconds in, a verdict with its figures out.

A limit is kept, exceeded, or not decided yet. A minute cannot show a drift of 1 %/h: while the interval of
the slope is wider than the limit, the check stays undecided and estimates how long a run would decide it.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from overnight.model import sizes, times
from overnight.model.load import Constancy

if TYPE_CHECKING:
    from overnight import load
    from overnight.load import measurement

Floats: TypeAlias = npt.NDArray[np.float64]
MIN_SECONDS = 10
MIN_TRIALS = 5
MAX_BLOCKS = 240  # for a long run: the number of pairs grows with the square
# Limits of what counts as constant, as shares.
MAX_CV = 0.02  # standard deviation of the seconds over their mean
MAX_DRIFT = 0.01  # per hour
# CV of trial durations. CPU time is held constant, the speed of a processor shared with other guests is
# not: 7 % on a quiet cloud machine, with the CPU share held to 0.25 %.
MAX_TRIALS_CV = 0.1
MAX_OFF = 0.05  # distance of the mean from its target
MAX_SYS = 0.03  # standard deviation of a core's kernel share
MAX_STEAL = 0.01  # mean steal on the load's cores
# Limits of what counts as a faithful replay, as shares of a core.
MAX_ERROR = 0.02  # mean distance from the profile, by core and second
FAR = 0.05  # distance of a second that was missed
MAX_FAR = 0.05  # share of such seconds
SURE = 2.576  # 99 % confidence: 1 in 100 short runs of a constant load is misjudged


class State(enum.StrEnum):
    """Result of one check. The values are stored."""

    KEPT = "kept"
    CROSSED = "crossed"
    UNKNOWN = "cannot tell"


@dataclasses.dataclass(frozen=True)
class Check:
    name: str
    state: State
    says: str
    value: float | None = None
    limit: float | None = None
    low: float | None = None  # confidence interval of a drift
    high: float | None = None
    needs_s: float | None = None  # estimated run length that decides it

    def as_json(self) -> dict[str, object]:
        return {
            name: float(f"{value:.4g}") if isinstance(value, float) else value
            for name, value in dataclasses.asdict(self).items()
        }


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The gate's answer; `figures` are those without a limit."""

    status: Constancy
    seconds: int
    checks: tuple[Check, ...]
    figures: tuple[str, ...] = ()

    @property
    def crossed(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.state is State.CROSSED)

    @property
    def can_estimate(self) -> bool:
        """Whether there are enough seconds for `needs_s` to mean anything."""
        return self.seconds >= MIN_SECONDS

    @property
    def needs_s(self) -> float | None:
        """Estimated length of a run that decides every check."""
        return max((check.needs_s for check in self.checks if check.needs_s), default=None)

    @property
    def says(self) -> str:
        """The four worst checks, in one line."""
        order = (State.CROSSED, State.UNKNOWN, State.KEPT)
        worst = sorted(self.checks, key=lambda check: order.index(check.state))
        return "; ".join(check.says for check in worst[:4])

    def as_json(self) -> dict[str, Any]:
        return {
            "status": self.status,
            "seconds": self.seconds,
            "says": self.says,
            "crossed": [check.says for check in self.crossed],
            "needs_s": None if self.needs_s is None else round(self.needs_s),
            "checks": [check.as_json() for check in self.checks],
            "told": list(self.figures),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Verdict:
        """Return the verdict that another process has judged."""
        checks = tuple(Check(**{**row, "state": State(row["state"])}) for row in values["checks"])
        told = tuple(values["told"])
        return cls(Constancy(values["status"]), int(values["seconds"]), checks, told)


def judge(
    seconds: Sequence[measurement.Second],
    metrics: Sequence[load.Metric],
    *,
    trials: Sequence[float] = (),
    losses: Sequence[float] = (),
    deaths: Sequence[str] = (),
) -> Verdict:
    """Judge the seconds after the warm-up, the durations and losses of trials, and workers that died."""
    checks = [Check("workers", State.CROSSED, says) for says in deaths]
    for metric in metrics:
        if metric.gated:
            checks += _check_metric(seconds, metric)
    checks += _check_trials(trials, losses)
    checks += _check_host(seconds)
    states = {check.state for check in checks}
    is_replay = any(metric.source == "error" for metric in metrics)
    status = Constancy.REPLAYED if is_replay else Constancy.CONSTANT
    if State.CROSSED in states:
        status = Constancy.NOT_CONSTANT
    elif State.UNKNOWN in states or not checks:
        status = Constancy.UNKNOWN
    figures = tuple(_format_figures(seconds, metrics))
    return Verdict(status, len(seconds), tuple(checks), figures)


def slope(at: Floats, values: Floats) -> tuple[float, float, float]:
    """Return the Theil-Sen slope (median over all pairs) and its 99 % confidence interval.

    The interval is Sen's, from the variance of Kendall's tau, widened where neighbouring seconds correlate:
    correlated seconds carry less information.
    """
    at, values = _blocks(at, values)
    first, second = np.triu_indices(len(at), 1)
    slopes = np.sort((values[second] - values[first]) / (at[second] - at[first]))
    middle = float(np.median(slopes))
    n, pairs = len(at), len(slopes)
    rest = values - middle * at
    correlation = max(0.0, min(_autocorrelation(rest), 0.9))
    spread = SURE * np.sqrt(n * (n - 1) * (2 * n + 5) / 18 * (1 + correlation) / (1 - correlation))
    low = max(int(np.floor((pairs - spread) / 2)), 0)
    high = min(int(np.ceil((pairs + spread) / 2)), pairs - 1)
    return middle, float(slopes[low]), float(slopes[high])


def _blocks(at: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Average over equal blocks where there are too many seconds for all pairs."""
    if len(at) <= MAX_BLOCKS:
        return at, values
    parts = np.array_split(np.arange(len(at)), MAX_BLOCKS)
    return np.array([at[p].mean() for p in parts]), np.array([values[p].mean() for p in parts])


def _autocorrelation(rest: Floats) -> float:
    rest = rest - rest.mean()
    whole = float(rest @ rest)
    return float(rest[1:] @ rest[:-1]) / whole if whole > 0 else 0.0


def _values(seconds: Sequence[measurement.Second], metric: load.Metric) -> Floats:
    return np.array([second.values[metric.name] for second in seconds])


def _check_metric(seconds: Sequence[measurement.Second], metric: load.Metric) -> list[Check]:
    values = _values(seconds, metric)
    if metric.source == "error":
        return _check_replay(values, _ratio(seconds))
    label = f"{metric.name} CV"
    if len(values) < MIN_SECONDS:
        says = f"{metric.name}: {len(values)} of the {MIN_SECONDS} seconds needed"
        return [Check(label, State.UNKNOWN, says, limit=MAX_CV, needs_s=float(MIN_SECONDS))]
    mean = float(values.mean())
    if mean <= 0:
        return [Check(label, State.CROSSED, f"{metric.name}: no work was done", 0.0, MAX_CV)]
    cv = float(values.std(ddof=1)) / mean
    at = np.array([second.at for second in seconds])
    checks = [
        _compare(label, f"{metric.name} CV {_percent(cv)}", cv, MAX_CV),
        _check_drift(at, values / mean, metric.name),
    ]
    if metric.target:
        target = format_figure(metric.target, metric.unit)
        says = f"{metric.name} {format_figure(mean, metric.unit)}, target {target}"
        off = mean / metric.target - 1
        checks.append(_compare(f"{metric.name} as asked", says, off, MAX_OFF))
    return checks


def _ratio(seconds: Sequence[measurement.Second]) -> float:
    """Return the CPU time of a replay as a share of its profile's."""
    wanted = sum(second.values["wanted"] for second in seconds)
    return sum(second.values["cpu"] for second in seconds) / wanted if wanted else 1.0


def _check_replay(errors: Floats, ratio: float) -> list[Check]:
    """Check the distance from the profile, which says nothing of how constant the profile is."""
    if len(errors) < MIN_SECONDS:
        says = f"profile: {len(errors)} of the {MIN_SECONDS} seconds needed"
        needs = float(MIN_SECONDS)
        return [Check("profile error", State.UNKNOWN, says, limit=MAX_ERROR, needs_s=needs)]
    mean, far = float(errors.mean()), float((errors > FAR).mean())
    points = f"{100 * FAR:.0f} points"
    return [
        _compare(
            "profile error",
            f"mean distance from the profile {100 * mean:.2g} points",
            mean,
            MAX_ERROR,
        ),
        _compare(
            "profile seconds",
            f"{_percent(far)} of seconds are off by more than {points}",
            far,
            MAX_FAR,
        ),
        _compare(
            "profile total", f"{100 * ratio:.1f} % of the profile's CPU time", ratio - 1, MAX_OFF
        ),
    ]


def _compare(name: str, says: str, value: float, limit: float) -> Check:
    state = State.CROSSED if abs(value) > limit else State.KEPT
    return Check(name, state, says, value, limit)


def _check_drift(at: Floats, shares: Floats, name: str) -> Check:
    middle, low, high = (3600 * rate for rate in slope(at, shares))
    says = f"{name} drift {_signed(middle)} %/h ({_signed(low)} to {_signed(high)})"
    needs = None
    if low > MAX_DRIFT or high < -MAX_DRIFT:
        state = State.CROSSED
    elif low >= -MAX_DRIFT and high <= MAX_DRIFT:
        state = State.KEPT
    else:
        state = State.UNKNOWN
        # The width of the interval falls with the run length to the power of 3/2.
        wide = (high - low) / 2
        length = float(at[-1] - at[0]) + 1
        needs = length * max(wide / MAX_DRIFT, 1.2) ** (2 / 3)
        says += f"; decided after about {times.format_duration(_round_up(needs))}"
    return Check(f"{name} drift", state, says, middle, MAX_DRIFT, low, high, needs)


def _round_up(seconds: float) -> float:
    step = 10 if seconds < 120 else 60
    return float(-(-seconds // step) * step)


def _check_trials(trials: Sequence[float], losses: Sequence[float]) -> list[Check]:
    if not trials:
        return []
    checks = []
    different = len(set(losses))
    if different > 1:
        says = f"trials were not identical: {different} different losses"
        checks.append(Check("identical trials", State.CROSSED, says, float(different), 1.0))
    durations = np.asarray(trials, dtype=float)
    if len(durations) < MIN_TRIALS:
        says = f"{len(durations)} of the {MIN_TRIALS} trials needed"
        needs = float(durations.mean()) * (MIN_TRIALS + 2)
        unknown = Check("between trials", State.UNKNOWN, says, limit=MAX_TRIALS_CV, needs_s=needs)
        return [*checks, unknown]
    cv = float(durations.std(ddof=1) / durations.mean())
    says = f"{len(durations)} trials of {durations.mean():.2f} s, CV {_percent(cv)}"
    return [*checks, _compare("between trials", says, cv, MAX_TRIALS_CV)]


def _check_host(seconds: Sequence[measurement.Second]) -> list[Check]:
    """Check kernel time and steal on the load's own cores."""
    if len(seconds) < MIN_SECONDS:
        return []
    checks = []
    always = [core for core in seconds[0].sys if all(core in second.sys for second in seconds)]
    shares = {core: np.array([second.sys[core] for second in seconds]) for core in always}
    if spread := {core: float(values.std(ddof=1)) for core, values in shares.items()}:
        core = max(spread, key=lambda core: spread[core])
        mean = _percent(float(shares[core].mean()))
        says = f"core {core} kernel time {mean} ± {100 * spread[core]:.1f} points"
        checks.append(_compare("kernel time", says, spread[core], MAX_SYS))
    stolen = float(np.mean([second.steal for second in seconds]))
    return [*checks, _compare("steal", f"steal {_percent(stolen)}", stolen, MAX_STEAL)]


def _format_figures(
    seconds: Sequence[measurement.Second], metrics: Sequence[load.Metric]
) -> Iterator[str]:
    """Format the figures without a limit. Pressure has none: it covers the host, so other faults raise it too."""
    if not seconds:
        return
    for metric in metrics:
        values = _values(seconds, metric)
        mean, low, high = (
            format_figure(value, metric.unit)
            for value in (values.mean(), values.min(), values.max())
        )
        yield f"{metric.name}: mean {mean}, {low} to {high}"
    waits = float(np.mean([second.waits for second in seconds]))
    yield f"workers waited for their cores {_percent(waits)}"
    for resource in seconds[0].pressure:
        share = float(np.mean([second.pressure.get(resource, 0.0) for second in seconds]))
        yield f"pressure {resource} {_percent(share)} of the time"


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"


def _signed(share: float) -> str:
    """Format as signed percent with two significant digits.

    >>> _signed(-12.5), _signed(0.0042), _signed(0)
    ('-1,250', '+0.42', '0')
    """
    percent = 100 * share
    if abs(percent) < 0.005:
        return "0"
    return f"{percent:+,.0f}" if abs(percent) >= 10 else f"{percent:+.2g}"


def format_figure(value: float, unit: str) -> str:
    """Format a value with its unit.

    >>> format_figure(0.6, "cores"), format_figure(283e6, "B"), format_figure(5000, "/s")
    ('0.600 cores', '283 MB', '5,000/s')
    """
    if unit in ("B", "B/s"):
        return sizes.format_size(value) + unit.removeprefix("B")
    return f"{value:,.3f} {unit}" if unit in ("cores", "GPUs") else f"{value:,.0f}{unit}"
