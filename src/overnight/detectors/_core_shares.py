"""What somebody has of a core, against what they had of it in the baseline.

A fair scheduler halves the share of who was there and wanted to stay: who has much of a full core may be
the one that waits. Whose share rose is who filled it.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from overnight.model.selection import Selection, Window
from overnight.queries import diff

if TYPE_CHECKING:
    from collections.abc import Mapping

    from overnight.queries import case as cases
    from overnight.queries import consumers

__all__ = [
    "LEAST_ADDED",
    "TICKS",
    "Before",
    "Share",
    "before_by_samples",
    "by_ticks",
    "magnitude",
    "name_of",
    "rising",
    "seen_on",
]

# Of the core: what varies by less from minute to minute filled nothing.
LEAST_ADDED = 0.15
# Less than this tells nothing of what is usual.
LEAST_SECONDS = 5.0
TICKS = 100  # a second, in /proc/PID/stat: USER_HZ on every Linux that is recorded


@dataclasses.dataclass(frozen=True)
class Share:
    """Cores now and in the baseline; `error` is by how much the difference may be off (95 %)."""

    now: float
    before: float
    error: float

    @property
    def added(self) -> float:
        """What came on top of the baseline."""
        return round(self.now - self.before, 6)

    @property
    def rose(self) -> bool:
        """Whether it is more than before: by more than chance, and enough to matter."""
        return self.added >= LEAST_ADDED and self.added > self.error

    @property
    def fell(self) -> bool:
        """Whether it is less than before, in the same manner."""
        return -self.added >= LEAST_ADDED and -self.added > self.error

    def as_values(self) -> dict[str, float]:
        """For evidence."""
        return {
            "cores_now": round(self.now, 3),
            "cores_before": round(self.before, 3),
            "cores_added": round(self.added, 3),
            "error": round(self.error, 3),
        }

    def as_text(self, usual: str) -> str:
        """Both numbers, after a name."""
        return (
            f"{self.now:.2f} of the core now against {self.before:.2f} in the {usual}"
            f" ({self.added:+.2f}, known within {self.error:.2f})"
        )


@dataclasses.dataclass(frozen=True)
class Before:
    """One core in the baseline: what each had of it, in samples or ticks, of `whole`."""

    used: Mapping[
        tuple[str, str], float
    ]  # by unit and process; the unit is '' where it is not known
    soft: float  # soft interrupts, on top of whomever
    whole: float
    unit_error: float  # 0: counts are samples, with the error of a count; else of one tick

    @property
    def busy(self) -> float:
        """How much of the core was in use."""
        return min(1.0, (sum(self.used.values()) + self.soft) / self.whole)

    @property
    def soft_share(self) -> float:
        """Of the core, soft interrupts."""
        return self.soft / self.whole

    def share(self, key: tuple[str, str], amount: float, whole: float) -> Share:
        """What a process has now: `amount` of `whole`."""
        before = self.used.get(key, 0.0)
        now = amount / whole
        if self.unit_error:
            error = 2 * self.unit_error / whole  # the first look and the last are off by a tick
        else:
            low, high = diff.poisson_bounds(round(amount))[0], diff.poisson_bounds(round(before))[1]
            error = math.hypot((amount - low) / whole, (high - before) / self.whole)
        return Share(now, before / self.whole, error)


def before_by_samples(case: cases.Case, core: int) -> Before | None:
    """Who had how much of a core in the baseline; None where that was not sampled."""
    if not case.has_profile(case.baseline):
        return None
    chosen = Selection(cores=(core,))
    capacity, seconds = case.capacity(case.baseline, chosen)
    if seconds < LEAST_SECONDS or capacity <= 0:
        return None
    ran, _ = case.ran((case.baseline,), chosen)
    used: dict[tuple[str, str], float] = {}
    for one in ran:
        _add(used, (one.unit, one.process), one.samples)
    return Before(used, float(sum(one.softirq for one in ran)), capacity, 0.0)


def by_ticks(
    case: cases.Case,
    core: int,
    used: Mapping[str, tuple[float, float]],
    seconds: float,
    signal: str = "processes",
) -> dict[str, Share]:
    """The same of processes that were last seen on the core; empty where nobody looked in the baseline.

    By name: a process that was started anew does what the one before it did.
    """
    earlier, known = seen_on(case, core, case.baseline, signal)
    if known < LEAST_SECONDS or seconds <= 0:
        return {}
    before: dict[tuple[str, str], float] = {}
    now: dict[tuple[str, str], float] = {}
    for sums, ticks in ((before, earlier), (now, used)):
        for key, (user, system) in ticks.items():
            _add(sums, ("", name_of(key)), user + system)
    usual = Before(before, 0.0, known * TICKS, 1.0)
    whole = seconds * TICKS
    return {key: usual.share(("", name_of(key)), now["", name_of(key)], whole) for key in used}


def magnitude(told: Share | None) -> dict[str, float]:
    """What was there, and what was added where it rose: what does not vary fills no core."""
    if told is None:
        return {}
    both = {"cores_before": round(told.before, 4)}
    if told.rose:
        both["cores_added"] = round(told.added, 4)
    return both


def rising(
    before: Before | None, ran: tuple[consumers.Ran, ...], capacity: float
) -> dict[tuple[str, str], Share]:
    """Of each that ran, both shares; empty where there is nothing to compare with."""
    if before is None or capacity <= 0:
        return {}
    return {
        (one.unit, one.process): before.share((one.unit, one.process), one.samples, capacity)
        for one in ran
    }


def name_of(key: str) -> str:
    """The process in a key of the signal: `4711 postgres`."""
    return key.partition(" ")[2] or key


def seen_on(
    case: cases.Case, core: int, window: Window, signal: str = "processes"
) -> tuple[dict[str, tuple[float, float]], float]:
    """User and kernel ticks in a window of every process that was last on the core, the most first.

    And how many seconds are known.
    """
    rates = case.rates(signal, window, columns=("utime", "stime"))
    if "utime" not in rates.values or not len(rates.seconds):
        return {}, 0.0
    there = _looks(case, core, window, signal)
    used: dict[str, tuple[float, float]] = {}
    for n, key in enumerate(rates.keys):
        share = there.get(key, 0.0)
        if share <= 0:
            continue
        user, system = (
            float(np.nansum(rates.values[name][:, n] * rates.seconds)) * share
            for name in ("utime", "stime")
        )
        if user + system > 0:
            used[key] = (user, system)
    by_most = dict(sorted(used.items(), key=lambda pair: -sum(pair[1])))
    return by_most, float(rates.seconds.sum())


def _looks(case: cases.Case, core: int, window: Window, signal: str) -> dict[str, float]:
    """Of each process, the share of its looks in those seconds that found it on the core."""
    looks: dict[str, list[int]] = {}
    for frame in case.ring.numbers(
        case.host, signal, window.begin_us, window.end_us + 1, None, ("core",)
    ):
        for key in frame.keys:
            _, cores = frame.series(key, "core")
            looks.setdefault(key, []).extend(cores)
    return {
        key: sum(one == core for one in cores) / len(cores) for key, cores in looks.items() if cores
    }


def _add(used: dict[tuple[str, str], float], key: tuple[str, str], amount: float) -> None:
    used[key] = used.get(key, 0.0) + amount
