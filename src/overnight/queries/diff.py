"""What changed: a window against a baseline, by rates, with a confidence interval for each change.

Counts are divided by the core-seconds they were sampled in, so that windows of different length and
hosts of different size compare. The interval is that of the sampling: how far the true use of the
cores in these two windows may lie from what was counted (Poisson, Byar's approximation of Garwood's
exact bounds, combined by Newcombe's square-and-add). Whether a change is unusual for the host is another question: it needs
many windows.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

from overnight.model import selection
from overnight.queries import reader, top

__all__ = ["Change", "Difference", "diff", "poisson_bounds"]


@dataclasses.dataclass(frozen=True)
class Change:
    """One function. Rates are cores' worth of time per core: 0.5 is half of every core.

    Where a capture does not say how often it sampled which cores, they are shares of all samples.
    """

    name: str
    module: str
    kernel: bool
    samples: int
    baseline_samples: int
    rate: float
    baseline_rate: float
    difference: float
    low: float
    high: float
    status: str  # "new", "vanished", "more", "less" or "unclear" where the interval holds zero
    own_difference: float  # of the samples that end in it: what it did itself


@dataclasses.dataclass(frozen=True)
class Difference:
    """Changes, the surest large ones first: by the end of the interval that is nearer to zero."""

    changes: tuple[Change, ...]
    others: int
    coverage: selection.Coverage
    baseline: selection.Coverage


def diff(
    source: reader.Reader,
    window: selection.Window,
    baseline: selection.Window,
    chosen: selection.Selection | None = None,
    *,
    hosts: Iterable[str] = (),
    baseline_hosts: Iterable[str] = (),
    limit: int = 50,
) -> Difference:
    """Every function that either window has, also those that vanished."""
    chosen = chosen or selection.Selection()
    names = source.hosts(hosts)
    wanted = tuple(baseline_hosts)
    others = source.hosts(wanted) if wanted else names
    counts, coverage = _counted(source, names, window, chosen)
    before, base = _counted(source, others, baseline, chosen)
    changes = [
        _change(frame, counts.get(frame, (0, 0)), before.get(frame, (0, 0)), coverage, base)
        for frame in counts.keys() | before.keys()
    ]
    changes.sort(key=lambda c: (-_surely(c), -abs(c.difference), c.name, c.module))
    kept = tuple(changes[:limit])
    return Difference(kept, len(changes) - len(kept), coverage, base)


_Frame = tuple[str, str, int]


def _counted(
    source: reader.Reader,
    hosts: tuple[str, ...],
    window: selection.Window,
    chosen: selection.Selection,
) -> tuple[dict[_Frame, tuple[int, int]], selection.Coverage]:
    sums: dict[_Frame, tuple[int, int]] = {}
    parts = list(source.parts(hosts, window, chosen))
    for part in parts:
        for frame, (own, whole) in top.function_counts(part).items():
            mine, all_ = sums.get(frame, (0, 0))
            sums[frame] = (mine + own, all_ + whole)
    return sums, reader.coverage(hosts, window, parts, chosen)


def _change(
    frame: _Frame,
    counted: tuple[int, int],
    before: tuple[int, int],
    coverage: selection.Coverage,
    base: selection.Coverage,
) -> Change:
    # One sample stands for this share of a core's time, or of the samples where a rate is unknown.
    if coverage.capacity and base.capacity:
        unit, base_unit = 1 / coverage.capacity, 1 / base.capacity
    else:
        unit, base_unit = 1 / (coverage.samples or 1), 1 / (base.samples or 1)
    rate, base_rate = counted[1] * unit, before[1] * base_unit
    low, high = (bound * unit for bound in poisson_bounds(counted[1]))
    base_low, base_high = (bound * base_unit for bound in poisson_bounds(before[1]))
    difference = rate - base_rate
    lower = difference - math.hypot(rate - low, base_high - base_rate)
    upper = difference + math.hypot(high - rate, base_rate - base_low)
    if lower <= 0 <= upper:
        status = "unclear"
    elif difference > 0:
        status = "more" if before[1] else "new"
    else:
        status = "less" if counted[1] else "vanished"
    name, module, kind = frame
    return Change(
        name=name,
        module=module,
        kernel=kind == 1,
        samples=counted[1],
        baseline_samples=before[1],
        rate=rate,
        baseline_rate=base_rate,
        difference=difference,
        low=lower,
        high=upper,
        status=status,
        own_difference=counted[0] * unit - before[0] * base_unit,
    )


def _surely(change: Change) -> float:
    """How large the change is at least; zero where it may be none."""
    return 0.0 if change.low <= 0 <= change.high else min(abs(change.low), abs(change.high))


def poisson_bounds(count: int) -> tuple[float, float]:
    """The 95 % interval of a mean of which `count` was seen.

    Byar's approximation of the exact (Garwood) bounds: the upper one within 1 % of it, the lower one
    within 1 % from 5 on and within 0.02 samples below.
    """
    z = 1.959964
    upper = (count + 1) * (1 - 1 / (9 * (count + 1)) + z / (3 * math.sqrt(count + 1))) ** 3
    if not count:
        return 0.0, upper
    return max(0.0, count * (1 - 1 / (9 * count) - z / (3 * math.sqrt(count))) ** 3), upper
