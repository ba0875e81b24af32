"""How much there is of one event's evidence, as `completeness` wants to know it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from overnight import errors
from overnight.diagnosis import completeness
from overnight.model.selection import Coverage, Selection, Window
from overnight.queries import reader

if TYPE_CHECKING:
    from overnight.queries import case as cases

__all__ = ["read_recorded"]

SECOND = 1_000_000
HOUR = 3600 * SECOND
NIGHT_US, AFTER_US = 12 * HOUR, HOUR
MOST_NOTES = 10
EACH_SECOND = (("pressure", "some"), ("softirqs", "NET_RX"))


def read_recorded(case: cases.Case, denied: tuple[str, ...] = ()) -> completeness.Recorded:
    """What the store and the ring hold of the hot window, the baseline and the night.

    `denied` is what the recording itself could not read, where somebody knows.
    """
    stacks = _stacks(case, case.window, counted=True)
    return completeness.Recorded(
        stacks=stacks,
        baseline=_stacks(case, case.baseline, counted=True),
        night=_night(case),
        signals=_signals(case),
        cut=case.compared.cut,
        disturbed=case.compared.disturbed,
        before_s=_before(case),
        skew_us=case.event.skew_us,
        denied=denied,
        loads=case.loads(),
        compared=Window(case.baseline.begin_us, case.event.time_us),
        notes=stacks.notes[:MOST_NOTES],
    )


def _stacks(case: cases.Case, window: Window, *, counted: bool) -> Coverage:
    """What was sampled of a window; samples are counted only where losses matter."""
    hosts = (case.host,)
    nothing = Coverage(hosts, window, 0.0, 0.0, 0.0, 0, 0, 0, 0, ())
    if not case.has_profile(window):
        return nothing
    try:
        if counted:
            return case.top(window, limit=1).coverage
        found = [(one, case.profiles.meta(one)) for one in case.profiles.touched(hosts, window)]
    except errors.OvernightError as error:
        return dataclasses.replace(nothing, gaps=((window.begin_us, window.end_us, error.what),))
    told = reader.covered(hosts, window, found, Selection(), samples=0, idle=0)
    return dataclasses.replace(told, lost=0)


def _before(case: cases.Case) -> float | None:
    """The seconds in which a cause is looked for; a note at the begin of a recording is no incident."""
    if case.event.severity == "info":
        return None
    return (case.event.time_us - case.window.begin_us) / SECOND


def _night(case: cases.Case) -> Coverage | None:
    """From the first to the last segment of the twelve hours before the event and the one after.

    The flight recorder runs for weeks and profiles for a night: where no segment is, none was asked for.
    """
    if case.host not in case.profiles.catalogue.hosts():
        return None
    span = Window(case.event.time_us - NIGHT_US, case.event.time_us + AFTER_US)
    found = case.profiles.touched((case.host,), span)
    if not found:
        return None
    begin = max(min(one.begin_us for one in found), span.begin_us)
    end = min(max(one.end_us for one in found), span.end_us)
    return _stacks(case, Window(begin, max(end, begin + 1)), counted=False)


def _signals(case: cases.Case) -> float:
    """The share of the hot window, as far as it has happened, whose seconds were kept.

    Of each core; where just that signal is missing, of another one: it is not that nobody looked.
    """
    if not case.has_signals(case.window):
        return 0.0
    covered = case.cores(case.window).coverage.covered_seconds
    if not covered:
        covered = max(
            case.rates(signal, case.window, columns=(column,)).coverage.covered_seconds
            for signal, column in EACH_SECOND
        )
    extent = case.ring.extent(case.host)
    end = min(case.window.end_us, extent[1]) if extent else case.window.end_us
    # A recording that ends with the event lacks what came after, which no cause is looked for in.
    wanted = max((max(end, case.event.time_us) - case.window.begin_us) / SECOND, 1.0)
    return min(covered / wanted, 1.0)
