"""Missing evidence, and by how much it lowers the score: factors multiply, not below `MIN_FACTOR`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from overnight.model import times
from overnight.model.finding import Answer, Status
from overnight.model.load import Constancy, Load
from overnight.model.times import SECOND_US
from overnight.model.verdict import Chain, Gap, GapKind, GapWindow

if TYPE_CHECKING:
    from overnight.model.selection import Coverage, Window

MIN_FACTOR = 0.2
APART = (GapKind.SHORT_BASELINE, GapKind.DISTURBED_BASELINE, GapKind.DETECTOR_NO_DATA, GapKind.LOAD)
STACKS = (GapKind.STACKS, GapKind.LOST_SAMPLES)
FOR_NO_CAUSE = (GapKind.LATE_START, GapKind.DETECTOR_NO_DATA)  # not where one is found
WINDOWS = {
    GapWindow.INCIDENT: "incident window",
    GapWindow.BASELINE: "baseline",
    GapWindow.RECORDING: "recording",
}
WHOLE = 0.98  # of a window: the first and the last second of a segment are not whole
NEGLIGIBLE = 0.995  # a factor that reads 1.00 is not missing evidence
LOST_WHOLE = 0.005  # of all samples: some are always lost
SKEW_US = SECOND_US  # below this, what is joined by the second still meets
FAR_SKEW_US = 30 * SECOND_US  # beyond this the incident window is another one
NO_DATA_FACTOR, FAILED_FACTOR, MIN_OF_DETECTORS = 0.97, 0.93, 0.8
# As all detectors without data together. Of 128 causes blamed on made-up nights with nothing but stacks, CPU time
# and kernel log, 89 % are true; with this factor their mean confidence is 0.88, without it 0.91.
NOT_IMPORTED_FACTOR = MIN_OF_DETECTORS
KERNEL_LOG_FACTOR, PERMISSION_FACTOR = 0.9, 0.92
# A baseline of a minute or more is representative; one of a few seconds is not.
LONG_BASELINE_S, SHORT_BASELINE_FACTOR = 60.0, 0.85
REACH_S = 10.0  # watchdogs fire, and drivers give up, up to this long after the trouble began
DISTURBED_FACTOR = 0.7  # as if none of the baseline were recorded
# A load that changed explains a difference as well as a fault does; one that ran for a part of the time is
# a known difference, which detectors may have named.
NOT_CONSTANT_FACTOR, CUT_OFF_FACTOR, PART_FACTOR = 0.75, 0.75, 0.85
EDGE_US = 5 * SECOND_US
CLOSE = 0.85  # a rival with this share of the winner's score begins to matter


@dataclasses.dataclass(frozen=True)
class Recording:
    """How much evidence was recorded around one event; None where nobody checked. Shares are from 0 to 1."""

    stacks: Coverage | None = None  # of the incident window
    baseline: Coverage | None = None
    night: Coverage | None = None  # of the whole recording
    signals: float | None = None  # share of the incident window that the flight recorder kept
    signals_why: tuple[str, ...] = ()  # why it did not keep the rest, as far as it knows
    kernel_log: bool | None = None  # False: it could not be read, or was not imported
    not_imported: tuple[str, ...] = ()  # what only a recorder reads, where files were imported
    cut: bool = False  # earlier events of this kind left no longer baseline
    disturbed: bool = False  # the baseline contains earlier events of this kind
    before_s: float | None = None  # length of the incident window before the event
    skew_us: int = 0
    denied: tuple[str, ...] = ()  # what the recorder had no permission to read
    exhausted: tuple[tuple[str, str], ...] = ()  # signals that the recorder failed to read, and why
    loads: tuple[Load, ...] = ()  # `overnight load` runs that touch baseline or incident window
    compared: Window | None = None  # from the begin of the baseline to the event
    notes: tuple[str, ...] = ()  # shown; they lower nothing


def find_gaps(recording: Recording | None, answers: Sequence[Answer]) -> tuple[Gap, ...]:
    """Return all missing evidence, the most costly first; each lowers the score."""
    recorded = _find_in_recording(recording or Recording())
    costly = (gap for gap in recorded if gap.factor < NEGLIGIBLE)
    return _sort((*costly, *_find_in_answers(answers)))


def list_notes(recording: Recording | None) -> tuple[str, ...]:
    """Return facts about the recording that lower nothing: a constant load, a damaged segment."""
    recording = recording or Recording()
    loads = (_judge_load(load, recording.compared) for load in recording.loads)
    return (*(gap.why for gap in loads if gap.factor == 1), *sorted(set(recording.notes)))


def _sort(gaps: Iterable[Gap]) -> tuple[Gap, ...]:
    def key(gap: Gap) -> tuple[object, ...]:
        return gap.factor, gap.kind, gap.window or "", gap.detector, gap.why

    return tuple(sorted(gaps, key=key))


def multiply(gaps: Iterable[Gap]) -> float:
    """Return the factor by which a chain's score is multiplied."""
    return max(math.prod(gap.factor for gap in gaps), MIN_FACTOR)


def weigh_for_chain(gaps: Iterable[Gap], chain: Chain, *, counted: bool) -> tuple[Gap, ...]:
    """Return the gaps as they count for one chain: stacks that it does not rest on cost it less.

    `counted`: the kernel counts the root itself. A cause that was seen needs no earlier begin of the recording,
    and no detector that could not look: what its links could not check counts in their strength, and a recording
    may be older than the detector.
    """
    sources = {evidence.source for step in chain.steps[:-1] for evidence in step.evidence}
    without_stacks = counted and "profiles" not in sources

    def weigh(gap: Gap) -> Gap:
        if without_stacks and gap.kind in STACKS:
            why = f"{gap.why}; the chain does not rest on stacks"
            return dataclasses.replace(gap, why=why, factor=round(math.sqrt(gap.factor), 6))
        return gap

    weighed = (weigh(gap) for gap in gaps if gap.kind not in FOR_NO_CAUSE)
    return _sort(gap for gap in weighed if gap.factor < NEGLIGIBLE or gap.kind not in STACKS)


def select_around_event(gaps: Iterable[Gap]) -> tuple[Gap, ...]:
    """Return the gaps that matter for whether anything happened: not of the baseline or of detectors."""
    return tuple(
        gap
        for gap in gaps
        if gap.kind not in APART
        and not (gap.kind in STACKS and gap.window is not GapWindow.INCIDENT)
    )


def _find_in_recording(recording: Recording) -> Iterable[Gap]:
    for window, coverage, least in (
        (GapWindow.INCIDENT, recording.stacks, 0.4),
        (GapWindow.BASELINE, recording.baseline, 0.7),
        (GapWindow.RECORDING, recording.night, 0.55),
    ):
        if coverage is not None:
            yield from _find_in_coverage(window, coverage, least)
    yield from _find_in_baseline(recording)
    if recording.signals is not None and recording.signals < WHOLE:
        share = max(recording.signals, 0.0)
        what = f"signals for {_percent(1 - share)} of the incident window"
        kept = f"{_percent(share) if share else 'none'} of it"
        why = f"{'the imported files contain' if recording.not_imported else 'the flight recorder kept'} {kept}"
        why += _list_reasons(recording.signals_why)
        yield Gap(GapKind.SIGNALS, what, why, 0.4 + 0.6 * share)
    if recording.before_s is not None and recording.before_s < REACH_S:
        yield Gap(
            GapKind.LATE_START,
            "the seconds before the event",
            f"the recording began {recording.before_s:.1f} s before the event, and a cause often begins earlier",
            0.4 + 0.6 * max(recording.before_s, 0.0) / REACH_S,
        )
    if recording.kernel_log is False:
        why = "it could not be read"
        if recording.not_imported:
            why = "no imported kernel log reaches from before the event to a line at or after it"
        why += ", so events that only the kernel log reports are missing"
        yield Gap(GapKind.KERNEL_LOG, "the kernel log", why, KERNEL_LOG_FACTOR)
    if recording.not_imported:
        what = f"not in the imported files: {', '.join(recording.not_imported)}"
        why = "only a recorder on the host reads them; each could have shown another cause"
        yield Gap(GapKind.NOT_IMPORTED, what, why, NOT_IMPORTED_FACTOR)
    skew = abs(recording.skew_us)
    if skew > SKEW_US:
        yield Gap(
            GapKind.CLOCK,
            "a steady clock",
            f"the wall clock was set by {times.format_duration(skew / SECOND_US)} during the recording, so times may not match",
            0.6 if skew > FAR_SKEW_US else 0.85,
        )
    for denied in sorted(set(recording.denied)):
        yield Gap(GapKind.PERMISSION, f"permission to read {denied}", "the recorder was denied access to it", PERMISSION_FACTOR)  # fmt: skip
    if recording.exhausted:
        names = sorted({name for name, _ in recording.exhausted})
        what = f"some readings of the signals {', '.join(names)}"
        why = f"the recorder itself failed: {min(why for _, why in recording.exhausted)}"
        yield Gap(GapKind.RECORDER, what, why, round(PERMISSION_FACTOR ** len(names), 6))
    for load in recording.loads:
        yield _judge_load(load, recording.compared)


def _find_in_baseline(recording: Recording) -> Iterable[Gap]:
    if recording.disturbed:
        yield Gap(
            GapKind.DISTURBED_BASELINE,
            "a baseline without earlier events",
            "earlier events of this kind are in the baseline, so what they share does not stand out",
            DISTURBED_FACTOR,
        )
    length = recording.baseline.window.seconds if recording.baseline else LONG_BASELINE_S
    if length < LONG_BASELINE_S:
        began = "the recording began shortly before the event"
        why = "earlier events of this kind cut it short" if recording.cut else began
        yield Gap(
            GapKind.SHORT_BASELINE,
            "a longer baseline",
            f"the baseline is only {times.format_duration(length)} long: {why}",
            1 - (1 - SHORT_BASELINE_FACTOR) * (1 - length / LONG_BASELINE_S),
        )


def _judge_load(load: Load, compared: Window | None) -> Gap:
    """Return what a load did to the comparison of incident window and baseline."""
    figures = f": {load.says}" if load.says else ""
    began_late = compared is not None and load.began_us > compared.begin_us + EDGE_US
    ended_early = compared is not None and load.ended and load.until_us < compared.end_us - EDGE_US
    if load.status == Constancy.NOT_CONSTANT:
        crossed = ": " + "; ".join(load.crossed) if load.crossed else figures
        why, factor = f"was not constant{crossed}", NOT_CONSTANT_FACTOR
    elif not load.ended and not load.running:
        lasted = times.format_duration((load.until_us - load.began_us) / SECOND_US)
        why, factor = f"was cut off after {lasted}", CUT_OFF_FACTOR
    elif began_late or ended_early:
        verb = "began" if began_late else "ended"
        why, factor = f"{verb} between the baseline and the event", PART_FACTOR
    elif load.status == Constancy.REPLAYED:
        why, factor = (
            f"replayed a recorded profile, which is not constant{figures}",
            NOT_CONSTANT_FACTOR,
        )
    elif load.status == Constancy.CONSTANT:
        why, factor = f"was constant{figures}", 1.0
    else:
        why, factor = f"crossed no limit; not all limits can be judged yet{figures}", 1.0
    if factor < 1:
        why += ", so the load may explain what differs between the windows"
    return Gap(GapKind.LOAD, "constant load", f"the load {load.workload} {why}", factor)


def _list_reasons(reasons: Iterable[str]) -> str:
    known = sorted({reason for reason in reasons if reason})
    return f" ({'; '.join(known[:3])})" if known else ""


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share <= 0.99 or share == 1 else f"{100 * share:.1f} %"


def _find_in_coverage(window: GapWindow, coverage: Coverage, least: float) -> Iterable[Gap]:
    wanted = coverage.window.seconds * max(len(coverage.hosts), 1)
    share = min(coverage.recorded_seconds / wanted, 1.0) if wanted > 0 else 1.0
    if share < WHOLE:
        # A part of a window never reads as all of it: `11.7 s`, not `12 s`.
        lengths = (coverage.recorded_seconds, wanted)
        recorded, whole = (times.format_duration(length, exact=True) for length in lengths)
        why = f"{recorded} of {whole} recorded" if share else f"none of {whole} recorded"
        why += _list_reasons(reason for _, _, reason in coverage.gaps)
        yield Gap(
            GapKind.STACKS,
            f"stacks for {_percent(1 - share)} of the {WINDOWS[window]}",
            why,
            least + (1 - least) * share,
            window,
        )
    taken = coverage.samples + coverage.idle + coverage.lost
    lost = coverage.lost / taken if taken else 0.0
    if lost > LOST_WHOLE:
        yield Gap(
            GapKind.LOST_SAMPLES,
            f"{100 * lost:.1f} % of the samples of the {WINDOWS[window]}",
            f"{coverage.lost:,} of {taken:,} samples were lost",
            1 - (1 - least) * lost,
            window,
        )


def _find_in_answers(answers: Sequence[Answer]) -> Iterable[Gap]:
    """Yield detectors without data and those that failed; the evidence they lack is a gap already.

    So together they cost no more than `MIN_OF_DETECTORS`, each its share of it.
    """
    costs = {Status.NO_DATA: NO_DATA_FACTOR, Status.FAILED: FAILED_FACTOR}
    silent = [answer for answer in answers if answer.status in costs]
    whole = math.prod(costs[answer.status] for answer in silent)
    part = min(1.0, math.log(MIN_OF_DETECTORS) / math.log(whole)) if silent else 1.0
    for answer in silent:
        failed = answer.status is Status.FAILED
        yield Gap(
            GapKind.DETECTOR_FAILED if failed else GapKind.DETECTOR_NO_DATA,
            f"detector {answer.detector} {'failed' if failed else 'had no data'}",
            answer.why or ("no reason given" if failed else "what it needs was not recorded"),
            round(costs[answer.status] ** part, 6),
            detector=answer.detector,
        )


def find_rival(winner: Chain, alternatives: Sequence[Chain]) -> tuple[Gap, ...]:
    """Return a gap where a chain that blames somebody else scores nearly as well."""
    ids = {step.id for step in winner.steps}
    actors = {step.subject.process for step in winner.steps} - {""}
    for rival in alternatives:
        own = {step.subject.process for step in rival.steps if step.id not in ids} - {""}
        deeper = ids <= {step.id for step in rival.steps}  # the winner, and a guess at its cause
        if rival.root.id in ids or deeper or (own and own <= actors):
            continue
        close = rival.score / winner.score if winner.score else 1.0
        factor = round(1 - 0.4 * min((close - CLOSE) / (1 - CLOSE), 1.0), 6)
        if factor < NEGLIGIBLE:
            what = "proof against another explanation that is nearly as good"
            name = rival.root.summary or rival.root.kind
            why = f"{name} scores {rival.score:.2f} against {winner.score:.2f}"
            return (Gap(GapKind.RIVAL, what, why, factor),)
        return ()
    return ()
