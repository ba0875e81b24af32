"""Diagnose one event: run every detector, and decide which chain explains it best."""

from __future__ import annotations

import importlib
import pathlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from overnight import detectors, errors
from overnight.diagnosis import decision, knowledge, recording
from overnight.model.finding import Answer, Status
from overnight.model.severity import Severity
from overnight.model.times import SECOND_US
from overnight.queries import case as cases
from overnight.store.ring import reader as rings

if TYPE_CHECKING:
    from overnight.model.event import Event
    from overnight.model.verdict import Verdict

EVER = 1 << 62
INCIDENT_US = 30 * SECOND_US
FLEET_HOSTS = 3  # fewer are not a fleet


def discover_detectors() -> tuple[detectors.Detector, ...]:
    """Return every detector of one host: those that modules list in DETECTORS."""
    return tuple(
        detector
        for module in pkgutil.iter_modules(detectors.__path__)
        if not module.ispkg  # those of the fleet are run separately
        for detector in getattr(
            importlib.import_module(f"{detectors.__name__}.{module.name}"), "DETECTORS", ()
        )
    )


def choose_event(home: pathlib.Path, event_id: str = "last", host: str = "") -> Event | None:
    """Return the event of that id; `last`: the last that is at least a warning, or None."""
    source = rings.Reader(home)
    hosts = source.hosts()
    if not hosts:
        raise errors.CannotError(
            f"no signals are recorded under {home}",
            why="a diagnosis starts from an event, and the flight recorder records events",
            todo="overnight record --for 12h, or overnight diagnose BUNDLE",
        )
    if host and host not in hosts:
        raise errors.CannotError(
            f"no signals are recorded for host {host!r}",
            why=f"recorded hosts: {', '.join(hosts)}",
            todo="choose one of these with --host",
        )
    events = source.events(0, EVER, (host,) if host else None)
    if event_id != "last":
        for event in events:
            if event.id == event_id:
                return event
        raise errors.CannotError(
            f"no event {event_id!r} is stored",
            why="it was not recorded, or retention has deleted it",
            todo="overnight events -O json   lists the ids of stored events",
        )
    serious = [event for event in events if Severity.of(event.severity).rank > Severity.INFO.rank]
    if not serious:
        return None
    # One incident is several events: diagnose the worst of them, and the one closest to what users felt.
    last = max(event.time_us for event in serious)
    incident = [event for event in serious if last - event.time_us <= INCIDENT_US]
    known = knowledge.known()
    return max(
        incident,
        key=lambda event: (
            Severity.of(event.severity).rank,
            known.damage(event.kind),
            event.time_us,
        ),
    )


def diagnose(
    home: pathlib.Path,
    event: Event | None,
    *,
    known: knowledge.Knowledge | None = None,
    on_answer: Callable[[Answer], None] = lambda _: None,
) -> tuple[Verdict, cases.Case | None]:
    """Return the verdict on one event, and the case it was reached on."""
    if event is None:
        return decision.decide(None, ()), None
    case = cases.Case(home, event)
    answers = tuple(run_detectors(case, discover_detectors(), on_answer))
    fleet, of_fleet = _run_fleet_detectors(case, on_answer)
    verdict = decision.decide(
        event, (*answers, *of_fleet), recording.read_recording(case), known, fleet
    )
    return verdict, case


def _run_fleet_detectors(
    case: cases.Case, on_answer: Callable[[Answer], None]
) -> tuple[dict[str, object], tuple[Answer, ...]]:
    hosts = len(case.ring.hosts())
    if hosts < FLEET_HOSTS:
        return {}, ()
    from overnight.detectors import fleet

    answers = tuple(run_detectors(case, fleet.DETECTORS, on_answer))
    summaries = [finding.summary for answer in answers for finding in answer.findings]
    return {"hosts": hosts, "findings": summaries}, answers


def run_detectors(
    case: cases.Case,
    selected: tuple[detectors.Detector, ...],
    on_answer: Callable[[Answer], None] = lambda _: None,
) -> Iterator[Answer]:
    """Yield the answer of each detector; a failure is an answer, too."""
    for detector in selected:
        try:
            answer = detector.look(case)
        except errors.OvernightError as error:  # evidence that cannot be read
            why = f"{error.what}: {error.why}"
            answer = Answer(detector.name, Status.FAILED, why=why)
        except Exception as error:  # a bug in one must not hide the answers of the others
            why = f"{type(error).__name__}: {error}"
            answer = Answer(detector.name, Status.FAILED, why=why)
        on_answer(answer)
        yield answer
