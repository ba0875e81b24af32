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
from overnight.model.truth import FOUND, Truth, forbidden
from overnight.rehearsals import victim

REPOSITORY = pathlib.Path(__file__).parents[3]
TRUE = Truth(FOUND, (("cpu.rt_hog", {"core": 1}),), frozenset({"memory.reclaim"}))
ONE = scoreboard.Outcome(
    scenario="rt-hog", seed=1, brief=True, run="overnight-1", correct=True, rank=1,
    event_to_verdict_s=4.0, seconds=30.0, verdict=None, problems=(), missed=(), expected=TRUE,
    facts={"core": 1}, victim=victim.Status(), events=1, leftovers=(), others=(),
    home=pathlib.Path("/x"), report=None,
)  # fmt: skip


def fits(outcome: scoreboard.Outcome) -> None:
    schema = json.loads((REPOSITORY / "docs/schemas/rehearsal-1.json").read_text())
    jsonschema.validate(json.loads(json.dumps(outcome.as_json())), schema)


def test_a_scoreboard_counts_by_scenario() -> None:
    wrong = dataclasses.replace(
        ONE, correct=False, rank=2, event_to_verdict_s=8.0, missed=("cpu.rt_hog",),
        problems=("status inconclusive, not cause-found",), leftovers=("netns x",),
    )  # fmt: skip
    calm = dataclasses.replace(ONE, scenario="quiet", event_to_verdict_s=None)
    hog, quiet = scoreboard.score([ONE, calm, wrong, wrong])
    assert (hog.scenario, hog.runs, hog.right, hog.ranks) == ("rt-hog", 3, 1, (1, 2, 2))
    assert hog.event_to_verdict_s == 8.0
    assert hog.missed == (("cpu.rt_hog", 2),)
    assert hog.wrong == ("status inconclusive, not cause-found",)
    assert hog.left == 2
    assert (quiet.runs, quiet.right, quiet.event_to_verdict_s) == (1, 1, None)


def test_an_outcome_fits_its_schema() -> None:
    fits(ONE)


def test_every_rehearsal_has_a_name_and_says_what_it_does() -> None:
    known = rehearsal.discover()
    assert {"quiet", "rt-hog"} <= {one.name for one in known}
    for one in known:
        assert one.about.endswith(".")
        assert set(one.needs) <= {"root", "kmsg", "memory-cgroups", "netns", "nspawn", "realtime"}
    with pytest.raises(errors.UsageError, match="no rehearsal 'nothing'"):
        rehearsal.find("nothing")


def test_a_run_that_was_kept_as_a_bundle_is_diagnosed_again(tmp_path: pathlib.Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "recorded"
    folder.mkdir()
    made = scenarios.build("rt-hog", home, 2, minutes=16.0, cores=8)
    told = diagnose.choose_event(home)
    said, _ = diagnose.diagnose_event(home, told)
    expected = Truth(made.status, made.chain, forbidden(made.chain))
    assert recorded_rehearsal.find_recorded("rt-hog", folder) is None
    recorded_rehearsal.save(
        dataclasses.replace(ONE, home=home, verdict=said, expected=expected),
        folder / "rt-hog.overnight",
    )
    bundle = recorded_rehearsal.find_recorded("rt-hog", folder)
    assert bundle is not None
    again = recorded_rehearsal.replay(bundle, tmp_path / "mine")
    assert again.replayed
    assert again.correct, again.problems
    assert again.rank == 1
    assert again.event_to_verdict_s is None
    assert again.report is not None
    assert "rt_hog" in again.report.read_text() or "real-time" in again.report.read_text()
    fits(again)


def test_a_run_without_an_event_cannot_be_a_bundle(tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.CannotError, match="as a bundle"):
        recorded_rehearsal.save(ONE, tmp_path / "x.overnight")
