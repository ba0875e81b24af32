"""Sampled stacks around an event, and what a process spent in marked functions as evidence."""

from __future__ import annotations

import dataclasses
import shlex
from typing import TYPE_CHECKING

from overnight.detectors import _base, _core_shares, _signatures
from overnight.model.finding import Evidence, Need, Subject
from overnight.model.selection import Window
from overnight.queries import function_usage

if TYPE_CHECKING:
    from overnight.model.actor import Actor
    from overnight.model.event import Value
    from overnight.queries import case as cases
    from overnight.queries import samples

# Less than a quarter of one core for two seconds starves nothing.
MIN_CORES = 0.25
MIN_SECONDS = 2.0
MIN_SAMPLES = 25  # a Poisson count of 25 is known within 40 %
MIN_LIFT = 2.0  # by the lower bound: at least twice as much as in the baseline
SATURATED = 0.8  # of a core: matters even where the baseline shows the same
# What starves a core for the five seconds of a watchdog is over when the event is reported.
NEAR_US = 10_000_000
NEAR_SHARE = 0.7
LOST_SHARE = 0.1  # of the samples: more lost than this lowers the confidence in the others
LOST_FACTOR = 0.8
PATH_LENGTH = 8
WALK = "memory.cgroup_walk"
# Of the samples in reclaim, those in the step to the next memory cgroup. With 240 cgroups in use it stays
# below one in twenty; 15,000 dying ones made it the first function (measured, 6.18).
WALK_SHARE = 0.15


@dataclasses.dataclass(frozen=True)
class Stacks:
    """Stacks of the incident window, and of the baseline; None where that was not sampled."""

    case: cases.Case
    now: samples.WindowSamples
    before: samples.WindowSamples | None

    @property
    def counts(self) -> str:
        return f"{self.now.coverage.samples} samples, {self.now.coverage.lost} lost"

    def top_consumers(
        self, marks: function_usage.Marks, *, by_function: bool = False, limit: int = 8
    ) -> list[function_usage.Usage]:
        near_us = self.case.event.time_us
        return function_usage.top_consumers(
            self.now, self.before, marks, near_us=near_us, by_function=by_function, limit=limit
        )

    def draft(
        self, kind: str, usage: function_usage.Usage, function: str, confidence: float, summary: str
    ) -> _base.Draft:
        """Draft a finding about a process in a function; lost samples lower the confidence."""
        lost, taken = self.now.coverage.lost, self.now.coverage.samples
        return _base.Draft(
            kind,
            Subject.of_actor(self.case.host, usage.actor, core=usage.core, function=function),
            usage.window,
            confidence * (LOST_FACTOR if lost / max(1, taken + lost) > LOST_SHARE else 1.0),
            summary,
            [self.evidence(usage, function)],
            magnitude=magnitude(usage),
        )

    def evidence(self, usage: function_usage.Usage, function: str) -> Evidence:
        """Return how much an actor used on which core, with its most frequent stack."""
        path = " > ".join(usage.path[-PATH_LENGTH:])
        values: dict[str, Value] = {
            "cores_burnt": round(usage.cores_used, 3),
            "samples": usage.samples,
            "share_of_that_core_s_possible_samples": round(usage.share_of_core_samples, 3),
            "share_on_that_core_of_its_samples": round(usage.core_share, 3),
            "baseline_cores": round(usage.baseline_cores, 4),
            "lost_samples_in_the_window": self.now.coverage.lost,
            "path": path,
            **{f"samples_in_{name}": count for name, count in usage.marked.items()},
        }
        filters = ("--core", str(usage.core), "--function", shlex.quote(function))
        return Evidence(
            f"{usage.actor} used {usage.cores_used:.2f} cores in {function} for"
            f" {usage.window.seconds:.0f} s, {100 * usage.share_of_core_samples:.0f} % of core {usage.core};"
            f" {usage.baseline_cores:.2f} cores in the baseline ({self.case.baseline_text}). Stack: {path}",
            "profiles",
            values,
            usage.window,
            _base.command("flame", usage.window, self.case.host, *filters),
        )

    def walk_share(self, actor: Actor, *, min_samples: int = MIN_SAMPLES) -> float | None:
        """Return the share of an actor's reclaim samples that are in the step; None: too few samples."""
        step, shrink = _signatures.pattern(WALK, "walk"), _signatures.pattern(WALK, "shrink")
        both, whole = function_usage.nested_share(self.now, step, shrink, (actor,))
        return both / whole if whole >= min_samples else None


def read_stacks(case: cases.Case) -> Stacks:
    """Read the stacks around the event, or raise MissingError."""
    if not case.has_profile(case.window):
        raise _base.MissingError("there are no readable stacks around the event", Need.PROFILES)
    now = case.stacks(case.window)
    if not now.core_rate or not now.seconds:
        raise _base.MissingError(
            "the sampling rate and the cores of the profile are not known", Need.PROFILES
        )
    before = None
    if case.has_profile(case.baseline):
        before = case.stacks(case.baseline, by_second=False)
    return Stacks(case, now, before if before and before.core_rate and before.seconds else None)


def require_samples(case: cases.Case) -> None:
    """Raise MissingError unless the seconds that matter were sampled: else clear would be wrong."""
    event_us = case.event.time_us
    for window in (Window(event_us - NEAR_US, event_us), case.window):
        _, recorded = case.capacity(window)
        if recorded < NEAR_SHARE * window.seconds:
            raise _base.MissingError(
                f"only {recorded:.0f} of {window.seconds:.0f} s around the event were sampled",
                Need.PROFILES,
            )


def stands_out(usage: function_usage.Usage, *, baseline: bool) -> bool:
    """Return whether it is enough, for long enough, and more than in the baseline."""
    if usage.samples < MIN_SAMPLES or usage.cores_used < MIN_CORES:
        return False
    if usage.window.seconds < MIN_SECONDS:
        return False
    if not baseline:
        return usage.cores_used >= 2 * MIN_CORES
    return usage.lift_low >= MIN_LIFT or usage.share_of_core_samples >= SATURATED


def magnitude(usage: function_usage.Usage) -> dict[str, float]:
    """Return the numbers by which findings about stacks are compared."""
    numbers = {
        "cores_burnt": usage.cores_used,
        "share_of_core_samples": usage.share_of_core_samples,
        "samples": float(usage.samples),
        "seconds": usage.window.seconds,
        "baseline_cores": usage.baseline_cores,
    }
    if usage.lift_low > 0:
        numbers["lift_low"] = usage.lift_low
    added = usage.cores_used - usage.baseline_cores
    if usage.lift > 0 and added >= _core_shares.MIN_ADDED:
        numbers["cores_added"] = added
    return numbers
