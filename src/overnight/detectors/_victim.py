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

KIND = "app.core"


def find_cores(case: cases.Case) -> Iterator[_base.Draft]:
    """Yield a finding for each saturated core; none where the outcome names nobody who was sampled."""
    event = case.outcome
    if event is None:
        return
    fields = {"process": event.process, "unit": event.unit, **event.fields}
    named = {name: str(fields.get(name, "")) for name in ("process", "unit", "pid", "cgroup")}
    actors = _find_actors(case, named) if any(named.values()) else set()
    if not actors:
        return
    name = next(filter(None, named.values()))
    for stretch in _saturation.find_saturation(case).stretches:
        core, window = stretch.core, stretch.until(case.event).window
        (now, all_now), (before, all_before) = (
            _count_cores(case, each, actors, core) for each in (window, case.baseline)
        )
        if not all_now + all_before:
            continue
        share = max(now / (all_now or 1.0), before / (all_before or 1.0))
        # One that had to leave the core but got the same time elsewhere did not wait.
        waited = min(before - now, all_before - all_now)
        text = f"{name} did not run on core {core}, neither while that core was saturated ({window.seconds:.0f} s) nor in the baseline"
        if share:
            text = f"{name} used {now:.2f} of core {core} while that core was saturated ({window.seconds:.0f} s), and {before:.2f}"
            text += f" in the baseline ({percent(share)} of its CPU time)"
            text += ": it had to wait" if waited >= _core_shares.MIN_ADDED else ""
        subject = Subject(case.host, core, event.unit, event.process)
        numbers = {"cores": max(now, before), "own_share": share, "cores_waited": waited}
        draft = _base.Draft(KIND, subject, window, 0.9, text, magnitude=numbers)
        draft.support(text, "profiles", cores_now=now, cores_before=before)
        yield draft


def _count_cores(
    case: cases.Case, window: Window, actors: set[Actor], core: int
) -> tuple[float, float]:
    """Return how much of a core programs used in a window, and of all cores together."""
    selection = Selection(cores=(core,))
    capacity, _ = case.capacity(window, selection)
    on_core, everywhere = (
        sum(each.samples for each in case.ran((window,), chosen)[0] if each.actor in actors)
        if capacity
        else 0
        for chosen in (selection, Selection())
    )
    return on_core / (capacity or 1.0), everywhere / (capacity or 1.0)


def _find_actors(case: cases.Case, named: Mapping[str, str]) -> set[Actor]:
    """Return the sampled programs that agree with everything that the outcome names."""
    process, unit, pid, cgroup = named.values()
    actors = set()
    for window in (case.window, case.baseline):
        for consumer in case.ran((window,))[0] if case.has_profile(window) else ():
            actor, known = consumer.actor, case.processes_of(consumer.actor, window)
            is_inside = any(f"{each.cgroup}/".startswith(f"{cgroup}/") for each in known)
            if (
                (not process or process in (actor.process, *(each.comm for each in known)))
                and (not unit or actor.is_in(unit))
                and (not pid or pid in (str(each.pid) for each in known))
                and (not cgroup or is_inside or actor.is_in(cgroup))
            ):
                actors.add(actor)
    return actors
