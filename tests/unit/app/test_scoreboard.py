"""The scoreboard of outcomes, and rehearsals that were recorded elsewhere."""

from __future__ import annotations

import dataclasses
import json
import pathlib

import jsonschema
import pytest

import scenarios
from overnight import errors
from overnight.app import diagnose, recorded_rehearsal, rehearsal, scoreboard
from overnight.model.truth import Truth, forbidden
from overnight.model.verdict import VerdictStatus
from overnight.rehearsals import victim

REPOSITORY = pathlib.Path(__file__).parents[3]
TRUTH = Truth(
    VerdictStatus.CAUSE_FOUND, (("cpu.rt_hog", {"core": 1}),), frozenset({"memory.reclaim"})
)
CORRECT = scoreboard.Outcome(
    scenario="rt-hog", seed=1, brief=True, run="overnight-1", correct=True, rank=1,
    event_to_verdict_s=4.0, seconds=30.0, diagnosis=None, problems=(), missed=(), expected=TRUTH,
    facts={"core": 1}, victim=victim.Status(), events=1, leftovers=(), others=(),
    home=pathlib.Path("/x"), report=None,
)  # fmt: skip


def check_schema(outcome: scoreboard.Outcome) -> None:
    schema = json.loads((REPOSITORY / "docs/schemas/rehearsal-1.json").read_text())
    jsonschema.validate(json.loads(json.dumps(outcome.as_json())), schema)


def test_a_scoreboard_counts_by_scenario() -> None:
    wrong = dataclasses.replace(
        CORRECT, correct=False, rank=2, event_to_verdict_s=8.0, missed=("cpu.rt_hog",),
        problems=("status inconclusive, not cause-found",), leftovers=("netns x",),
    )  # fmt: skip
    calm = dataclasses.replace(CORRECT, scenario="quiet", event_to_verdict_s=None)
    hog, quiet = scoreboard.score([CORRECT, calm, wrong, wrong])
    assert (hog.scenario, hog.runs, hog.right, hog.ranks) == ("rt-hog", 3, 1, (1, 2, 2))
    assert hog.event_to_verdict_s == 8.0
    assert hog.missed == (("cpu.rt_hog", 2),)
    assert hog.wrong == ("status inconclusive, not cause-found",)
    assert hog.left == 2
    assert (quiet.runs, quiet.right, quiet.event_to_verdict_s) == (1, 1, None)


def test_an_outcome_fits_its_schema() -> None:
    check_schema(CORRECT)


def test_every_rehearsal_has_a_name_and_a_description() -> None:
    rehearsals = rehearsal.discover()
    assert {"quiet", "rt-hog"} <= {entry.name for entry in rehearsals}
    for entry in rehearsals:
        assert entry.about.endswith(".")
        assert set(entry.needs) <= {"root", "kmsg", "memory-cgroups", "netns", "nspawn", "realtime"}
    with pytest.raises(errors.UsageError, match="no rehearsal 'nothing'"):
        rehearsal.find("nothing")


def test_a_run_saved_as_a_bundle_is_diagnosed_again(tmp_path: pathlib.Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "recorded"
    folder.mkdir()
    scenario = scenarios.build("rt-hog", home, 2, minutes=16.0, cores=8)
    event = diagnose.choose_event(home)
    diagnosis = diagnose.add_material(*diagnose.diagnose_event(home, event))
    expected = Truth(scenario.status, scenario.chain, forbidden(scenario.chain))
    assert recorded_rehearsal.find_recorded("rt-hog", folder) is None
    recorded_rehearsal.save(
        dataclasses.replace(CORRECT, home=home, diagnosis=diagnosis, expected=expected),
        folder / "rt-hog.overnight",
    )
    bundle = recorded_rehearsal.find_recorded("rt-hog", folder)
    assert bundle is not None
    replayed = recorded_rehearsal.replay(bundle, tmp_path / "mine")
    assert replayed.replayed
    assert replayed.correct, replayed.problems
    assert replayed.rank == 1
    assert replayed.event_to_verdict_s is None
    assert replayed.report is not None
    assert "rt_hog" in replayed.report.read_text() or "real-time" in replayed.report.read_text()
    check_schema(replayed)


def test_a_run_without_an_event_cannot_be_saved_as_a_bundle(tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.CannotError, match="as a bundle"):
        recorded_rehearsal.save(CORRECT, tmp_path / "x.overnight")
