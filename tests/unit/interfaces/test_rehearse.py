"""`overnight rehearse` with a fake rehearsal: list, errors and drawing."""

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
from overnight.model.truth import Truth
from overnight.model.verdict import VerdictStatus
from overnight.rehearsals import victim

REPOSITORY = pathlib.Path(__file__).parents[3]


def make_outcome(**more: object) -> scoreboard.Outcome:
    base = scoreboard.Outcome(
        scenario="rt-hog", seed=7, brief=True, run="overnight-1", correct=True, rank=1,
        event_to_verdict_s=4.0, seconds=30.0, diagnosis=None, problems=(), missed=(),
        expected=Truth(VerdictStatus.CAUSE_FOUND, (("cpu.rt_hog", {}),)), facts={},
        victim=victim.Status(completed=9, resets=1, worst_ms=5100.0), events=1, leftovers=(),
        others=(), home=pathlib.Path("/x"), report=pathlib.Path("/x/report.html"),
    )  # fmt: skip
    return dataclasses.replace(base, **more)  # type: ignore[arg-type]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Replace rehearsals by a fake whose every second verdict is wrong; return the runs."""
    runs: list[tuple[str, int]] = []

    def rehearse(chosen: object, *, seed: int, **_: object) -> scoreboard.Outcome:
        runs.append((chosen.name, seed))  # type: ignore[attr-defined]
        if len(runs) % 2:
            return make_outcome(scenario=runs[-1][0], seed=seed)
        return make_outcome(
            scenario=runs[-1][0], seed=seed, correct=False, rank=0, missed=("cpu.rt_hog",),
            problems=("status no-cause, not cause-found",),
        )  # fmt: skip

    monkeypatch.setattr(rehearsal, "rehearse", rehearse)
    monkeypatch.setattr("overnight.app.rehearsal_host.check_needs", lambda _: None)
    return runs


def test_the_list_fits_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["rehearse", "--list", "-O", "json"]) == 0
    schema = json.loads((REPOSITORY / "docs/schemas/rehearsals-1.json").read_text())
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, schema)
    recorded = {entry["name"]: entry["recorded"] for entry in document["rehearsals"]}
    assert recorded["zombies"]
    assert not recorded["quiet"]


def test_all_replays_the_shipped_recordings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        recorded_rehearsal,
        "replay",
        lambda path, _: make_outcome(replayed=True, scenario=path.stem),
    )
    assert cli.main(["rehearse", "--all", "--replay", "-O", "json"]) == 0
    outcomes = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [document["scenario"] for document in outcomes] == ["rt-hog", "softirq-storm", "zombies"]


@pytest.mark.parametrize("words", [[], ["quiet", "--all"], ["nothing"]], ids=str)
def test_one_known_rehearsal_or_all_is_required(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["rehearse", *words]) == errors.ExitCode.USAGE
    assert "--list" in capsys.readouterr().err


def test_the_exit_code_says_whether_the_verdict_is_right(
    runs: list[tuple[str, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["rehearse", "rt-hog", "--seed", "7"]) == 0
    shown = capsys.readouterr().out
    assert "right: the verdict names the true cause, 4 s after the event" in shown
    assert "/x/report.html" in shown
    assert cli.main(["rehearse", "rt-hog"]) == errors.ExitCode.FOUND
    shown = capsys.readouterr().out
    assert "wrong: the true cause is not among the candidates" in shown
    assert "not cause-found" in shown
    assert runs[0] == ("rt-hog", 7)


def test_repeats_use_the_next_seeds_and_print_a_scoreboard(
    runs: list[tuple[str, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["rehearse", "rt-hog", "--repeat", "3", "--seed", "5", "--score"]) == 1
    assert runs == [("rt-hog", 5), ("rt-hog", 6), ("rt-hog", 7)]
    shown = capsys.readouterr().out
    assert "2 of 3" in shown
    assert "cpu.rt_hog 1x" in shown


def test_json_is_one_object_per_run(
    runs: list[tuple[str, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["rehearse", "--all", "--score", "--repeat", "2", "-O", "json"]) == 1
    outcomes = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(document["scenario"], document["seed"]) for document in outcomes] == runs
    assert len(outcomes) == 2 * len(rehearsal.discover())
    for document in outcomes:
        assert {"correct", "rank", "event_to_verdict_s", "verdict"} <= document.keys()


def test_without_root_a_recorded_run_is_replayed_if_there_is_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(recorded_rehearsal, "find_recorded", lambda _: None)
    assert cli.main(["rehearse", "quiet"]) == errors.ExitCode.CANNOT
    assert "it needs root" in capsys.readouterr().err
    assert cli.main(["rehearse", "quiet", "--replay"]) == errors.ExitCode.CANNOT
    assert "no recorded run" in capsys.readouterr().err
    monkeypatch.setattr(recorded_rehearsal, "find_recorded", lambda _: tmp_path / "quiet.overnight")
    monkeypatch.setattr(recorded_rehearsal, "replay", lambda *_: make_outcome(replayed=True))
    assert cli.main(["rehearse", "quiet"]) == 0
    captured = capsys.readouterr()
    assert "replaying a recorded run instead" in " ".join(captured.err.split())
    assert "this host was not changed" in captured.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rt-hog", "--replay"], "a replay records nothing"),
        (["rt-hog", "--repeat", "2"], "each run would replace the last one"),
        (["--all"], "each run would replace the last one"),
        (["quiet"], "a bundle is made around an event"),
    ],
    ids=str,
)
def test_only_a_single_real_run_can_be_saved_as_a_bundle(
    words: list[str],
    message: str,
    runs: list[tuple[str, int]],
    capsys: pytest.CaptureFixture[str],
    tmp_path: pathlib.Path,
) -> None:
    file = str(tmp_path / "run.overnight")
    assert cli.main(["rehearse", *words, "--bundle", file]) == errors.ExitCode.USAGE
    assert message in capsys.readouterr().err
    assert runs == []


def test_an_unwritable_bundle_is_refused_before_the_run(
    runs: list[tuple[str, int]], capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    for file in (tmp_path, tmp_path / "none" / "run.overnight"):
        words = ["rehearse", "rt-hog", "--bundle", str(file)]
        assert cli.main(words) == errors.ExitCode.USAGE
        assert "cannot write" in capsys.readouterr().err
    assert runs == []


def test_with_bundle_no_recorded_run_is_replayed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    words = ["rehearse", "zombies", "--bundle", str(tmp_path / "run.overnight")]
    assert cli.main(words) == errors.ExitCode.CANNOT
    assert "it needs root" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_rehearsal_that_cannot_run_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def rehearse(chosen: object, *, seed: int, **_: object) -> scoreboard.Outcome:
        if chosen.name == "quiet":  # type: ignore[attr-defined]
            raise errors.CannotError("too busy", why="make [77] uses 95 %", todo="wait")
        return make_outcome(scenario=chosen.name, seed=seed)  # type: ignore[attr-defined]

    monkeypatch.setattr(rehearsal, "rehearse", rehearse)
    monkeypatch.setattr("overnight.app.rehearsal_host.check_needs", lambda _: None)
    assert cli.main(["rehearse", "--all", "--score"]) == 0
    shown = capsys.readouterr()
    assert "cannot" in shown.out
    assert "make [77]" in shown.err
    assert cli.main(["rehearse", "quiet", "--repeat", "2"]) == errors.ExitCode.CANNOT


def test_an_interrupt_prints_stopped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def rehearse(*_: object, **__: object) -> scoreboard.Outcome:
        raise KeyboardInterrupt

    monkeypatch.setattr(rehearsal, "rehearse", rehearse)
    monkeypatch.setattr("overnight.app.rehearsal_host.check_needs", lambda _: None)
    assert cli.main(["rehearse", "rt-hog"]) == errors.ExitCode.INTERRUPTED
    assert capsys.readouterr().err.endswith("stopped\n")


def test_clean_without_leftovers(
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
    with rehearsal_view.shown("quiet (seed 1)", console) as on_progress:
        for second in range(5):
            on_progress(rehearsal.Progress("baseline", second, 5, victim.Status()))
        on_progress(rehearsal.Progress("diagnose", note="nothing came"))
    assert out.getvalue().splitlines() == [
        "quiet (seed 1): baseline",
        "quiet (seed 1): diagnose",
        "quiet (seed 1): nothing came",
    ]
