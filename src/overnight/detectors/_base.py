"""What detectors share: how they answer, and how what burns a core is told."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from overnight.detectors import _core_shares as shares
from overnight.model import times
from overnight.model.finding import Answer, Evidence, Finding, Need, Status, Subject, finding_id
from overnight.model.selection import Window
from overnight.queries import reader, trends

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from overnight.model.event import Value
    from overnight.queries import case as cases
    from overnight.queries import function_usage, samples

__all__ = [
    "SHELF",
    "BaseDetector",
    "MissingError",
    "burn_evidence",
    "burn_magnitude",
    "command",
    "dying_now",
    "lasting",
    "lost_factor",
    "make",
    "require_stacks",
    "stacks",
    "stands_out",
]

HOUR_US = 3_600_000_000
# What burns less than a quarter of one core for two seconds has not starved anybody.
LEAST_CORES = 0.25
LEAST_SECONDS = 2.0
LEAST_SAMPLES = 25  # a Poisson count of 25 is known within 40 %
LEAST_LIFT = 2.0  # by the lower bound: twice as much as in the ten minutes before, at least
FULL_CORE = 0.8  # whoever fills a core matters, also when he did the same ten minutes ago
# What starves a core for the five seconds of a watchdog is over when the event is told.
MATTERS_US = 10_000_000
MATTERS_SHARE = 0.7
LOST_SHARE = 0.1  # of the samples: more lost than this lowers what is said about the others

# Timers, sessions and jobs of many units are born here and soon gone, on every healthy host.
SHELF = re.compile(
    r"(?:^|/)(?:system|user|user-\d+|app|background|session)\.slice$|/user@\d+\.service$|^/$"
)


class MissingError(Exception):
    """Evidence that a detector needs was not recorded; `missing` names it, all its needs if empty."""

    def __init__(self, why: str, *missing: Need) -> None:
        super().__init__(why)
        self.missing = missing


class BaseDetector:
    """Runs `examine`; a `MissingError` in it becomes the answer no-data with the missing inputs."""

    name = ""
    needs: tuple[Need, ...] = ()

    def look(self, case: cases.Case) -> Answer:
        """Answer for one event."""
        try:
            return self.examine(case)
        except MissingError as error:
            missing = error.missing or self.needs
            return Answer(self.name, Status.NO_DATA, why=str(error), missing=missing)

    def examine(self, case: cases.Case) -> Answer:
        """Answer found or clear, or raise MissingError."""
        raise NotImplementedError

    def answer(self, findings: Sequence[Finding], *, clear: str, remark: str = "") -> Answer:
        """Build the answer; `clear` gives the reason where nothing was found, `remark` limits what was."""
        if not findings:
            return Answer(self.name, Status.CLEAR, why=clear)
        return Answer(self.name, Status.FOUND, tuple(findings), remark)


def make(
    detector: str,
    kind: str,
    subject: Subject,
    window: Window,
    confidence: float,
    summary: str,
    evidence: Iterable[Evidence],
    magnitude: Mapping[str, float],
    against: Iterable[Evidence] = (),
) -> Finding:
    """A finding with its id, its numbers rounded to what is worth reading."""
    return Finding(
        finding_id(detector, kind, subject, window.begin_us),
        detector,
        kind,
        subject,
        window,
        min(1.0, max(0.0, confidence)),
        summary,
        tuple(evidence),
        {name: round(float(number), 4) for name, number in magnitude.items()},
        tuple(against),
    )


def command(what: str, window: Window, host: str, *more: str) -> str:
    """The command line that shows a window."""
    begin, end = (times.format_instant(us) for us in (window.begin_us, window.end_us))
    return " ".join(("overnight", what, "-b", begin, "-e", end, "--host", shlex.quote(host), *more))


def stacks(case: cases.Case) -> tuple[samples.WindowSamples, samples.WindowSamples | None]:
    """The stacks of the hot stretch and of the baseline, None where that was not recorded."""
    if not case.has_profile(case.window):
        raise MissingError("no stacks were sampled around the event", Need.PROFILES)
    now = case.stacks(case.window)
    if not now.core_rate or not now.seconds:
        raise MissingError(
            "the profile does not say how often it sampled which cores", Need.PROFILES
        )
    before = None
    if case.has_profile(case.baseline):
        before = case.stacks(case.baseline, by_second=False)
        if not before.core_rate or not before.seconds:
            before = None
    return now, before


def require_stacks(case: cases.Case) -> None:
    """Nobody may say that nothing was there when the seconds that matter were not sampled."""
    event_us = case.event.time_us
    for window in (Window(event_us - MATTERS_US, event_us), case.window):
        recorded = sum(
            reader.recorded_seconds(segment, case.profiles.meta(segment), window)
            for segment in case.profiles.touched((case.host,), window)
        )
        if recorded < MATTERS_SHARE * window.seconds:
            raise MissingError(
                f"only {recorded:.0f} of {window.seconds:.0f} s around the event were sampled",
                Need.PROFILES,
            )


def stands_out(one: function_usage.Usage, *, baseline: bool) -> bool:
    """Whether it burnt enough, for long enough, and more than it does otherwise."""
    if one.samples < LEAST_SAMPLES or one.cores_used < LEAST_CORES:
        return False
    if one.window.seconds < LEAST_SECONDS:
        return False
    if not baseline:
        return one.cores_used >= 2 * LEAST_CORES
    return one.lift_low >= LEAST_LIFT or one.share_of_core_samples >= FULL_CORE


def burn_magnitude(one: function_usage.Usage) -> dict[str, float]:
    """The numbers by which what burns cores is compared; no infinite ones."""
    found = {
        "cores_burnt": one.cores_used,
        "share_of_core_samples": one.share_of_core_samples,
        "samples": float(one.samples),
        "seconds": one.window.seconds,
        "baseline_cores": one.baseline_cores,
    }
    if one.lift_low > 0:
        found["lift_low"] = one.lift_low
    if one.lift > 0 and one.cores_used - one.baseline_cores >= shares.LEAST_ADDED:
        found["cores_added"] = one.cores_used - one.baseline_cores
    return found


def burn_evidence(
    case: cases.Case, one: function_usage.Usage, now: samples.WindowSamples, function: str
) -> Evidence:
    """Who burnt how much where, with the stack that was met most."""
    process, unit = one.actor
    of_unit = f" of {unit}" if unit else ""
    than = f"{one.baseline_cores:.2f} cores in the {case.usual}"
    kernel = " > ".join(one.path[-8:])
    values: dict[str, Value] = {
        "cores_burnt": round(one.cores_used, 3),
        "samples": one.samples,
        "share_of_that_core_s_possible_samples": round(one.share_of_core_samples, 3),
        "share_on_that_core_of_its_samples": round(one.core_share, 3),
        "baseline_cores": round(one.baseline_cores, 4),
        "lost_samples_in_the_window": now.coverage.lost,
        "path": kernel,
        **{f"samples_in_{name}": n for name, n in one.marked.items()},
    }
    return Evidence(
        f"{process}{of_unit} burnt {one.cores_used:.2f} cores in {function} for"
        f" {one.window.seconds:.0f} s, {one.share_of_core_samples:.0%} of what core {one.core} can"
        f" give, against {than}: {kernel}",
        "profiles",
        values,
        one.window,
        command(
            "flame",
            one.window,
            case.host,
            "--core",
            str(one.core),
            "--function",
            shlex.quote(function),
        ),
    )


def lasting(case: cases.Case, back_us: int) -> Window:
    """The time in which a state is looked at that lasts: up to the event.

    Where little was recorded before, also half an hour after it: a leak or a loop that goes on then went
    on before, if it was there at all; that is for the caller to see to.
    """
    end = case.window.end_us
    extent = case.ring.extent(case.host)
    if extent is not None and extent[0] > end - HOUR_US:
        end = max(end, min(extent[1], end + HOUR_US // 2))
    return Window(case.window.end_us - back_us, end)


def lost_factor(now: samples.WindowSamples) -> float:
    """By how much lost samples lower what is said about the rest."""
    told = now.coverage.lost / max(1, now.coverage.samples + now.coverage.lost)
    return 0.8 if told > LOST_SHARE else 1.0


def dying_now(case: cases.Case) -> int | None:
    """Zombie memory cgroups at the event; None where nobody counted within two hours before."""
    window = Window(case.event.time_us - 2 * HOUR_US, case.window.end_us)
    row = trends.table(case.ring, case.host, "memory-cgroups", window).get("")
    return None if row is None else row["dying"]
