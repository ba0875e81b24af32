"""Whether the application that an outcome names ran on the saturated cores: what links the two, or shows that nothing does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from overnight.detectors import _base, _core_shares, _saturation
from overnight.model.finding import Subject
from overnight.model.selection import Selection
from overnight.model.text import percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from overnight.model.actor import Actor
    from overnight.model.selection import Window
    from overnight.queries import case as cases
    from overnight.queries import processes

KIND = "app.core"


def find_cores(case: cases.Case) -> Iterator[_base.Draft]:
    """Yield a finding for each saturated core; none where the outcome names nobody who was sampled."""
    event = case.outcome
    if event is None:
        return
    fields = {"process": event.process, "unit": event.unit, **event.fields}
    named = {name: str(fields.get(name, "")) for name in ("process", "unit", "pid", "cgroup")}
    if not (name := next(filter(None, named.values()), "")):
        return
    for stretch in _saturation.find_saturation(case).stretches:
        core, window = stretch.core, stretch.until(case.event).window
        now, all_now = _count_cores(case, window, named, core)
        before, all_before = _count_cores(case, case.baseline, named, core)
        if not all_now + all_before:
            continue
        share = max(now / (all_now or 1.0), before / (all_before or 1.0))
        # One that had to leave the core but got the same time elsewhere did not wait.
        waited = min(before - now, all_before - all_now)
        waited = waited if waited >= _core_shares.MIN_ADDED else 0.0
        during = f"while that core was saturated ({window.seconds:.0f} s)"
        text = f"{name} did not run on core {core}, neither {during} nor in the baseline"
        if share:
            text = (
                f"{name} used {now:.2f} of core {core} {during}, and {before:.2f} in the baseline"
            )
            text += f" ({percent(share)} of its CPU time)" + ": it had to wait" * bool(waited)
        subject = Subject(case.host, core, event.unit, event.process)
        numbers = {"cores": max(now, before), "own_share": share, "cores_waited": waited}
        draft = _base.Draft(KIND, subject, window, 0.9, text, magnitude=numbers)
        draft.support(text, "profiles", cores_now=now, cores_before=before)
        yield draft


def _count_cores(
    case: cases.Case, window: Window, named: Mapping[str, str], core: int
) -> tuple[float, float]:
    """Return how much of a core the named processes used in a window, and of all cores together."""
    selection = Selection(cores=(core,))
    capacity, _ = case.capacity(window, selection)
    if not capacity:
        return 0.0, 0.0
    on_core, everywhere = (
        sum(
            each.samples
            for actor, ran in case.actors(window, chosen).items()
            for each in ran
            if _is_named(actor, each, **named)
        )
        for chosen in (selection, Selection())
    )
    return on_core / capacity, everywhere / capacity


def _is_named(
    actor: Actor, ran: processes.Process, process: str, unit: str, pid: str, cgroup: str
) -> bool:
    """Return whether a process agrees with everything that the outcome names."""
    is_inside = f"{ran.cgroup}/".startswith(f"{cgroup}/") or actor.is_in(cgroup)
    return (
        process in ("", actor.process, ran.comm)
        and (not unit or actor.is_in(unit))
        and pid in ("", str(ran.pid))
        and (not cgroup or is_inside)
    )
