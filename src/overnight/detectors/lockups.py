"""Cores and tasks that the kernel reports as stuck: lockups, RCU stalls, workqueues, hung tasks."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

from overnight.detectors import _base, _kernel_events
from overnight.model.finding import Answer, Need, Subject

if TYPE_CHECKING:
    from overnight.model.event import Event
    from overnight.queries import case as cases

# How sure it is that a core was stuck. Hung tasks wait, often for a disk: they occupy no core.
CONFIDENCE = {
    "cpu.hard_lockup": 0.95,
    "cpu.soft_lockup": 0.95,
    "rcu.stall": 0.85,
    "workqueue.lockup": 0.85,
    "task.hung": 0.6,
}


class Lockups(_base.Detector):
    """One finding per kind, core and process."""

    name = "stalls"
    needs = (Need.EVENTS,)
    clears_by = ((Need.EVENTS,),)
    max_findings = _kernel_events.MAX_FINDINGS

    def examine(self, case: cases.Case) -> Answer:
        groups: dict[tuple[str, int | None, str], list[Event]] = collections.defaultdict(list)
        for event in _kernel_events.read_events(case, CONFIDENCE):
            groups[event.kind, event.known_core, event.process].append(event)
        drafts = []
        for (kind, core, process), events in groups.items():
            subject = Subject(host=case.host, core=core, process=process, unit=events[0].unit)
            draft = _kernel_events.draft_finding(
                case, "cpu.stall", subject, events, CONFIDENCE[kind]
            )
            draft.magnitude["stalled_seconds"] = max(map(_stalled_seconds, events))
            draft.magnitude["count"] = sum(event.count for event in events)
            drafts.append(draft)
        drafts.sort(key=lambda draft: -draft.confidence)
        return self.answer(
            drafts,
            clear="the kernel reported no lockup, stall or hung task around the event",
        )


def _stalled_seconds(event: Event) -> float:
    seconds = event.fields.get("s")
    return float(seconds) if isinstance(seconds, (int, float)) else 0.0


DETECTORS = (Lockups(),)
