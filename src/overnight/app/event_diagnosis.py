"""`overnight diagnose`: one event, every detector, the chain that explains it best."""

from __future__ import annotations

import importlib
import pathlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from overnight import detectors, errors
from overnight.diagnosis import decision as verdicts
from overnight.diagnosis import knowledge, recording
from overnight.model.finding import Answer, Status
from overnight.queries import case as cases
from overnight.store.ring import reader as rings

if TYPE_CHECKING:
    from overnight.model.event import Event
    from overnight.model.verdict import Verdict

__all__ = ["choose_event", "diagnose", "discover", "look"]

SEVERITIES = {"critical": 2, "warning": 1}
EVER = 1 << 62
INCIDENT_US = 30_000_000
DAMAGE = (
    "net.driver_reset", "net.tx_timeout", "gpu.", "memory.oom_kill", "cpu.soft_lockup",
    "cpu.hard_lockup", "rcu.", "task.", "storage.", "net.driver_starved", "net.", "cpu.",
)  # fmt: skip
FLEET_HOSTS = 3  # fewer are no fleet


def discover() -> tuple[detectors.Detector, ...]:
    """Every detector of one host: what the modules name in DETECTORS."""
    return tuple(
        make
        for module in pkgutil.iter_modules(detectors.__path__)
        if not module.ispkg  # fleets are asked in another way
        for make in getattr(
            importlib.import_module(f"{detectors.__name__}.{module.name}"), "DETECTORS", ()
        )
    )


def choose_event(home: pathlib.Path, wanted: str = "last", host: str = "") -> Event | None:
    """The event of that id, or the last that is at least a warning; None where there is none such."""
    source = rings.Reader(home)
    known = source.hosts()
    if not known:
        raise errors.CannotError(
            f"no signals are recorded under {home}",
            why="a diagnosis begins with an event, and events come from the flight recorder",
            todo="overnight record --for 12h, or overnight diagnose BUNDLE",
        )
    if host and host not in known:
        raise errors.CannotError(
            f"no signals of host {host!r} are here",
            why=f"there are {', '.join(known)}",
            todo="choose one of these with --host",
        )
    found = source.events(0, EVER, (host,) if host else None)
    if wanted != "last":
        for one in found:
            if one.id == wanted:
                return one
        raise errors.CannotError(
            f"no event {wanted!r} is kept",
            why="it was not seen, or is older than what is kept",
            todo="overnight events -O json   has the ids of those that are",
        )
    serious = [one for one in found if one.severity in SEVERITIES]
    if not serious:
        return None
    # One incident is several events; the worst of them, and the one furthest from the cause, is asked about.
    last = max(one.time_us for one in serious)
    incident = [one for one in serious if last - one.time_us <= INCIDENT_US]
    return max(incident, key=lambda one: (SEVERITIES[one.severity], _damage(one), one.time_us))


def _damage(one: Event) -> int:
    """How near to what users felt: a reset says more than the pinned core before it."""
    ranks = (n for n, beginning in enumerate(DAMAGE) if one.kind.startswith(beginning))
    return -next(ranks, len(DAMAGE))


def diagnose(
    home: pathlib.Path,
    told: Event | None,
    *,
    rules: tuple[pathlib.Path, ...] = (),
    on_answer: Callable[[Answer], None] = lambda _: None,
) -> tuple[Verdict, cases.Case | None]:
    """The verdict on one event, and the case it was reached on; without an event it says so."""
    if told is None:
        return verdicts.decide(None, ()), None
    known = knowledge.merge([knowledge.known(), *map(knowledge.read_knowledge, rules)])
    case = cases.Case(home, told)
    answers = tuple(look(case, discover(), on_answer))
    fleet, of_fleet = _fleet(case, on_answer)
    return verdicts.decide(
        told, (*answers, *of_fleet), recording.read_recorded(case), known, fleet
    ), case


def _fleet(
    case: cases.Case, on_answer: Callable[[Answer], None]
) -> tuple[dict[str, object], tuple[Answer, ...]]:
    """What many hosts say, where there are many."""
    if len(case.ring.hosts()) < FLEET_HOSTS:
        return {}, ()
    from overnight.detectors import fleet as detecting

    answers = tuple(look(case, detecting.DETECTORS, on_answer))
    said = [one.summary for answer in answers for one in answer.findings]
    return {"hosts": len(case.ring.hosts()), "findings": said}, answers


def look(
    case: cases.Case,
    asked: tuple[detectors.Detector, ...],
    on_answer: Callable[[Answer], None] = lambda _: None,
) -> Iterator[Answer]:
    """Every detector's answer; one that fails is an answer, too, and ends nothing."""
    for detector in asked:
        try:
            answer = detector.look(case)
        except errors.OvernightError as error:  # evidence that is there and cannot be read
            why = f"{error.what}: {error.why}"
            answer = Answer(detector.name, Status.FAILED, why=why)
        except Exception as error:  # a bug in one must not hide the others' answers
            why = f"{type(error).__name__}: {error}"
            answer = Answer(detector.name, Status.FAILED, why=why)
        on_answer(answer)
        yield answer
