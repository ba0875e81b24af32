"""Whether the application that an outcome names ran on the saturated cores: what links the two, or shows that nothing does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from overnight.detectors import _base, _core_shares, _saturation
from overnight.model.finding import Subject
from overnight.model.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from overnight.model.actor import Actor
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
        selection = Selection(cores=(core,))
        capacity, _ = case.capacity(window, selection)
        if capacity <= 0:
            continue
        ran, _ = case.ran((window,), selection)
        now = sum(consumer.samples for consumer in ran if consumer.actor in actors) / capacity
        base = _core_shares.read_baseline(case, core)
        before = sum(base.used.get(actor, 0.0) for actor in actors) / base.capacity if base else 0.0
        text = f"{name} did not run on core {core}, neither in those {window.seconds:.0f} s nor in the baseline"
        if max(now, before):
            text = f"{name} used {now:.2f} of core {core} in those {window.seconds:.0f} s, and {before:.2f} in the baseline"
            text += ": it had to wait" if before - now >= _core_shares.MIN_ADDED else ""
        subject = Subject(case.host, core, event.unit, event.process)
        numbers = {"cores": max(now, before), "cores_before": before}
        draft = _base.Draft(KIND, subject, window, 0.9, text, magnitude=numbers)
        draft.support(text, "profiles", cores_now=now, cores_before=before)
        yield draft


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
