"""`overnight age` on the command line: options, confirmation and output."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable

import jsonschema
import pytest

from overnight.app import age
from overnight.interfaces import cli
from overnight.load import host_state as load

SCHEMA = json.loads((pathlib.Path(__file__).parents[3] / "docs/schemas/age-1.json").read_text())


@pytest.fixture
def run(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OVERNIGHT_UNDO", str(tmp_path / "undo"))
    return lambda *words: cli.main(["--home", str(tmp_path / "home"), "age", *words])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "no state was given"),
        (("--undo", "--list"), "are mutually exclusive"),
        (("dentries", "5", "--undo"), "are mutually exclusive"),
        (("dentries",), "no number of dentries"),
        (("nothing",), "there is no state 'nothing'"),
        (("uptime", "5"), "does not take a number"),
        (("--undo", "--limit", "5MB"), "does not take --limit"),
        (("dentries", "5", "--under", "/a"), "does not take --under"),
        (("nothing", "5"), "there is no state 'nothing'"),
        (("purge",), "refusing to purge"),
        (("uptime", "--arm", "warm"), "warm"),
    ],
)
def test_invalid_options_are_explained(run, words, message, capsys, monkeypatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    assert run(*words) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("words", [("--list",), ("--undo",), ("uptime", "--arm", "cold", "--note", "x")], ids=" ".join)  # fmt: skip
def test_json_output_fits_its_schema(run, words, capsys) -> None:
    assert run(*words, "-O", "json") == 0
    jsonschema.validate(json.loads(capsys.readouterr().out), SCHEMA)
    assert run(*words) == 0
    assert capsys.readouterr().out


def test_the_available_states_are_listed(run, capsys) -> None:
    assert run("--list") == 0
    shown = capsys.readouterr().out
    assert "no aged state" in shown
    for name in age.kinds():
        assert f"{name}: " in shown


def test_dentries_are_created_listed_and_undone(run, tmp_path, capsys) -> None:
    """In a real folder, with the kernel's count, which other processes change meanwhile."""
    words = ("dentries", "2000", "--positive", "--folder", str(tmp_path))
    assert run(*words, "-O", "json") in (0, 1)
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, SCHEMA)
    assert (document["made"], document["arm"]) == (2000, "hot")
    assert len(list(pathlib.Path(document["where"]).iterdir())) == 2000
    assert run("--list") == 0
    assert f"age dentries 2000 ({document['run']}): present" in capsys.readouterr().out
    assert run("--undo") == 0
    assert f"undone: age dentries 2000 ({document['run']})" in capsys.readouterr().out
    assert not pathlib.Path(document["where"]).exists()


@pytest.mark.parametrize(("grown", "code"), [(100, 0), (10, 1)])
def test_a_count_that_is_too_low_exits_with_1(
    run, monkeypatch, capsys, grown: int, code: int
) -> None:
    def fake(request: age.Request, on_progress: Callable[[int, str], None]) -> age.Report:
        assert (request.state, dict(request.options)) == (
            "memory-cgroups",
            {"under": "/a", "limit": "32MB"},
        )
        on_progress(50, "14 kB each")
        aged = load.Aged(100, "/a/[red]\x1b", 14_800, "dying", ("limited",))
        return age.Report(request.state, request.arm, {"dying": 5}, {"dying": 5 + grown}, request.count, aged, "r", 1.25)  # fmt: skip

    monkeypatch.setattr(age, "put_on_host", fake)
    assert run("memory-cgroups", "100", "--under", "/a", "--limit", "32MB", "--arm", "hot") == code
    shown = capsys.readouterr().out
    assert "created 100 of 100 memory-cgroups in 1.2 s, about 14.8 kB each" in shown
    assert f"{5 + grown}  dying  (before: 5)" in shown
    assert "\x1b" not in shown
    assert ("does not count" in shown) is bool(code)


def test_problems_of_undo_are_shown_and_exit_with_1(run, monkeypatch, capsys) -> None:
    report = age.Report("undo", None, {}, {}, problems=("cgroup /x: busy",))
    monkeypatch.setattr(age, "undo", lambda *_, **__: report)
    assert run("--undo") == 1
    assert "not undone: cgroup /x: busy" in capsys.readouterr().out


def test_a_confirmed_purge(run, monkeypatch, capsys) -> None:
    report = age.Report("purge", "purged", {"dying": 9}, {"dying": 0})
    monkeypatch.setattr(age, "purge", lambda *_, **__: report)
    assert run("purge", "--yes") == 0
    assert "arm: purged" in capsys.readouterr().out


def test_a_dry_run_creates_and_notes_nothing(run, tmp_path, capsys) -> None:
    folder = tmp_path / "dentries"
    folder.mkdir()
    words = ("dentries", "2000", "--positive", "--folder", str(folder), "--dry-run")
    assert run(*words, "-O", "json") == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, SCHEMA)
    assert (document["dry_run"], document["asked"], document["made"]) == (True, 2000, 0)
    assert run(*words) == 0
    shown = capsys.readouterr().out
    assert "would create 2,000 dentries" in shown
    assert "nothing was changed" in shown
    assert [*folder.iterdir(), *tmp_path.glob("home*"), *tmp_path.glob("undo/*")] == []


def test_a_dry_run_of_an_undo_keeps_everything(run, tmp_path, capsys) -> None:
    assert run("dentries", "50", "--positive", "--folder", str(tmp_path), "-O", "json") in (0, 1)
    where = pathlib.Path(json.loads(capsys.readouterr().out)["where"])
    for words in (("--undo",), ("purge",)):
        assert run(*words, "--dry-run") == 0
        assert "would undo: age dentries 50 (" in capsys.readouterr().out
    assert len(list(where.iterdir())) == 50
    assert run("--undo") == 0
    assert run("--undo", "--dry-run") == 0
    assert "nothing to undo" in capsys.readouterr().out


def test_a_dry_run_refuses_what_would_be_refused(run, capsys) -> None:
    assert run("dentries", str(10**12), "--dry-run") == 3
    assert "of memory" in capsys.readouterr().err
    assert run("uptime", "--dry-run") == 2
    assert "does not take --dry-run" in capsys.readouterr().err
