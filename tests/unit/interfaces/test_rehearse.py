"""`overnight rehearse` on a host where nothing is rehearsed: what it lists, refuses and draws."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import pathlib

import jsonschema
import pytest
import rich.console

from overnight import errors
from overnight.app import recorded_rehearsal, rehearsal, scoreboard
from overnight.interfaces import cli
from overnight.interfaces.cli import rehearsal_view
from overnight.model.truth import FOUND, Truth
from overnight.rehearsals import victim

REPOSITORY = pathlib.Path(__file__).parents[3]


def outcome(**more: object) -> scoreboard.Outcome:
    made = scoreboard.Outcome(
        scenario="rt-hog", seed=7, brief=True, run="overnight-1", correct=True, rank=1,
        event_to_verdict_s=4.0, seconds=30.0, verdict=None, problems=(), missed=(),
        expected=Truth(FOUND, (("cpu.rt_hog", {}),)), facts={},
        victim=victim.Status(completed=9, resets=1, worst_ms=5100.0), events=1, leftovers=(),
        others=(), home=pathlib.Path("/x"), report=pathlib.Path("/x/report.html"),
    )  # fmt: skip
    return dataclasses.replace(made, **more)  # type: ignore[arg-type]


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Nothing happens: every second run is wrong."""
    runs: list[tuple[str, int]] = []

    def rehearse(one: object, *, seed: int, **_: object) -> scoreboard.Outcome:
        runs.append((one.name, seed))  # type: ignore[attr-defined]
        if len(runs) % 2:
            return outcome(scenario=runs[-1][0], seed=seed)
        return outcome(
            scenario=runs[-1][0], seed=seed, correct=False, rank=0, missed=("cpu.rt_hog",),
            problems=("status no-cause, not cause-found",),
        )  # fmt: skip

    monkeypatch.setattr(rehearsal, "rehearse", rehearse)
    monkeypatch.setattr("overnight.app.rehearsal_host.check_needs", lambda _: None)
    return runs


def test_the_list_fits_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["rehearse", "--list", "-O", "json"]) == 0
    schema = json.loads((REPOSITORY / "docs/schemas/rehearsals-1.json").read_text())
    said = json.loads(capsys.readouterr().out)
    jsonschema.validate(said, schema)
    recorded = {one["name"]: one["recorded"] for one in said["rehearsals"]}
    assert recorded["zombies"]
    assert not recorded["quiet"]


def test_all_replays_are_those_that_are_shipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        recorded_rehearsal, "replay", lambda path, _: outcome(replayed=True, scenario=path.stem)
    )
    assert cli.main(["rehearse", "--all", "--replay", "-O", "json"]) == 0
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["scenario"] for one in said] == ["rt-hog", "softirq-storm", "zombies"]


@pytest.mark.parametrize("words", [[], ["quiet", "--all"], ["nothing"]], ids=str)
def test_it_must_be_said_what_to_rehearse(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["rehearse", *words]) == errors.ExitCode.USAGE
    assert "--list" in capsys.readouterr().err


def test_one_run_is_shown_and_its_exit_code_tells(
    played: list[tuple[str, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["rehearse", "rt-hog", "--seed", "7"]) == 0
    shown = capsys.readouterr().out
    assert "right: the verdict names the true cause, 4 s after the event" in shown
    assert "/x/report.html" in shown
    assert cli.main(["rehearse", "rt-hog"]) == errors.ExitCode.FOUND
    shown = capsys.readouterr().out
    assert "wrong: the true cause is not among the candidates" in shown
    assert "not cause-found" in shown
    assert played[0] == ("rt-hog", 7)


def test_repeats_take_the_next_seeds_and_end_with_a_scoreboard(
    played: list[tuple[str, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["rehearse", "rt-hog", "--repeat", "3", "--seed", "5", "--score"]) == 1
    assert played == [("rt-hog", 5), ("rt-hog", 6), ("rt-hog", 7)]
    shown = capsys.readouterr().out
    assert "2 of 3" in shown
    assert "cpu.rt_hog 1x" in shown


def test_json_is_one_object_a_run(
    played: list[tuple[str, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["rehearse", "--all", "--score", "--repeat", "2", "-O", "json"]) == 1
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["scenario"], one["seed"]) for one in said] == played
    assert len(said) == 2 * len(rehearsal.discover())
    for one in said:
        assert {"correct", "rank", "event_to_verdict_s", "verdict"} <= one.keys()


def test_who_is_not_root_is_told_and_sees_a_recorded_run_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(recorded_rehearsal, "find_recorded", lambda _: None)
    assert cli.main(["rehearse", "quiet"]) == errors.ExitCode.CANNOT
    assert "it needs root" in capsys.readouterr().err
    assert cli.main(["rehearse", "quiet", "--replay"]) == errors.ExitCode.CANNOT
    assert "no recorded run" in capsys.readouterr().err
    monkeypatch.setattr(recorded_rehearsal, "find_recorded", lambda _: tmp_path / "quiet.overnight")
    monkeypatch.setattr(recorded_rehearsal, "replay", lambda *_: outcome(replayed=True))
    assert cli.main(["rehearse", "quiet"]) == 0
    said = capsys.readouterr()
    assert "replaying a recorded run instead" in " ".join(said.err.split())
    assert "this host was not changed" in said.out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["rt-hog", "--replay"], "a replay records nothing"),
        (["rt-hog", "--repeat", "2"], "each run would replace the last one"),
        (["--all"], "each run would replace the last one"),
        (["quiet"], "a bundle is made around an event"),
    ],
    ids=str,
)
def test_only_one_real_run_is_kept_as_a_bundle(
    words: list[str],
    told: str,
    played: list[tuple[str, int]],
    capsys: pytest.CaptureFixture[str],
    tmp_path: pathlib.Path,
) -> None:
    file = str(tmp_path / "run.overnight")
    assert cli.main(["rehearse", *words, "--bundle", file]) == errors.ExitCode.USAGE
    assert told in capsys.readouterr().err
    assert played == []


def test_a_bundle_that_cannot_be_written_is_refused_before_anything_happens(
    played: list[tuple[str, int]], capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    for file in (tmp_path, tmp_path / "none" / "run.overnight"):
        words = ["rehearse", "rt-hog", "--bundle", str(file)]
        assert cli.main(words) == errors.ExitCode.USAGE
        assert "cannot write" in capsys.readouterr().err
    assert played == []


def test_no_recorded_run_is_shown_to_who_wants_a_bundle(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    words = ["rehearse", "zombies", "--bundle", str(tmp_path / "run.overnight")]
    assert cli.main(words) == errors.ExitCode.CANNOT
    assert "it needs root" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_one_that_cannot_be_had_does_not_end_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def rehearse(one: object, *, seed: int, **_: object) -> scoreboard.Outcome:
        if one.name == "quiet":  # type: ignore[attr-defined]
            raise errors.CannotError("too busy", why="make [77] uses 95 %", todo="wait")
        return outcome(scenario=one.name, seed=seed)  # type: ignore[attr-defined]

    monkeypatch.setattr(rehearsal, "rehearse", rehearse)
    monkeypatch.setattr("overnight.app.rehearsal_host.check_needs", lambda _: None)
    assert cli.main(["rehearse", "--all", "--score"]) == 0
    shown = capsys.readouterr()
    assert "cannot" in shown.out
    assert "make [77]" in shown.err
    assert cli.main(["rehearse", "quiet", "--repeat", "2"]) == errors.ExitCode.CANNOT


def test_who_stops_it_is_told_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def rehearse(*_: object, **__: object) -> scoreboard.Outcome:
        raise KeyboardInterrupt

    monkeypatch.setattr(rehearsal, "rehearse", rehearse)
    monkeypatch.setattr("overnight.app.rehearsal_host.check_needs", lambda _: None)
    assert cli.main(["rehearse", "rt-hog"]) == errors.ExitCode.INTERRUPTED
    assert capsys.readouterr().err.endswith("stopped\n")


def test_nothing_is_left_to_clean(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OVERNIGHT_UNDO", str(tmp_path / "undo"))
    assert cli.main(["rehearse", "--clean"]) == 0
    assert "nothing to undo" in capsys.readouterr().out


def test_the_strip_shows_phase_lateness_and_resets() -> None:
    board = rehearsal_view.Board("rt-hog (seed 7)")
    for number in range(30):
        late = victim.Status(late_ms=180.0 * number, resets=int(number > 27))
        board.take(rehearsal.Progress("strike", number / 4, 60, late))
    board.take(rehearsal.Progress("", note="a machine boots \x1b[31m"))
    console = rich.console.Console(file=io.StringIO(), width=100)
    with console.capture() as shown:
        console.print(board.draw(None, 100))
    lines = shown.get().splitlines()
    assert lines[0].startswith("rt-hog (seed 7)  strike ━")
    assert "7 of 60 s" in lines[0]
    assert "5.2 s late, reset at 5 s, 1 reset" in lines[1]
    assert "R" in lines[1]
    assert lines[2] == "· a machine boots \\x1b[31m"
    assert all(len(line) <= 100 for line in lines)


def test_without_a_terminal_each_phase_is_one_line() -> None:
    out = io.StringIO()
    console = rich.console.Console(file=out, width=80, force_terminal=False)
    with rehearsal_view.shown("quiet (seed 1)", console) as tell:
        for second in range(5):
            tell(rehearsal.Progress("baseline", second, 5, victim.Status()))
        tell(rehearsal.Progress("diagnose", note="nothing came"))
    assert out.getvalue().splitlines() == [
        "quiet (seed 1): baseline",
        "quiet (seed 1): diagnose",
        "quiet (seed 1): nothing came",
    ]
