"""The data home is created, or refused with an error before a command changes anything."""

from __future__ import annotations

import os
import pathlib

import pytest

from overnight import errors
from overnight.app import home
from overnight.interfaces import cli

NOWHERE = "/proc/nowhere"


def test_a_relative_home_is_made_absolute(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes with another working folder, such as members of a pool, get paths below it."""
    monkeypatch.chdir(tmp_path)
    assert home.data_home(pathlib.Path("mine")) == tmp_path / "mine"
    monkeypatch.setenv("OVERNIGHT_HOME", "mine")
    assert home.data_home() == tmp_path / "mine"


def test_a_missing_home_is_created(tmp_path: pathlib.Path) -> None:
    home.need_writable(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


def test_a_home_that_is_not_writable_is_refused(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(errors.MissingPermissionError, match="is not writable"):
        home.need_writable(tmp_path / "file")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(errors.MissingPermissionError, match="is not writable"):
        home.need_writable(tmp_path)


@pytest.mark.parametrize(
    "words",
    [
        ["load", "cpu", "--for", "2s"],
        ["age", "uptime"],
        ["age", "purge", "--yes"],
        ["age", "memory-cgroups", "10"],
        ["age", "dentries", "10"],
        ["rehearse", "zombies", "--replay"],
        ["rehearse", "rt-hog", "--brief"],
    ],
    ids=" ".join,
)
def test_nothing_is_changed_without_a_writable_home(
    words: list[str],
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("OVERNIGHT_UNDO", str(tmp_path / "undo"))
    monkeypatch.setattr("overnight.app.rehearsal_host.check_needs", lambda _: None)
    assert cli.main(["--home", NOWHERE, *words]) == errors.ExitCode.CANNOT
    assert "is not writable" in capsys.readouterr().err
    assert list(tmp_path.glob("undo/*.undo")) == []


@pytest.mark.parametrize("words", [["load", "cpu", "--for", "2s"], ["rehearse", "rt-hog"]], ids=" ".join)  # fmt: skip
def test_nothing_is_changed_without_a_writable_undo_journal(
    words: list[str],
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("OVERNIGHT_UNDO", NOWHERE)
    monkeypatch.setattr("overnight.app.rehearsal_host.check_needs", lambda _: None)
    assert cli.main(["--home", str(tmp_path), *words]) == errors.ExitCode.CANNOT
    assert "OVERNIGHT_UNDO" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_home_behind_a_loop_of_links_is_an_error_and_not_a_bug(tmp_path: pathlib.Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    where = tmp_path / "loop/home"
    assert home.is_readable(where)  # as far as its mode goes
    with pytest.raises(errors.MissingPermissionError, match="is not writable"):
        home.need_writable(where)
