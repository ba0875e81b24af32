"""Kernel events around the diagnosed one, and how they become evidence.

The diagnosed event is left out: it does not explain itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from overnight.detectors import _base
from overnight.model.finding import Evidence, Need
from overnight.model.selection import Window
from overnight.model.times import SECOND_US

if TYPE_CHECKING:
    from overnight.model.event import Event
    from overnight.queries import case as cases

__all__ = ["MAX_FINDINGS", "event_evidence", "lateness_factor", "read_events", "require_signals", "search_window", "span"]  # fmt: skip

# The kernel reports late: a soft lockup after 20 s, a hung task or a silent disk after minutes.
EARLIER_US = 180 * SECOND_US
LATE_FACTOR = 0.7
MAX_FINDINGS = 8


def search_window(case: cases.Case) -> Window:
    """Return the incident window with the three minutes before it."""
    return Window(case.window.begin_us - EARLIER_US, case.window.end_us)


def read_events(case: cases.Case, kinds: Iterable[str]) -> list[Event]:
    """Read events of these kinds around the diagnosed one, which is left out."""
    return [
        event for event in case.events(search_window(case), *kinds) if event.id != case.event.id
    ]


def require_signals(case: cases.Case) -> None:
    """Raise MissingError unless the recorder ran: without it, no event does not mean no fault."""
    if not case.has_signals(case.window):
        raise _base.MissingError("the flight recorder did not run around the event", Need.EVENTS)


def event_evidence(event: Event) -> Evidence:
    """Turn an event into evidence that names the command to show it."""
    return Evidence(
        event.text or event.kind,
        f"event {event.id}",
        {**dict(event.fields), "lines_or_sightings": event.count},
        span([event]),
        f"overnight events {event.id}",
    )


def span(events: list[Event]) -> Window:
    """Return the window from the first to the end of the last."""
    begin = min(event.time_us for event in events)
    return Window(begin, max(max(event.until_us, event.time_us) for event in events) + 1)


def lateness_factor(case: cases.Case, events: list[Event]) -> float:
    """Return less than 1 where all came after the diagnosed event: then they are unlikely its cause."""
    first = min(event.time_us for event in events)
    return 1.0 if first <= case.event.time_us else LATE_FACTOR
