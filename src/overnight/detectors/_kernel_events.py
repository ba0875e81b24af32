"""Kernel events around the diagnosed one, which does not explain itself, and how they become evidence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from overnight.detectors import _base
from overnight.model.finding import Evidence, Need, Subject
from overnight.model.selection import Window
from overnight.model.times import SECOND_US

if TYPE_CHECKING:
    from overnight.model.event import Event
    from overnight.queries import case as cases

# The kernel reports late: a soft lockup after 20 s, a hung task or a silent disk after minutes.
EARLIER_US = 180 * SECOND_US
LATE_FACTOR = 0.7
MAX_FINDINGS = 8


def search_window(case: cases.Case) -> Window:
    """Return the incident window with the three minutes before it."""
    return Window(case.window.begin_us - EARLIER_US, case.window.end_us)


def read_events(case: cases.Case, kinds: Iterable[str]) -> list[Event]:
    """Read events around the diagnosed one; without a recorder, no event does not mean no fault."""
    _base.require_imported(case, Need.EVENTS, "the kernel log at the event")
    if case.imported is None and not case.recorded(case.window):
        raise _base.MissingError("the flight recorder did not run around the event", Need.EVENTS)
    return [
        event for event in case.events(search_window(case), *kinds) if event.id != case.event.id
    ]


def draft_finding(
    case: cases.Case, kind: str, subject: Subject, events: list[Event], confidence: float
) -> _base.Draft:
    """Draft a finding; where all came after the diagnosed event, they are unlikely its cause."""
    begin = min(event.time_us for event in events)
    window = Window(begin, max(max(event.until_us, event.time_us) for event in events) + 1)
    factor = 1.0 if begin <= case.event.time_us else LATE_FACTOR
    evidence = [event_evidence(event) for event in events]
    return _base.Draft(kind, subject, window, confidence * factor, events[0].text, evidence)


def event_evidence(event: Event) -> Evidence:
    return Evidence(
        "; ".join(filter(None, (event.text or event.kind, event.origin))),
        f"event {event.id}",
        {**event.fields, "lines_or_sightings": event.count},
        Window(event.time_us, max(event.until_us, event.time_us) + 1),
        f"overnight events {event.id}",
    )
