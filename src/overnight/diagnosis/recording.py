"""Read how much evidence was recorded around one event, for `completeness`."""

from __future__ import annotations

import dataclasses

from overnight import errors
from overnight.diagnosis import completeness
from overnight.model.finding import Need
from overnight.model.load import VICTIM
from overnight.model.selection import Coverage, Window
from overnight.model.severity import Severity
from overnight.model.times import HOUR_US, SECOND_US
from overnight.queries import case as cases
from overnight.queries import freshness

NIGHT_US, AFTER_US = 12 * HOUR_US, HOUR_US
MAX_NOTES = 10
EACH_SECOND = (("pressure", "some"), ("softirqs", "NET_RX"))
# What no file of another tool contains, in the words of a report.
RECORDER_ONLY = (
    "memory cgroups", "restarts of units", "queues of network cards", "softirqs by kind", "memory and I/O pressure",
    "real-time policies", "kernel limits",
)  # fmt: skip


def read_recording(case: cases.Case) -> completeness.Recording:
    """Read what store and ring hold of the incident window, the baseline and the night."""
    stacks = _stacks(case, case.window, counted=True)
    baseline, night = _stacks(case, case.baseline, counted=True), _night(case)
    parts = [part for part in (night, baseline, stacks) if part]
    damaged = {each.segment: str(each) for part in parts for each in part.damaged}
    before_us = case.event.time_us - case.window.begin_us
    problems = case.problems
    unread, imported = problems.get(freshness.KERNEL_LOG, {}), case.imported
    is_missing = imported is not None and Need.EVENTS not in imported
    is_unread = "problem" in unread and "exhausted" not in unread
    return completeness.Recording(
        stacks=stacks,
        baseline=baseline,
        night=night,
        signals=_signals(case),
        signals_why=tuple(
            gap.why for gap in case.ring.gaps(case.host, case.window.begin_us, case.window.end_us)
        ),
        # A log that only the recorder itself failed to read is among `exhausted`.
        kernel_log=False if is_missing or is_unread else None,
        not_imported=() if imported is None else RECORDER_ONLY,
        cut=case.compared.cut,
        disturbed=case.compared.disturbed,
        # A note at the begin of a recording is not an incident.
        before_s=None if case.event.severity == Severity.INFO else before_us / SECOND_US,
        skew_us=case.event.skew_us,
        denied=tuple(
            f"signal {name}"
            for name, row in problems.items()
            if row.get("denied") is True and name != freshness.KERNEL_LOG
        ),
        exhausted=_exhausted(case),
        loads=tuple(load for load in case.loads() if load.workload != VICTIM),
        compared=Window(case.baseline.begin_us, case.event.time_us),
        notes=tuple(dict.fromkeys((*stacks.notes, *damaged.values())))[:MAX_NOTES],
    )


def _exhausted(case: cases.Case) -> tuple[tuple[str, str], ...]:
    """Return the signals that the recorder itself failed to read at any time in the incident window."""
    facts = case.ring.facts(case.host, cases.PROBLEMS, case.window.begin_us, case.window.end_us)
    later = ((change.key, change.after or {}) for change in facts.changes)
    return tuple(
        (name, str(row.get("problem", "")))
        for name, row in (*(facts.state or {}).items(), *later)
        if row.get("exhausted") is True
    )


def _stacks(case: cases.Case, window: Window, *, counted: bool) -> Coverage:
    """Return how much of a window was sampled; samples are counted only where losses matter."""
    hosts = (case.host,)
    nothing = Coverage(hosts, window, 0.0, 0.0, 0.0, 0, 0, 0, 0, ())
    if case.host not in case.profiles.catalogue.hosts():
        return nothing
    try:
        if counted:
            return case.top(window, limit=1).coverage
        return dataclasses.replace(case.profiles.coverage(hosts, window), lost=0)
    except errors.OvernightError as error:
        return dataclasses.replace(nothing, gaps=((window.begin_us, window.end_us, error.what),))


def _night(case: cases.Case) -> Coverage | None:
    """Return the coverage from the first to the last segment of the night; beyond them, none was wanted."""
    if case.host not in case.profiles.catalogue.hosts():
        return None
    span = Window(case.event.time_us - NIGHT_US, case.event.time_us + AFTER_US)
    segments = case.profiles.touched((case.host,), span)
    if not segments:
        return None
    begin = max(min(segment.begin_us for segment in segments), span.begin_us)
    end = min(max(segment.end_us for segment in segments), span.end_us)
    return _stacks(case, Window(begin, max(end, begin + 1)), counted=False)


def _signals(case: cases.Case) -> float:
    """Return the share of the incident window, as far as it has passed, whose seconds were kept."""
    if not case.recorded(case.window):
        return 0.0
    covered = case.cores(case.window).coverage.covered_seconds
    if not covered:
        covered = max(
            case.rates(signal, case.window, columns=(column,)).coverage.covered_seconds
            for signal, column in EACH_SECOND
        )
    extent = case.ring.extent(case.host)
    end = min(case.window.end_us, extent[1]) if extent else case.window.end_us
    # A recording that ends with the event lacks what came after it, where no cause is looked for.
    wanted = max((max(end, case.event.time_us) - case.window.begin_us) / SECOND_US, 1.0)
    return min(covered / wanted, 1.0)
