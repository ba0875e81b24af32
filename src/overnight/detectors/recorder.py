"""What the recording itself cost around the event, and whether it was the cause."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from overnight.detectors import _event_location as place
from overnight.detectors import _saturation as saturation
from overnight.detectors import core_saturation
from overnight.model import times
from overnight.model.finding import Answer, Evidence, Finding, Status, Subject, finding_id
from overnight.model.selection import Selection

if TYPE_CHECKING:
    from overnight.queries import case as cases
    from overnight.queries import consumers

__all__ = ["DETECTORS", "KIND", "RecorderCost", "is_ours"]

KIND = "recorder.cost"
# Of one core in the hot stretch; 1 % is the promise for a night, which has quiet hours.
LIMIT = 0.03
# Of the saturated core: as for any other culprit.
CULPRIT_SHARE = 0.25
# Its cost is sure then; that it matters to the event is not.
NO_CULPRIT = 0.4
OURS = re.compile(r"overnight|perf")
PYTHON = re.compile(r"python[0-9.]*")
UNIT = re.compile(r"(^|[/:])overnight")


class RecorderCost:
    """Samples of overnight's processes and of perf, on all cores and on the saturated one."""

    name = "recorder"
    needs = ("profiles",)

    def look(self, case: cases.Case) -> Answer:
        """Clear when small; a finding above 3 % of a core, or where it held the saturated core."""
        if not case.has_profile(case.window):
            return Answer(
                self.name,
                Status.NO_DATA,
                why="no samples around the event: what the recorder used is not known by process",
            )
        ran, _ = case.ran((case.window,))
        tally = case.flame(case.window).coverage
        cores = tally.core_seconds / tally.recorded_seconds if tally.recorded_seconds else 0.0
        one_core = tally.capacity / cores if cores else 0.0
        mine = [one for one in ran if is_ours(one)]
        samples = sum(one.samples + one.softirq for one in mine)
        burnt = samples / one_core if one_core else 0.0
        held, core = _held(case)
        python = sum(
            one.samples for one in ran if PYTHON.fullmatch(one.process) and not is_ours(one)
        )
        doubt = (
            f"; {python} samples of Python programs are not counted: nothing says whose they are"
            if python
            else ""
        )
        if burnt <= LIMIT and held < CULPRIT_SHARE:
            return Answer(
                self.name,
                Status.CLEAR,
                why=f"overnight and perf used {burnt:.4f} cores: {samples} of {tally.samples} busy samples of the window"
                f" ({tally.lost} lost){doubt}",
            )
        subject = Subject(host=case.host, core=core if held >= CULPRIT_SHARE else -1)
        begin, end = (times.format_instant(us) for us in (case.window.begin_us, case.window.end_us))
        made = Finding(
            id=finding_id(self.name, KIND, subject, case.window.begin_us),
            detector=self.name,
            kind=KIND,
            subject=subject,
            window=case.window,
            confidence=0.9 if held >= CULPRIT_SHARE else NO_CULPRIT,
            summary=f"the recording itself used {burnt:.2f} cores around the event"
            + (f", and {100 * held:.0f} % of core {core}" if held >= CULPRIT_SHARE else ""),
            evidence=(
                Evidence(
                    f"{samples} of {tally.samples} busy samples are of {_names(mine)}; {tally.lost} samples were lost{doubt}",
                    "profiles",
                    {
                        "samples": samples,
                        "busy_samples": tally.samples,
                        "cores_burnt": round(burnt, 4),
                        "lost_samples": tally.lost,
                    },
                    case.window,
                    f"overnight top processes -b {begin} -e {end} --host {shlex.quote(case.host)}",
                ),
            ),
            magnitude={
                "cores_burnt": round(burnt, 4),
                # Of the saturated core, or of one core where none was.
                "share_of_core_samples": round(held if core >= 0 else burnt, 4),
            },
            against=() if held >= CULPRIT_SHARE else (_harmless(held, core),),
        )
        return Answer(self.name, Status.FOUND, (made,))


def is_ours(one: consumers.Ran) -> bool:
    """By name, unit, or code that only overnight has: a Python program is named after Python."""
    return bool(OURS.fullmatch(one.process) or UNIT.search(one.unit) or one.ours)


def _held(case: cases.Case) -> tuple[float, int]:
    """The recorder's share of the saturated core's samples; the core, -1 where none was saturated."""
    told, near = saturation.near_event(case)
    if told is None or not near:
        return 0.0, -1
    where = place.event_place(case)
    known, before = saturation.baseline_stretches(case)
    chosen, _ = core_saturation.select(near, where.core, known, before, case.window.seconds)
    if not chosen:
        return 0.0, -1
    stretch = chosen[0]
    ran, idle = case.ran((stretch.window,), Selection(cores=(stretch.core,)))
    total = sum(one.samples + one.softirq for one in ran) + idle
    mine = sum(one.samples for one in ran if is_ours(one))
    return (mine / total if total else 0.0), stretch.core


def _harmless(held: float, core: int) -> Evidence:
    text = (
        f"it had {100 * held:.0f} % of the samples of core {core}, the one at its limit"
        if core >= 0
        else "no core was at its limit"
    )
    return Evidence(text, "profiles", {"share_of_core_samples": round(held, 4)})


def _names(mine: list[consumers.Ran]) -> str:
    return ", ".join(sorted({one.process for one in mine})) or "nobody"


DETECTORS = (RecorderCost(),)
