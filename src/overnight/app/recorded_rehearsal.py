"""A rehearsal that was recorded elsewhere: its bundle and its truth, diagnosed here as if it had been.

Shipped ones lie in `rehearsals/recorded`: NAME.overnight is the bundle, NAME.json the run's outcome
with what is true of it.
"""

from __future__ import annotations

import json
import pathlib
import time
from collections.abc import Sequence
from typing import Any

from overnight import errors, rehearsals
from overnight.app import bundles, event_diagnosis, report_material, scoreboard
from overnight.app import home as homes
from overnight.model.truth import Truth
from overnight.rehearsals import victim
from overnight.reports import diagnosis
from overnight.reports.diagnosis import html

__all__ = ["FOLDER", "find_recorded", "replay", "save"]

FOLDER = pathlib.Path(rehearsals.__file__).parent / "recorded"


def find_recorded(name: str, folder: pathlib.Path = FOLDER) -> pathlib.Path | None:
    """The bundle of a rehearsal, where one is shipped."""
    path = folder / f"{name}{bundles.SUFFIX}"
    return path if path.is_file() and path.with_suffix(".json").is_file() else None


# What replay does not read: where it was, and the verdict, which is reached anew.
LEFT_OUT = ("verdict", "home", "report", "problems", "leftovers", "others", "missed")


def save(outcome: scoreboard.Outcome, file: pathlib.Path, hide: Sequence[str] = ()) -> None:
    """A run as a bundle, with its outcome beside it: what `replay` takes."""
    told = outcome.verdict.event if outcome.verdict else None
    if told is None:
        raise errors.CannotError(
            "this rehearsal cannot be made a bundle",
            why="a bundle is made around an event, and there was none",
            todo="choose a rehearsal with an event, such as zombies",
        )
    bundles.create(outcome.home, told, file, hide=hide)
    kept = {name: value for name, value in outcome.as_json().items() if name not in LEFT_OUT}
    file.with_suffix(".json").write_text(json.dumps(kept, indent=2) + "\n")


def replay(bundle: pathlib.Path, home: pathlib.Path) -> scoreboard.Outcome:
    """The verdict on a recorded rehearsal, reached here and now, and compared with its truth."""
    homes.need_writable(home)
    said: dict[str, Any] = json.loads(bundle.with_suffix(".json").read_text())
    expected = Truth.from_json(said["expected"])
    began = time.monotonic()
    with bundles.opened(bundle) as made:
        assert made.home is not None
        told = event_diagnosis.choose_event(made.home, made.header.event or "last")
        found, case = event_diagnosis.diagnose(made.home, told)
        material = report_material.gather(case, found) if case is not None else diagnosis.EMPTY
    folder = home / "rehearsals" / f"{said['scenario']}-replayed"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    report = folder / "report.html"
    with report.open("wb") as file:
        html.write(found, file, material)
    problems = expected.problems(found)
    claimed = {step.kind for step in found.chain.steps} if found.chain else set()
    return scoreboard.Outcome(
        scenario=said["scenario"],
        seed=said["seed"],
        brief=said["brief"],
        run=said["run"],
        correct=not problems,
        rank=expected.rank(found),
        event_to_verdict_s=None,  # nothing happened here; `seconds` is the diagnosis alone
        seconds=round(time.monotonic() - began, 1),
        verdict=found,
        problems=tuple(problems),
        missed=tuple(kind for kind, _ in expected.chain if kind not in claimed),
        expected=expected,
        facts=said["facts"],
        victim=victim.Status(**said["victim"]),
        events=said["events"],
        leftovers=(),
        others=(),
        home=folder,
        report=report,
        replayed=True,
        material=material,
    )
