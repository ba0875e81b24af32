"""The event itself: the last link of every chain, with the place where it happened."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from overnight.detectors import _event_location as place
from overnight.model import times
from overnight.model.finding import Answer, Evidence, Finding, Status, Subject, finding_id
from overnight.model.selection import Window

if TYPE_CHECKING:
    from overnight.queries import case as cases

__all__ = ["DETECTORS", "EventItself"]

SECOND = 1_000_000


class EventItself:
    """Always found: there would be no case without it."""

    name = "event"
    needs = ("events", "nic-queues", "tx-timeouts")

    def look(self, case: cases.Case) -> Answer:
        """The event as a finding; the queue's core is the one known before it."""
        told = case.event
        where = place.event_place(case)
        subject = Subject(
            host=case.host,
            core=where.core,
            unit=told.unit,
            process=told.process,
            interface=where.interface,
            queue=where.queue,
            cgroup=str(told.fields.get("cgroup", "")),
        )
        end = max(told.until_us, told.time_us)
        window = Window(told.time_us, max(end, told.time_us + 1))
        when = times.format_instant(told.time_us)
        evidence = [
            Evidence(
                f"{told.text or told.kind} at {when}"
                + (f", {told.count} lines or sightings" if told.count > 1 else ""),
                f"events: {told.source or told.kind}",
                {**told.fields, "severity": told.severity},
                window,
                f"overnight events --host {shlex.quote(case.host)} --kind {told.kind}",
            )
        ]
        if where.how and told.core < 0:
            evidence.append(
                Evidence(
                    where.how,
                    "nic-queues" if where.how.startswith("nic-queues") else "events",
                    {"core": where.core, "queue": where.queue},
                )
            )
        waited = place.waited_seconds(told)
        silent = place.silent_seconds(told)
        if silent is not None:
            evidence.append(
                Evidence(
                    f"the driver says that no poll was scheduled for {times.format_duration(silent)}: it waited for"
                    " the device's interrupt, not for the core, unless that had interrupts off",
                    f"events: {told.source or told.kind}",
                    {"napi_scheduled": 0},
                )
            )
        unknown = ""
        if told.kind.startswith("net.") and where.core < 0:
            unknown = "the core that served the queue is not known: " + (
                "no queue is named, and no queue's own counter rose alone"
                if where.queue < 0
                else "nic-queues was not recorded before the event, or names no single core"
            )
        made = Finding(
            id=finding_id(self.name, told.kind, subject, told.time_us),
            detector=self.name,
            kind=told.kind,
            subject=subject,
            window=window,
            confidence=1.0,
            summary=_summary(case, where),
            evidence=tuple(evidence),
            magnitude={
                "count": float(told.count),
                "seconds": (end - told.time_us) / SECOND,
                **({} if waited is None else {"waited_seconds": waited}),
                **({} if silent is None else {"silent_seconds": silent}),
            },
        )
        return Answer(self.name, Status.FOUND, (made,), unknown)


def _summary(case: cases.Case, where: place.Place) -> str:
    told = case.event
    on = f" (core {where.core})" if where.core >= 0 else ""
    return f"{told.text or told.kind}{on}"


DETECTORS = (EventItself(),)
