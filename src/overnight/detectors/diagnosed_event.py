"""The event under diagnosis as a finding: the last step of every chain, with its location."""

from __future__ import annotations

import contextlib
import shlex
from typing import TYPE_CHECKING

from overnight.detectors import _base, _event_location, _victim
from overnight.model import times
from overnight.model.finding import Answer, Evidence, Need, Subject
from overnight.model.selection import Window
from overnight.model.times import SECOND_US

if TYPE_CHECKING:
    from overnight.model.event import Event
    from overnight.queries import case as cases


class DiagnosedEvent(_base.Detector):
    """Always found. The core of a queue is the one that served it before the event."""

    name = "event"
    needs = (Need.EVENTS, Need.NIC_QUEUES, Need.TX_TIMEOUTS)

    def examine(self, case: cases.Case) -> Answer:
        event = case.event
        location = _event_location.find_location(case)
        end = max(event.until_us, event.time_us)
        waited, silent = _event_location.read_waits(event)
        on = "" if location.core is None else f" (core {location.core})"
        draft = _base.Draft(
            event.kind,
            Subject(
                host=case.host,
                core=location.core,
                unit=event.unit,
                process=event.process,
                interface=location.interface,
                queue=location.queue,
                cgroup=str(event.fields.get("cgroup", "")),
                container=str(event.fields.get("container", "")),
            ),
            Window(event.time_us, max(end, event.time_us + 1)),
            1.0,
            f"{event.text or event.kind}{on}",
            _evidence(case, location, silent),
        )
        draft.magnitude.update(count=event.count, seconds=(end - event.time_us) / SECOND_US)
        if waited is not None:
            draft.magnitude["waited_seconds"] = waited
        if silent is not None:
            draft.magnitude["silent_seconds"] = silent
        drafts = [draft]
        with contextlib.suppress(_base.MissingError):  # without core usage, no core was saturated
            drafts += _victim.find_cores(case)
        return self.answer(drafts, clear="", remark=_why_unknown(event, location))


def _evidence(
    case: cases.Case, location: _event_location.Location, silent: float | None
) -> list[Evidence]:
    event = case.event
    source = f"events: {event.source or event.kind}"
    evidence = [
        Evidence(
            f"{event.text or event.kind} at {times.format_instant(event.time_us)}"
            + (f", {event.count} log lines or sightings" if event.count > 1 else "")
            + (f"; {event.origin}" if event.origin else ""),
            source,
            {**event.fields, "severity": event.severity},
            Window(event.time_us, max(event.until_us, event.time_us + 1)),
            f"overnight events --host {shlex.quote(case.host)} --kind {event.kind}",
        )
    ]
    if location.core is not None and event.core < 0:
        text = "the event names the core"
        if location.from_queues:
            text = (
                f"core {location.core} served {location.interface} queue {location.queue} before"
                " the event"
            )
        values = {"core": location.core}
        if location.queue is not None:
            values["queue"] = location.queue
        evidence.append(Evidence(text, location.source, values))
    if silent is not None:
        text = (
            f"the driver reports that no poll was scheduled for {times.format_duration(silent)}: the queue"
            " waited for an interrupt of the device, not for the core, unless the core had interrupts disabled"
        )
        evidence.append(Evidence(text, source, {"napi_scheduled": 0}))
    return evidence


def _why_unknown(event: Event, location: _event_location.Location) -> str:
    if not event.kind.startswith("net.") or location.core is not None:
        return ""
    if location.queue is None:
        reason = "the event names no queue, and the timeout counters do not point to one"
    else:
        reason = "nic-queues was not recorded before the event, or names no single core"
    return f"the core that served the queue is not known: {reason}"


DETECTORS = (DiagnosedEvent(),)
