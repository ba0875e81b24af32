"""Recorded rehearsals: save a run as a bundle with its truth, and diagnose it elsewhere.

Shipped ones are in `rehearsals/recorded`: NAME.overnight is the bundle, NAME.json the run's outcome and truth.
"""

from __future__ import annotations

import json
import pathlib
import time
from collections.abc import Sequence
from typing import Any

from overnight import errors, rehearsals
from overnight.app import bundles, diagnose, scoreboard
from overnight.app import home as homes
from overnight.model import files
from overnight.model.truth import Truth
from overnight.rehearsals import victim

FOLDER = pathlib.Path(rehearsals.__file__).parent / "recorded"


def find_recorded(name: str, folder: pathlib.Path = FOLDER) -> pathlib.Path | None:
    path = folder / f"{name}{bundles.SUFFIX}"
    return path if path.is_file() and path.with_suffix(".json").is_file() else None


COPIED = ("scenario", "seed", "brief", "run", "facts", "events")
# Fields that replay does not read: where it was, and the verdict, which is reached again.
LEFT_OUT = ("verdict", "home", "report", "problems", "leftovers", "others", "missed")


def save(outcome: scoreboard.Outcome, file: pathlib.Path, hide: Sequence[str] = ()) -> None:
    """Save a run as a bundle with its outcome beside it, as `replay` reads it."""
    event = outcome.diagnosis.verdict.event if outcome.diagnosis else None
    if event is None:
        raise errors.CannotError(
            "cannot save this rehearsal as a bundle",
            why="a bundle is made around an event, and there was none",
            todo="choose a rehearsal with an event, such as zombies",
        )
    bundles.create(outcome.home, event, file, hide=hide)
    kept = {name: value for name, value in outcome.as_json().items() if name not in LEFT_OUT}
    files.write_atomically(file.with_suffix(".json"), json.dumps(kept, indent=2) + "\n", mode=0o600)


def replay(bundle: pathlib.Path, home: pathlib.Path) -> scoreboard.Outcome:
    """Diagnose a recorded rehearsal, and compare the verdict with its truth."""
    homes.need_writable(home)
    recorded: dict[str, Any] = json.loads(bundle.with_suffix(".json").read_text())
    expected = Truth.from_json(recorded["expected"])
    began = time.monotonic()
    diagnosis = diagnose.diagnose(diagnose.Request(home, bundle))
    verdict = diagnosis.verdict
    folder = home / "rehearsals" / f"{recorded['scenario']}-replayed"
    files.make_folder(folder)
    report = folder / "report.html"
    with files.replace(report) as file:
        diagnosis.write("html", file)
    problems = expected.problems(verdict)
    return scoreboard.Outcome(
        **{name: recorded[name] for name in COPIED},
        correct=not problems,
        rank=expected.rank(verdict),
        event_to_verdict_s=None,  # no event here; `seconds` is the diagnosis alone
        seconds=round(time.monotonic() - began, 1),
        diagnosis=diagnosis,
        problems=tuple(problems),
        missed=expected.missed(verdict),
        expected=expected,
        victim=victim.Status(**recorded["victim"]),
        leftovers=(),
        others=(),
        home=folder,
        report=report,
        replayed=True,
    )
