"""Processes killed because memory ran out: lines of the kernel log, and the kernel's own counter."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

import numpy as np

from overnight.detectors import _base, _kernel_events
from overnight.model.finding import Answer, Evidence, Need, Subject
from overnight.model.selection import Window

if TYPE_CHECKING:
    from overnight.model.event import Event
    from overnight.queries import case as cases

KIND = "memory.oom"
KILL = "memory.oom_kill"
CONFIDENCE = {KILL: 0.95, "memory.allocation_failure": 0.6}
CONFIDENCE_OF_COUNTER = 0.9


class OutOfMemory(_base.Detector):
    """One finding per kind, process and unit."""

    name = "oom"
    needs = (Need.EVENTS, Need.VMSTAT)
    clears_by = ((Need.EVENTS,),)
    max_findings = _kernel_events.MAX_FINDINGS

    def examine(self, case: cases.Case) -> Answer:
        groups: dict[tuple[str, str, str], list[Event]] = collections.defaultdict(list)
        for event in _kernel_events.read_events(case, CONFIDENCE):
            groups[event.kind, event.process, event.unit].append(event)
        counted = _count_kills(case)
        kills = float(counted.values["kills"]) if counted else 0.0
        is_named = any(process for _, process, _ in groups)
        drafts = []
        for (kind, process, unit), events in groups.items():
            if kind == KILL and is_named and not process:
                continue  # the watch on the counter reports the same kills without names
            cgroups = (str(event.fields["cgroup"]) for event in events if "cgroup" in event.fields)
            subject = Subject(host=case.host, process=process, unit=unit, cgroup=next(cgroups, ""))
            draft = _kernel_events.draft_finding(case, KIND, subject, events, CONFIDENCE[kind])
            draft.evidence += [counted] if counted else []
            draft.magnitude["kills"] = max(kills, len(events)) if kind == KILL else 0.0
            drafts.append(draft)
        # Where the event itself is the kill, the counter shows nothing else.
        if not drafts and counted and counted.window and case.event.kind not in CONFIDENCE:
            text = f"the kernel killed {kills:.0f} processes to free memory; the kernel log does not name them"
            subject = Subject(host=case.host)
            draft = _base.Draft(
                KIND, subject, counted.window, CONFIDENCE_OF_COUNTER, text, [counted]
            )
            draft.magnitude["kills"] = kills
            drafts.append(draft)
        return self.answer(
            drafts,
            clear="no process was killed to free memory around the event",
        )


def _count_kills(case: cases.Case) -> Evidence | None:
    """Read the rise of the kernel's kill counter, and the window of that rise."""
    rates = case.rates("vmstat", _kernel_events.search_window(case), columns=("oom_kill",))
    rises = rates.of_first_key("oom_kill") * rates.seconds
    rows = np.flatnonzero(rises > 0)
    if not len(rows):
        return None
    kills = float(rises.sum())
    return Evidence(
        f"the kernel's oom_kill counter rose by {kills:.0f} around the event",
        "vmstat",
        {"kills": kills},
        Window(int(rates.begin_us[rows[0]]), int(rates.end_us[rows[-1]])),
    )


DETECTORS = (OutOfMemory(),)
