"""Each process's share of a core, against its share in the baseline.

A fair scheduler halves the share of a process that was there: only one whose share rose saturated the core.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from typing import TYPE_CHECKING

from overnight.model.actor import Actor
from overnight.model.finding import Evidence
from overnight.model.selection import Selection, Window
from overnight.queries import diff

if TYPE_CHECKING:
    from collections.abc import Mapping

    from overnight.queries import case as cases
    from overnight.queries import consumers

# Of the core: a smaller change happens from minute to minute and saturates nothing.
MIN_ADDED = 0.15
# A shorter baseline proves nothing.
MIN_SECONDS = 5.0
TICKS = 100  # a second, in /proc/PID/stat: USER_HZ on every Linux that is recorded


@dataclasses.dataclass(frozen=True)
class Share:
    """Cores now and in the baseline; `error` bounds the error of the difference (95 %)."""

    now: float
    before: float
    error: float

    @property
    def added(self) -> float:
        return round(self.now - self.before, 6)

    @property
    def rose(self) -> bool:
        """Whether it is more than in the baseline: by more than chance, and enough to matter."""
        return self.added >= MIN_ADDED and self.added > self.error

    @property
    def fell(self) -> bool:
        """Whether it is less than in the baseline, by the same measure."""
        return -self.added >= MIN_ADDED and -self.added > self.error

    def evidence(self, case: cases.Case, process: str, source: str) -> Evidence:
        name = f"{process} had to wait: it" if self.fell else process
        return Evidence(
            f"{name} used {self.now:.2f} of the core, and {self.before:.2f} in the baseline"
            f" ({case.baseline_text}): {self.added:+.2f} ± {self.error:.2f}",
            source,
            {
                "cores_now": round(self.now, 3),
                "cores_before": round(self.before, 3),
                "cores_added": round(self.added, 3),
                "error": round(self.error, 3),
            },
            case.baseline,
        )


@dataclasses.dataclass(frozen=True)
class Ticks:
    """Time of one process in ticks of /proc/PID/stat."""

    user: float
    kernel: float

    @property
    def total(self) -> float:
        return self.user + self.kernel

    def cores(self, seconds: float) -> float:
        return self.total / TICKS / seconds


@dataclasses.dataclass(frozen=True)
class Baseline:
    """One core in the baseline: what each actor used of it, in samples or ticks, of `capacity`."""

    used: Mapping[Actor, float]
    softirq: float  # on top of any process
    capacity: float
    is_ticks: bool = False  # else samples, with the error of a count

    @property
    def busy(self) -> float:
        return min(1.0, (sum(self.used.values()) + self.softirq) / self.capacity)

    @property
    def softirq_share(self) -> float:
        return self.softirq / self.capacity

    def share(self, actor: Actor, amount: float, capacity: float) -> Share:
        """Compare what an actor uses now, `amount` of `capacity`."""
        before = self.used.get(actor, 0.0)
        if self.is_ticks:
            error = 2 / capacity  # the first reading and the last are off by a tick
        else:
            low, high = diff.poisson_bounds(round(amount))[0], diff.poisson_bounds(round(before))[1]
            error = math.hypot((amount - low) / capacity, (high - before) / self.capacity)
        return Share(amount / capacity, before / self.capacity, error)


def read_core(
    case: cases.Case, window: Window, core: int
) -> tuple[tuple[consumers.Consumer, ...], int]:
    """Return what ran on a core, and all of its samples: also softirqs and idle ones."""
    ran, idle = case.ran((window,), Selection(cores=(core,)))
    return ran, sum(consumer.samples + consumer.softirq for consumer in ran) + idle


def read_baseline(case: cases.Case, core: int) -> Baseline | None:
    """Read the samples of a core in the baseline; None where it was not sampled."""
    if not case.has_profile(case.baseline):
        return None
    selection = Selection(cores=(core,))
    capacity, seconds = case.capacity(case.baseline, selection)
    if seconds < MIN_SECONDS or capacity <= 0:
        return None
    ran, _ = case.ran((case.baseline,), selection)
    used = {consumer.actor: float(consumer.samples) for consumer in ran}
    return Baseline(used, float(sum(consumer.softirq for consumer in ran)), capacity)


def compare_ticks(
    case: cases.Case,
    core: int,
    ticks: Mapping[str, Ticks],
    seconds: float,
    signal: str = "processes",
) -> dict[str, Share]:
    """Compare processes, by name, last seen on the core with the baseline; empty where that was not recorded."""
    earlier, known = read_ticks(case, core, case.baseline, signal)
    if known < MIN_SECONDS or seconds <= 0:
        return {}
    before, now = _sum_by_name(earlier), _sum_by_name(ticks)
    baseline = Baseline(before, 0.0, known * TICKS, is_ticks=True)
    return {
        key: baseline.share(actor, now[actor], seconds * TICKS)
        for key, actor in ((key, Actor(process_name(key))) for key in ticks)
    }


def _sum_by_name(ticks: Mapping[str, Ticks]) -> dict[Actor, float]:
    sums: dict[Actor, float] = collections.defaultdict(float)
    for key, used in ticks.items():
        sums[Actor(process_name(key))] += used.total
    return sums


def magnitude(share: Share | None) -> dict[str, float]:
    """Return the baseline share, and what was added where it rose: a share that did not change saturates nothing."""
    if share is None:
        return {}
    return {"cores_before": share.before, **({"cores_added": share.added} if share.rose else {})}


def process_name(key: str) -> str:
    """Return the process of a key of the signal: `4711 postgres`."""
    return key.partition(" ")[2] or key


def read_ticks(
    case: cases.Case, core: int, window: Window, signal: str = "processes"
) -> tuple[dict[str, Ticks], float]:
    """Read the ticks of every process last seen on the core, the most first; and the seconds recorded."""
    rates = case.rates(signal, window, columns=("utime", "stime"))
    if "utime" not in rates.values or not len(rates.seconds):
        return {}, 0.0
    on_core = _share_of_readings(case, core, window, signal)
    rises = rates.rises("utime"), rates.rises("stime")
    ticks = {
        key: Ticks(*(rise[key] * on_core.get(key, 0.0) for rise in rises)) for key in rates.keys
    }
    by_most = sorted(ticks.items(), key=lambda pair: -pair[1].total)
    return {key: used for key, used in by_most if used.total > 0}, float(rates.seconds.sum())


def _share_of_readings(
    case: cases.Case, core: int, window: Window, signal: str
) -> dict[str, float]:
    """Return the share of each process's readings that found it on the core."""
    readings: dict[str, list[int]] = collections.defaultdict(list)
    for frame in case.ring.numbers(
        case.host, signal, window.begin_us, window.end_us + 1, None, ("core",)
    ):
        for key in frame.keys:
            readings[key].extend(frame.series(key, "core")[1])
    return {key: cores.count(core) / len(cores) for key, cores in readings.items() if cores}
