"""What is missing from the evidence, and by how much that lowers the confidence.

Factors are straight lines, so that they can be argued with: half of the stacks around the event missing
is 0.7, half of the baseline 0.85. They multiply, but never below `LEAST`: what was seen was seen.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from overnight.model import times
from overnight.model.finding import Answer, Status
from overnight.model.load import Constancy, Load
from overnight.model.verdict import Chain, Gap

if TYPE_CHECKING:
    from overnight.model.selection import Coverage, Window

__all__ = ["Recorded", "around_event", "factor", "find_gaps", "of_chain", "rivalry"]

LEAST = 0.2
AROUND = "stacks around the event"
BASELINE, NIGHT = "stacks of the baseline", "stacks of the night"
STACKS = (AROUND, BASELINE, NIGHT)
SHORT_BASELINE, DISTURBED = "a short baseline", "a disturbed baseline"
SECONDS_BEFORE = "the seconds before the event"
NO_DATA = "had no data"
LOAD = "constant load"
WHOLE = 0.98  # of a window: the first and the last second of a segment are not whole
LOST_WHOLE = 0.005  # of all samples: this many are always lost somewhere
SKEW_US = 1_000_000  # below this, what is joined by the second still meets
FAR_SKEW_US = 30_000_000  # beyond this the hot window is another one
NO_DATA_FACTOR, FAILED_FACTOR, LEAST_OF_DETECTORS = 0.97, 0.93, 0.8
PERMISSION_FACTOR = 0.92
# A baseline of a minute or more shows what is usual; of a few seconds it shows little of it.
LONG_BASELINE_S, SHORT_BASELINE_FACTOR = 60.0, 0.85
REACH_S = 10.0  # watchdogs bark, and drivers give up, so long after their trouble began
DISTURBED_FACTOR = 0.7  # as if nothing of it were recorded
# A load that changed explains a difference as well as a fault does; one that was there for a part of the
# time is a difference that is known, and that detectors may have named.
NOT_CONSTANT_FACTOR, CUT_OFF_FACTOR, PART_FACTOR = 0.75, 0.75, 0.85
SECOND_US = 1_000_000
EDGE_US = 5 * SECOND_US
CLOSE = 0.85  # a rival with this share of the winner's score begins to matter


@dataclasses.dataclass(frozen=True)
class Recorded:
    """What there is of the evidence around one event; None where nobody looked.

    `stacks` covers the hot window, `baseline` the time before, `night` the whole recording; shares are
    from 0 to 1. `denied` says in words what could not be read for want of permission.
    """

    stacks: Coverage | None = None
    baseline: Coverage | None = None
    night: Coverage | None = None
    signals: float | None = None  # share of the hot window that the flight recorder kept
    kernel_log: bool | None = None
    cut: bool = False  # earlier events of this kind left no longer baseline
    disturbed: bool = False  # earlier events of this kind are in it
    before_s: float | None = None  # of the hot window, what is before the event
    skew_us: int = 0
    denied: tuple[str, ...] = ()
    loads: tuple[Load, ...] = ()  # `overnight load`, at some time of baseline or hot window
    compared: Window | None = None  # from the baseline's begin to the event
    notes: tuple[str, ...] = ()  # said, without lowering anything


def find_gaps(recorded: Recorded | None, answers: Sequence[Answer]) -> tuple[Gap, ...]:
    """Every gap, those that cost most first."""
    gaps = [*_recorded(recorded or Recorded()), *_detectors(answers)]
    return tuple(sorted(gaps, key=lambda one: (one.factor, one.what, one.why)))


def factor(gaps: Iterable[Gap]) -> float:
    """By what a chain's score is multiplied."""
    return max(math.prod(one.factor for one in gaps), LEAST)


def of_chain(gaps: Iterable[Gap], chain: Chain, *, counted: bool) -> tuple[Gap, ...]:
    """The gaps as they count for one chain: stacks that it does not rest on cost it less.

    `counted`: the kernel itself counts its root, as it does soft interrupts. Stacks would still show who else
    was there, so that they are missing is not for nothing. And that a cause may have been overlooked before
    the recording began costs one nothing that was seen.
    """
    gaps = tuple(
        dataclasses.replace(one, factor=1.0) if one.what == SECONDS_BEFORE else one for one in gaps
    )
    sources = {told.source for step in chain.steps[:-1] for told in step.evidence}
    if not counted or "profiles" in sources:
        return gaps
    lighter = [
        dataclasses.replace(
            one,
            why=f"{one.why}; the chain does not rest on them",
            factor=round(math.sqrt(one.factor), 6),
        )
        if one.what.endswith(STACKS) and one.factor < 1
        else one
        for one in gaps
    ]
    return tuple(sorted(lighter, key=lambda one: (one.factor, one.what, one.why)))


def around_event(gaps: Iterable[Gap]) -> tuple[Gap, ...]:
    """Those that matter for whether something was there at all.

    Not the time it is compared with, and not what detectors say of the same gaps.
    """
    apart = (BASELINE, SHORT_BASELINE, DISTURBED, NIGHT, NO_DATA, LOAD)
    return tuple(one for one in gaps if not one.what.endswith(apart))


def _recorded(recorded: Recorded) -> Iterable[Gap]:
    for what, coverage, least in (
        (AROUND, recorded.stacks, 0.4),
        (BASELINE, recorded.baseline, 0.7),
        (NIGHT, recorded.night, 0.55),
    ):
        if coverage is not None:
            yield from _coverage(what, coverage, least)
    yield from _baseline(recorded)
    if recorded.signals is not None and recorded.signals < WHOLE:
        share = max(recorded.signals, 0.0)
        yield Gap(
            "signals around the event",
            f"the flight recorder kept {share:.0%} of these seconds"
            if share
            else "the flight recorder kept nothing of these seconds",
            0.4 + 0.6 * share,
        )
    if recorded.before_s is not None and recorded.before_s < REACH_S:
        yield Gap(
            SECONDS_BEFORE,
            f"the recording began so shortly before it that {recorded.before_s:.1f} s are left to look for a"
            " cause in, and what causes an event often begins earlier",
            0.4 + 0.6 * max(recorded.before_s, 0.0) / REACH_S,
        )
    if recorded.kernel_log is False:
        yield Gap("kernel log", "it was not read, so events that only it tells are missing", 0.9)
    skew = abs(recorded.skew_us)
    if skew > SKEW_US:
        yield Gap(
            "clock",
            f"the wall clock was set by {times.format_duration(skew / 1e6)} while recording, so times may not meet",
            0.6 if skew > FAR_SKEW_US else 0.85,
        )
    for denied in sorted(set(recorded.denied)):
        yield Gap("permission", denied, PERMISSION_FACTOR)
    for one in recorded.loads:
        yield _load(one, recorded.compared)
    for note in sorted(set(recorded.notes)):
        yield Gap("note", note)


def _baseline(recorded: Recorded) -> Iterable[Gap]:
    """What is to be said of the time that the event is compared with."""
    if recorded.disturbed:
        yield Gap(
            DISTURBED,
            "no time without earlier events of this kind is recorded, so what they share does not stand out",
            DISTURBED_FACTOR,
        )
    length = recorded.baseline.window.seconds if recorded.baseline else LONG_BASELINE_S
    if length < LONG_BASELINE_S:
        why = "the recording began shortly before the event"
        if recorded.cut:
            why = "earlier events of this kind came soon after the recording began, or after one another"
        yield Gap(
            SHORT_BASELINE,
            f"{why}: {times.format_duration(length)} are what is usual",
            1 - (1 - SHORT_BASELINE_FACTOR) * (1 - length / LONG_BASELINE_S),
        )


def _load(one: Load, compared: Window | None) -> Gap:
    """What a load can have done to the comparison of the event with the time before."""
    figures = f": {one.says}" if one.says else ""
    doubt = "so what differs between the windows may be the load's doing"
    if one.status == Constancy.NOT_CONSTANT:
        crossed = ": " + "; ".join(one.crossed) if one.crossed else figures
        why = f"the load {one.workload} was not constant{crossed}, {doubt}"
        return Gap(LOAD, why, NOT_CONSTANT_FACTOR)
    if not one.ended and not one.running:
        lasted = times.format_duration((one.until_us - one.began_us) / SECOND_US)
        why = f"the load {one.workload} was cut off after {lasted}, {doubt}"
        return Gap(LOAD, why, CUT_OFF_FACTOR)
    if compared and (
        one.began_us > compared.begin_us + EDGE_US
        or (one.ended and one.until_us < compared.end_us - EDGE_US)
    ):
        word = "began" if one.began_us > compared.begin_us + EDGE_US else "ended"
        why = f"the load {one.workload} {word} between the baseline and the event, {doubt}"
        return Gap(LOAD, why, PART_FACTOR)
    if one.status == Constancy.CONSTANT:
        return Gap(LOAD, f"the load {one.workload} was constant{figures}")
    return Gap(
        LOAD, f"the load {one.workload} crossed no limit, and not all can be told yet{figures}"
    )


def _coverage(what: str, coverage: Coverage, least: float) -> Iterable[Gap]:
    asked = coverage.window.seconds * max(len(coverage.hosts), 1)
    share = min(coverage.recorded_seconds / asked, 1.0) if asked > 0 else 1.0
    if share < WHOLE:
        why = f"{times.format_duration(coverage.recorded_seconds)} of {times.format_duration(asked)} were recorded"
        reasons = sorted({reason for _, _, reason in coverage.gaps if reason})
        if reasons:
            why += f" ({'; '.join(reasons[:3])})"
        yield Gap(what, why, least + (1 - least) * share)
    whole = coverage.samples + coverage.idle + coverage.lost
    lost = coverage.lost / whole if whole else 0.0
    if lost > LOST_WHOLE:
        yield Gap(
            f"lost samples, {what}",
            f"{coverage.lost:,} of {whole:,} samples were lost ({lost:.1%})",
            1 - (1 - least) * lost,
        )


def _detectors(answers: Sequence[Answer]) -> Iterable[Gap]:
    """What had no data or failed; together they cost no more than `LEAST_OF_DETECTORS`.

    Their inputs, where missing, are gaps by themselves: counted in full they would count twice.
    """
    left = LEAST_OF_DETECTORS
    worst = [
        (one, NO_DATA_FACTOR if one.status is Status.NO_DATA else FAILED_FACTOR)
        for one in sorted(answers, key=lambda one: (one.detector, one.why))
        if one.status in (Status.NO_DATA, Status.FAILED)
    ]
    whole = 1.0
    for one, cost in worst:
        # What is left over the floor: the product of all of them never goes below it.
        cut = max(cost, min(1.0, left / whole))
        whole *= cut
        failed = one.status is Status.FAILED
        yield Gap(
            f"detector {one.detector} {'failed' if failed else NO_DATA}",
            one.why or ("it did not say why" if failed else "what it needs was not recorded"),
            round(cut, 6),
        )


def rivalry(winner: Chain, alternatives: Sequence[Chain]) -> tuple[Gap, ...]:
    """A second explanation that is nearly as good, of somebody else, is a reason to doubt the first."""
    there = {one.id for one in winner.steps}
    actors = {one.subject.process for one in winner.steps} - {""}
    for rival in alternatives:
        root = rival.steps[0]
        own = {one.subject.process for one in rival.steps if one.id not in there} - {""}
        deeper = there <= {one.id for one in rival.steps}  # the same, and a guess at what is behind
        if root.id in there or deeper or (own and own <= actors):
            continue
        close = rival.score / winner.score if winner.score else 1.0
        if close > CLOSE:
            doubt = 0.4 * min((close - CLOSE) / (1 - CLOSE), 1.0)
            return (
                Gap(
                    "another explanation is nearly as good",
                    f"{root.summary or root.kind} scores {rival.score:.2f} against {winner.score:.2f}",
                    round(1 - doubt, 6),
                ),
            )
        return ()
    return ()
