"""The folder of journals: private, shared by all runs of a user, and gone when nothing is left to undo."""

from __future__ import annotations

import fcntl
import os
import pathlib
import tempfile
from collections.abc import Callable

import otherusers
import pytest

from overnight import errors
from overnight.undo import journal


@pytest.mark.parametrize(
    ("uid", "environment", "expected"),
    [
        (0, {}, "/var/lib/overnight/undo"),
        (0, {"XDG_STATE_HOME": "/x"}, "/var/lib/overnight/undo"),
        (7, {"HOME": "/home/ada"}, "/home/ada/.local/state/overnight/undo"),
        (7, {"HOME": "/home/ada", "XDG_STATE_HOME": "relative"}, "/home/ada/.local/state/overnight/undo"),
        (7, {"XDG_STATE_HOME": "/x"}, "/x/overnight/undo"),
        (7, {"STATE_DIRECTORY": "/var/lib/recorder:/var/lib/b"}, "/var/lib/recorder/undo"),
        (0, {"STATE_DIRECTORY": "/var/lib/recorder"}, "/var/lib/recorder/undo"),
        (0, {"STATE_DIRECTORY": "/var/lib/recorder", "OVERNIGHT_UNDO": "/u"}, "/u"),
        (0, {"OVERNIGHT_UNDO": ""}, "/var/lib/overnight/undo"),
    ],
)  # fmt: skip
def test_journals_are_in_a_state_folder_and_never_in_the_one_for_temporary_files(
    uid: int, environment: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OVERNIGHT_UNDO", "STATE_DIRECTORY", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(os, "getuid", lambda: uid)
    assert journal.journal_folder() == pathlib.Path(expected)


@pytest.fixture
def old_place(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The folder of version 0.1, with the journal of a killed run that created a file."""
    monkeypatch.delenv("OVERNIGHT_UNDO", raising=False)
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    monkeypatch.setattr(journal, "SYSTEM", tmp_path / "system")
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    place = tmp_path / f"overnight-undo-{os.getuid()}"
    run_journal = journal.Journal("killed", place)
    run_journal.write("file", tmp_path / f"{run_journal.run}-old")
    (tmp_path / f"{run_journal.run}-old").touch()
    run_journal.keep()
    return place


def test_a_journal_in_the_old_place_is_undone(
    old_place: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    with journal.Journal("new") as new:
        assert new.path.parent == tmp_path / "state/undo"
        assert new.path.parent.stat().st_mode & 0o777 == 0o700
        assert {left.what: left.state for left in journal.runs()} == {"killed": "kept", "new": "running"}  # fmt: skip
    assert journal.clean(kept=True)[1] == []
    assert [list(tmp_path.glob(name)) for name in ("*-old", "*undo*", "state/*")] == [[], [], []]


@pytest.mark.parametrize("how", ["writable", "link", "owner"])
def test_a_folder_that_another_user_placed_there_is_ignored(
    old_place: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    if how == "writable":
        old_place.chmod(0o777)
    elif how == "owner":
        uid = os.getuid() + 1
        monkeypatch.setattr(os, "getuid", lambda: uid)
        old_place.rename(tmp_path / f"overnight-undo-{uid}")
    else:
        old_place.rename(tmp_path / "aside")
        old_place.symlink_to(tmp_path / "aside")
    assert journal.runs() == ()
    assert journal.clean(kept=True) == ([], [])
    assert len(list(tmp_path.glob("*-old"))) == 1


def test_a_folder_of_another_user_is_refused(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_journal = journal.Journal("theirs", tmp_path / "undo")
    run_journal.keep()
    uid = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: uid)
    monkeypatch.setenv("OVERNIGHT_UNDO", str(tmp_path / "undo"))
    for use in (lambda: journal.Journal("ours"), journal.runs, journal.clean, enter_lock):
        with pytest.raises(errors.CannotError, match="is not private"):
            use()
    assert run_journal.path.exists()


def test_a_user_without_a_home_folder_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OVERNIGHT_UNDO", "STATE_DIRECTORY", "XDG_STATE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: otherusers.STRANGER)
    with pytest.raises(errors.CannotError) as raised:
        journal.journal_folder()
    assert "OVERNIGHT_UNDO" in raised.value.todo


def enter_lock() -> None:
    with journal.lock("x.lock"):
        pass


@pytest.fixture
def state(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The state folder of a user, which does not exist yet."""
    monkeypatch.delenv("OVERNIGHT_UNDO", raising=False)
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(journal, "SYSTEM", tmp_path / "overnight/undo")
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path / "none"))
    return tmp_path / "overnight"


def test_nothing_is_left_of_a_run_that_was_undone(state: pathlib.Path) -> None:
    with journal.lock("x.lock") as is_taken, journal.Journal("a test"):
        assert is_taken
        modes = {
            path.name.partition("-")[0]: path.stat().st_mode & 0o777 for path in state.rglob("*")
        }
    assert modes == {"undo": 0o700, "x.lock": 0o600, "overnight": 0o600}
    assert not state.exists()
    journal.Journal("kept").keep()
    enter_lock()
    assert [path.suffix for path in (state / "undo").iterdir()] == [".undo"]
    journal.clean(kept=True)
    assert not state.exists()


@pytest.mark.parametrize("who", ["systemd", "administrator", "user"])
def test_a_folder_that_somebody_else_created_stays(
    state: pathlib.Path, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    state.mkdir(mode=0o700)
    kept = state
    if who == "systemd":
        monkeypatch.setenv("STATE_DIRECTORY", str(state))
    elif who == "administrator":
        state.chmod(0o2750)
    else:
        kept = state / "mine"
        monkeypatch.setenv("OVERNIGHT_UNDO", str(kept))
    with journal.Journal("a test") as run_journal:
        assert run_journal.path.is_relative_to(kept)
    assert list(kept.iterdir()) == []


def test_a_lock_is_taken_once_and_one_of_a_killed_process_is_free(state: pathlib.Path) -> None:
    (state / "undo").mkdir(parents=True, mode=0o700)
    (state / "undo/x.lock").touch(0o644)  # of a killed process of an older version
    with journal.lock("x.lock") as first, journal.lock("x.lock") as second:
        assert (first, second) == (True, False)
        assert (state / "undo/x.lock").stat().st_mode & 0o777 == 0o600
    with journal.lock("x.lock") as again:
        assert again


@pytest.mark.parametrize("moment", ["before-check", "after-check", "before-lock"])
def test_a_run_that_ends_does_not_disturb_one_that_starts(
    state: pathlib.Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The one that ends removes its lock or the empty folder at that moment."""
    moments = [moment]
    check, lock = journal._is_private, fcntl.flock

    def end_other(now: str, remove: Callable[[], None]) -> None:
        if moments == [now]:
            moments.clear()
            remove()

    def is_private(folder: pathlib.Path) -> bool:
        end_other("before-check", folder.rmdir)
        checked = check(folder)
        end_other("after-check", folder.rmdir)
        return checked

    def flock(handle: int, operation: int) -> None:
        end_other("before-lock", (state / "undo/x.lock").unlink)
        lock(handle, operation)

    monkeypatch.setattr(journal, "_is_private", is_private)
    monkeypatch.setattr(fcntl, "flock", flock)
    with journal.lock("x.lock") as first, journal.lock("x.lock") as second:
        assert (first, second, moments) == (True, False, [])
    moments.append(moment)
    with journal.Journal("a test") as run_journal:
        assert run_journal.path.exists()
    assert not state.exists()
