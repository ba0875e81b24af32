"""`overnight diagnose`: one event, every detector, the chain that explains it best."""

from __future__ import annotations

import importlib
import pathlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from overnight import detectors, errors
from overnight.model import finding
from overnight.store.ring import reader as rings

if TYPE_CHECKING:
    from overnight.model import event
    from overnight.queries import case as cases

__all__ = ["choose_event", "discover", "look"]

SEVERITIES = {"critical": 2, "warning": 1}
EVER = 1 << 62


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


def choose_event(home: pathlib.Path, wanted: str = "last", host: str = "") -> event.Event | None:
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
    return max(serious, key=lambda one: one.time_us, default=None)


def look(
    case: cases.Case,
    asked: tuple[detectors.Detector, ...],
    on_answer: Callable[[finding.Answer], None] = lambda _: None,
) -> Iterator[finding.Answer]:
    """Every detector's answer; one that fails is an answer, too, and ends nothing."""
    for detector in asked:
        try:
            answer = detector.look(case)
        except errors.OvernightError as error:
            answer = finding.Answer(
                detector.name, finding.Status.NO_DATA, why=f"{error.what}: {error.why}"
            )
        except Exception as error:  # a bug in one must not hide the others' answers
            why = f"{type(error).__name__}: {error}"
            answer = finding.Answer(detector.name, finding.Status.FAILED, why=why)
        on_answer(answer)
        yield answer
