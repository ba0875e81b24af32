from __future__ import annotations

import errno
import json
import os
import pathlib
import re

import captures
import pytest

from overnight import errors
from overnight.interfaces import cli
from overnight.interfaces.cli import session
from overnight.interfaces.cli.commands import doctor as doctor_command
from overnight.model.checkup import Checkup, Question, Status
from overnight.model.text import printable


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("overnight ")


def test_help_is_grouped_by_task(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert "Before the night" in shown
    assert "During the night" in shown


@pytest.mark.parametrize(
    "arguments",
    [["recrd"], ["record", "--for", "soon"], ["doctor", "-O", "xml"], ["record", "--for", "0"]],
)
def test_a_usage_error_exits_with_2_and_says_what_why_and_what_to_do(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == errors.ExitCode.USAGE
    output = capsys.readouterr().err
    assert output.startswith("error:")
    assert "why:" in output
    assert "do:" in output
    assert "Traceback" not in output


def broken(*_: object, **__: object) -> object:
    raise RuntimeError("the roof is on fire \x1b[31m")


def test_a_bug_is_reported_as_a_bug_with_its_own_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("overnight.app.doctor.examine", broken)
    assert cli.main(["doctor"]) == errors.ExitCode.BUG
    output = capsys.readouterr().err
    assert "a bug in overnight" in output
    assert "Traceback" not in output
    assert "\x1b" not in output


@pytest.mark.parametrize(
    ("number", "why"), [(errno.EROFS, "read-only"), (errno.ENOSPC, "the disk is full")]
)
def test_a_read_only_or_full_disk_is_not_a_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int, why: str
) -> None:
    def fail(*_: object, **__: object) -> object:
        raise OSError(number, os.strerror(number), "/data/spool/lock")

    monkeypatch.setattr("overnight.app.doctor.examine", fail)
    assert cli.main(["doctor"]) == errors.ExitCode.CANNOT
    output = capsys.readouterr().err
    assert "/data/spool/lock" in output
    assert why in output
    assert "bug" not in output


def test_debug_shows_the_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("overnight.app.doctor.examine", broken)
    assert cli.main(["--debug", "doctor"]) == errors.ExitCode.BUG
    assert "Traceback" in capsys.readouterr().err


def test_errors_are_json_with_output_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["record", "--for", "soon", "-O", "json"]) == errors.ExitCode.USAGE
    document = json.loads(capsys.readouterr().err)
    assert document["error"]["kind"] == "usage"
    assert document["error"]["exit_code"] == 2


def test_ctrl_c_exits_with_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr("overnight.app.doctor.examine", interrupted)
    assert cli.main(["doctor"]) == errors.ExitCode.INTERRUPTED


def test_home_comes_from_the_option_then_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setenv("OVERNIGHT_HOME", "/from/environment")
    assert str(session.Session().home) == "/from/environment"
    monkeypatch.delenv("OVERNIGHT_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert str(session.Session().home) == "/data/overnight"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert str(session.Session().home).endswith("/.local/share/overnight")


@pytest.mark.parametrize(
    "words",
    [
        ["-O", "json", "--home", "HOME", "store", "pin"],
        ["store", "--home", "HOME", "-O", "json", "pin"],
        ["--output=json", "store", "pin", "--home=HOME"],
        ["-Ojson", "--home", "HOME", "store", "pin"],
        ["store", "pin", "-O", "json", "--home", "HOME", "--debug"],
    ],
)
def test_home_and_output_work_before_and_after_the_command(
    words: list[str], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin, end = captures.NIGHT, captures.NIGHT + 9 * captures.SECOND
    samples = captures.random_samples(5, 99, begin=begin, end=end)
    captures.store(tmp_path, captures.build(samples))
    pin = ["store", "pin", "night", "-b", "0s", "-e", "+2s"]
    assert cli.main(["--home", str(tmp_path), *pin]) == 0
    capsys.readouterr()
    assert cli.main([word.replace("HOME", str(tmp_path)) for word in words]) == 0
    assert json.loads(capsys.readouterr().out)["pins"][0]["id"] == "night"


def test_words_after_two_dashes_are_arguments() -> None:
    words = ["-O", "json", "rules", "test", "--", "--home"]
    assert cli._arrange(words) == ("rules", ["rules", "test", "-O", "json", "--", "--home"])


@pytest.mark.parametrize(
    "words", [["--server", "U", "CMD", "x"], ["CMD", "x", "--server", "U"], ["CMD", "--server", "U", "x"]]
)  # fmt: skip
def test_the_server_works_before_and_after_the_command(words: list[str]) -> None:
    for name, arranged in (("events", ["--server", "U", "events", "x"]), ("agent", ["agent", "x", "--server", "U"])):  # fmt: skip
        given = [name if word == "CMD" else word for word in words]
        assert cli._arrange(given) == (name, arranged)


@pytest.mark.parametrize("words", [["events", "--home"], ["events", "--server"], ["-O"]])
def test_a_missing_value_is_named(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == errors.ExitCode.USAGE
    assert f"{words[-1]!r} requires an argument" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["\x1b[31mred", "a\rb", "\x07", "\u202egpj.exe"])
def test_hostile_names_do_not_reach_the_terminal(name: str) -> None:
    assert printable(name).isprintable()


def test_every_status_has_a_mark() -> None:
    assert set(doctor_command.MARKS) == set(Status)


def test_doctor_shows_what_recording_does_without_as_optional(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kubernetes = Question("kubernetes", "Kubernetes", "reserves nodes", optional=True)
    log = Question("kmsg", "Kernel log", "has events")
    checks = (kubernetes.missing("no credentials", "export"), log.missing("closed", "sudo"))
    checkup = Checkup("db-7", {"Signals": checks}, profiles=True, signals=True)
    monkeypatch.setattr("overnight.app.doctor.examine", lambda _: checkup)
    assert cli.main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["check", "status", "found"]
    assert "optional" in next(line for line in lines if "Kubernetes" in line)
    assert "missing" in next(line for line in lines if "Kernel log" in line)
    assert [check["optional"] for check in checkup.as_json()["checks"]] == [True, False]


def test_one_of_a_thing_is_singular(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "one.collapsed"
    log.write_text("bash;main;read 1\n")
    home = ["--home", str(tmp_path)]
    for words in (["import", str(log)], ["store", "check"], ["top"], ["rules", "test", "a line"]):
        assert cli.main([*words, *home]) == 0
        shown = capsys.readouterr().out
        assert re.search(r"\b1 [a-z]+", shown), shown
        assert not re.search(r"\b1 [a-z]+s\b", shown), shown


@pytest.mark.parametrize("words", ["events", "pool list", "store check", "record --for 1s"])
def test_a_file_as_data_home_is_not_a_question_of_permission(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    file = tmp_path / "a b.overnight"
    file.touch()
    assert cli.main(["--home", str(file), *words.split()]) == 2
    error = capsys.readouterr().err
    assert f"error: {file} is not a folder" in error
    assert (
        f"do:    if it is a bundle: `overnight diagnose '{file}'`, or `overnight bundle open '{file}'`"
        in error
    )
