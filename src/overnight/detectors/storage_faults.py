"""Disks that report faults, and tasks that wait for I/O."""

from __future__ import annotations

import collections
import re
from typing import TYPE_CHECKING

import numpy as np

from overnight.detectors import _base, _kernel_events, _saturation
from overnight.model.finding import Answer, Evidence, Need, Subject
from overnight.model.selection import Window

if TYPE_CHECKING:
    from overnight.model.event import Event
    from overnight.queries import case as cases

KIND = "storage.fault"
WAITING = "io.wait"
BLOCKED = "task.blocked"  # waits for I/O or a lock: not a complaint of a disk
CONFIDENCE = {
    "storage.io_error": 0.9,
    "storage.filesystem_error": 0.9,
    "storage.readonly": 0.95,
    "storage.timeout": 0.9,
    "storage.device_lost": 0.95,
    BLOCKED: 0.5,
}
CONFIDENCE_OF_WAITING = 0.5
# Percent of the time in which some task waited for I/O, three seconds in a row, as in the watch; and
# three times the baseline, because a host that reads all night waits all night.
IO_SOME = 50.0
IO_SOME_MAX = 90.0
IO_FACTOR = 3.0
IO_SECONDS = 3
# The disk is what fails; its namespaces and partitions fail with it. A device made of several disks names none.
DISK = re.compile(r"nvme\d+|mmcblk\d+|(?:sd|vd|xvd|hd)[a-z]+")


class StorageFaults(_base.Detector):
    """The kernel's storage errors by device; waiting alone is not a fault: a full queue looks the same."""

    name = "storage"
    needs = (Need.EVENTS, Need.PRESSURE)
    clears_by = ((Need.EVENTS,),)
    max_findings = _kernel_events.MAX_FINDINGS

    def examine(self, case: cases.Case) -> Answer:
        groups: dict[str, list[Event]] = collections.defaultdict(list)
        own, other_disks = _disk_of(case.event), set()
        for event in _kernel_events.read_events(case, CONFIDENCE):
            device = str(event.fields.get("device", event.fields.get("disk", "")))
            if own and _disk_of(event) not in ("", own):
                other_disks.add(device)  # a fault of another disk explains nothing here
                continue
            groups[device or event.process].append(event)
        waiting = _find_waiting(case)
        percent = float(waiting.values["some_percent_of_time"]) if waiting else 0.0
        drafts = []
        for device, events in groups.items():
            process = next((event.process for event in events if event.process), "")
            confidence = max(CONFIDENCE[event.kind] for event in events)
            subject = Subject(host=case.host, process=process)
            kind = WAITING if all(event.kind == BLOCKED for event in events) else KIND
            draft = _kernel_events.draft_finding(case, kind, subject, events, confidence)
            del draft.evidence[_kernel_events.MAX_FINDINGS :]
            draft.summary = f"{device}: {draft.summary}" if device else draft.summary
            draft.magnitude["faults" if kind == KIND else "count"] = sum(e.count for e in events)
            drafts.append(draft)
        if not drafts and waiting is not None and waiting.window is not None:
            text = (
                f"tasks waited for I/O {percent:.0f} % of the time for"
                f" {waiting.window.seconds:.0f} s; the kernel reported no disk error"
            )
            drafts.append(
                _base.Draft(
                    WAITING, Subject(host=case.host), waiting.window, CONFIDENCE_OF_WAITING, text
                )
            )
        if not drafts:
            _base.require_imported(case, Need.PRESSURE, "I/O pressure")
            if Need.PRESSURE in case.recorded(case.whole):
                _base.require_fresh(case, Need.PRESSURE)
        for draft in drafts:
            draft.evidence += [waiting] if waiting else []
            draft.magnitude["io_wait_percent"] = percent
        clear = "the kernel reported no disk error, and no task waited long for I/O"
        if other_disks:
            clear = f"the event is about {own}; the errors are of {', '.join(sorted(other_disks))}"
        return self.answer(drafts, clear=clear)


def _disk_of(event: Event) -> str:
    """Return the disk of an event, without the partition; "" where it names none or a device made of several."""
    device = str(event.fields.get("device", event.fields.get("disk", "")))
    match = DISK.match(device or event.process.removeprefix("jbd2/"))
    return match[0] if match else ""


def _find_waiting(case: cases.Case) -> Evidence | None:
    """Find the longest run of seconds in which tasks waited for I/O."""
    now, before = (
        case.rates("pressure", window, keys=("io",), columns=("some",))
        for window in (case.window, case.baseline)
    )
    percents = now.of_first_key("some") / 1e4
    base = before.values.get("some")
    baseline = float(np.nanmean(base)) / 1e4 if base is not None and base.size else 0.0
    least = max(IO_SOME, min(IO_SOME_MAX, IO_FACTOR * baseline))
    longest = _saturation.longest_run(percents >= least)
    if len(longest) < IO_SECONDS:
        return None
    window = Window(int(now.begin_us[longest[0]]), int(now.end_us[longest[-1]]))
    percent = float(percents[longest].mean())
    return Evidence(
        f"tasks waited for I/O {percent:.0f} % of the time; {baseline:.0f} % in the baseline",
        "pressure",
        {"some_percent_of_time": round(percent, 1), "baseline_percent": round(baseline, 1)},
        window,
        _base.command("events", window, case.host, "--kind", "pressure."),
    )


DETECTORS = (StorageFaults(),)
