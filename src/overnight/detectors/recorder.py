"""The recorder's own cost around the event, and whether it was the cause."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from overnight.detectors import _base, _saturation
from overnight.model.finding import Answer, Evidence, Need, Subject
from overnight.model.selection import Selection

if TYPE_CHECKING:
    from overnight.queries import case as cases
    from overnight.queries import consumers

KIND = "recorder.cost"
# Of one core in the incident window; the promise of 1 % is for a night, which has quiet hours.
LIMIT = 0.03
# Of the saturated core: as for any other culprit.
CULPRIT_SHARE = 0.25
# Below that share the cost is sure, but not that it matters to the event.
NO_CULPRIT = 0.4
OWN_PROCESS = re.compile(r"overnight|perf")
PYTHON = re.compile(r"python[0-9.]*")
OWN_UNIT = re.compile(r"(^|[/:])overnight")


class RecorderCost(_base.BaseDetector):
    """Found above 3 % of a core, or where the recorder held the saturated core."""

    name = "recorder"
    needs = (Need.PROFILES,)

    def examine(self, case: cases.Case) -> Answer:
        if not case.has_profile(case.window):
            raise _base.MissingError(
                "there are no readable stacks around the event: the recorder's cost is not known by process"
            )
        processes, _ = case.ran((case.window,))
        coverage = case.flame(case.window).coverage
        cores = coverage.core_seconds / coverage.recorded_seconds if coverage.recorded_seconds else 0.0  # fmt: skip
        core_capacity = coverage.capacity / cores if cores else 0.0
        own = [process for process in processes if is_overnight(process)]
        samples = sum(process.samples + process.softirq for process in own)
        used = samples / core_capacity if core_capacity else 0.0
        held, core = _share_of_saturated_core(case)
        is_culprit = held >= CULPRIT_SHARE
        python = sum(
            process.samples
            for process in processes
            if PYTHON.fullmatch(process.actor.process) and not is_overnight(process)
        )
        doubt = f"; {python} samples of other Python programs are not counted" if python else ""
        counted = f"{samples} of {coverage.samples} busy samples of the incident window"
        if used <= LIMIT and not is_culprit:
            clear = (
                f"overnight and perf used {used:.4f} cores: {counted} ({coverage.lost} lost){doubt}"
            )
            return self.answer((), clear=clear)
        draft = _base.Draft(
            KIND,
            Subject(host=case.host, core=core if is_culprit else None),
            case.window,
            0.9 if is_culprit else NO_CULPRIT,
            f"the recorder used {used:.2f} cores around the event"
            + (f" and {100 * held:.0f} % of core {core}" if is_culprit else ""),
        )
        names = ", ".join(sorted({process.actor.process for process in own})) or "no process"
        draft.support(
            f"{counted} are of {names}; {coverage.lost} samples were lost{doubt}",
            "profiles",
            look=_base.command("top processes", case.window, case.host),
            samples=samples,
            busy_samples=coverage.samples,
            cores_burnt=round(used, 4),
            lost_samples=coverage.lost,
        )
        if not is_culprit:
            text = "no core was saturated"
            if core is not None:
                text = (
                    f"it had {100 * held:.0f} % of the samples of core {core}, the saturated core"
                )
            values = {"share_of_core_samples": round(held, 4)}
            draft.against.append(Evidence(text, "profiles", values))
        # Of the saturated core, or of one core where none was.
        draft.magnitude.update(
            cores_burnt=used, share_of_core_samples=used if core is None else held
        )
        return self.answer([draft], clear="")


def is_overnight(process: consumers.Consumer) -> bool:
    """Return whether a process is overnight's: by name, unit, or code that only overnight has.

    The name alone is not enough: a Python program is named after Python.
    """
    return bool(
        OWN_PROCESS.fullmatch(process.actor.process)
        or OWN_UNIT.search(process.actor.unit)
        or process.ours
    )


def _share_of_saturated_core(case: cases.Case) -> tuple[float, int | None]:
    """Return the recorder's share of the saturated core's samples, and the core; None: no core was."""
    try:
        stretches = _saturation.find_saturation(case).stretches
    except _base.MissingError:
        stretches = ()
    if not stretches:
        return 0.0, None
    stretch = stretches[0]
    processes, idle = case.ran((stretch.window,), Selection(cores=(stretch.core,)))
    total = sum(process.samples + process.softirq for process in processes) + idle
    own = sum(process.samples for process in processes if is_overnight(process))
    return (own / total if total else 0.0), stretch.core


DETECTORS = (RecorderCost(),)
