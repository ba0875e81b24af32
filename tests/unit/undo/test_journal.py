"""A run's changes are undone at its end or after a kill -9, and nothing else is."""

from __future__ import annotations

import errno
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import pytest

from overnight import errors
from overnight.model import process_identity
from overnight.undo import journal, operations


@pytest.fixture
def tmp_path(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder named as overnight names its own: undo leaves others alone."""
    place = tmp_path / "overnight-0"
    place.mkdir()
    return place


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "undo"


def has_ended(pid: int) -> bool:
    """Return whether the process has ended; a zombie has."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return text.rpartition(")")[2].split()[0] == "Z"


def test_changes_are_undone_the_latest_first(
    folder: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    monkeypatch.setitem(operations.UNDO, "file", order.append)
    with journal.Journal("a test", folder) as run_journal:
        run_journal.write("file", tmp_path / "first")
        run_journal.write("file", tmp_path / "second")
        assert run_journal.path.exists()
    assert order == [str(tmp_path / "second"), str(tmp_path / "first")]
    assert run_journal.problems == []
    assert not run_journal.path.exists()


def test_files_and_folders_are_removed_and_missing_ones_are_not_an_error(
    folder: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    created = tmp_path / "made"
    with journal.Journal("a test", folder) as run_journal:
        run_journal.write("folder", created)
        created.mkdir()
        (created / "inside").write_text("x")
        run_journal.write("file", tmp_path / "never")
    assert not created.exists()
    assert run_journal.problems == []


def test_a_folder_that_gets_a_file_while_it_is_removed_is_removed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "state"
    target.mkdir()
    remove, late = shutil.rmtree, [1, 1]

    def race(path: str) -> None:
        if late and late.pop():
            raise OSError(errno.ENOTEMPTY, "Directory not empty", path)
        remove(path)

    monkeypatch.setattr(shutil, "rmtree", race)
    operations.UNDO["folder"](str(target))
    assert not target.exists()
    assert late == []


def test_processes_of_a_run_and_their_children_are_ended(folder: pathlib.Path) -> None:
    with journal.Journal("a test", folder) as run_journal:
        child = subprocess.Popen(["sh", "-c", "sleep 60 & wait"], env=run_journal.environment())
        while len(run_journal.processes()) < 2:
            time.sleep(0.01)
        pids = run_journal.processes()
    child.wait(5)
    assert all(has_ended(pid) for pid in pids)


KILLED = """
import os, pathlib, signal, subprocess, sys
from overnight.undo import journal
run_journal = journal.Journal("killed", pathlib.Path(sys.argv[1]))
run_journal.write("folder", sys.argv[2])
os.mkdir(sys.argv[2])
subprocess.Popen(["sleep", "60"], env=run_journal.environment())
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_after_kill_9_the_next_run_cleans_up(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    created = tmp_path / "made"
    subprocess.run([sys.executable, "-c", KILLED, folder, created], check=False)
    (leftover,) = journal.leftovers(folder)
    assert leftover.what == "killed"
    deadline = time.monotonic() + 5
    while not journal.processes_of(leftover.run) and time.monotonic() < deadline:
        time.sleep(0.01)  # a new process has no environment to read yet
    (sleeper,) = journal.processes_of(leftover.run)
    done, problems = journal.clean(folder)
    assert (problems, created.exists(), journal.leftovers(folder)) == ([], False, ())
    assert "killed" in done[0]
    assert has_ended(sleeper)


def test_a_running_run_is_left_alone(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with journal.Journal("alive", folder) as run_journal:
        run_journal.write("folder", tmp_path / "mine")
        (tmp_path / "mine").mkdir()
        assert journal.leftovers(folder) == ()
        assert journal.clean(folder) == ([], [])
        assert (tmp_path / "mine").exists()


def test_kept_changes_are_undone_only_on_request(
    folder: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    run_journal = journal.Journal("aged", folder)
    run_journal.write("file", tmp_path / "kept")
    (tmp_path / "kept").touch()
    run_journal.keep()
    assert journal.leftovers(folder) == ()
    assert [leftover.what for leftover in journal.leftovers(folder, kept=True)] == ["aged"]
    assert journal.clean(folder, kept=True)[1] == []
    assert not (tmp_path / "kept").exists()


def test_a_change_that_cannot_be_undone_stays_in_the_journal_and_is_reported(
    folder: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: str) -> None:
        raise OSError("busy")

    with monkeypatch.context() as changed:
        changed.setitem(operations.UNDO, "file", fail)
        with journal.Journal("a test", folder) as run_journal:
            run_journal.write("file", tmp_path / "stuck")
    assert "busy" in run_journal.problems[0]
    assert run_journal.path.exists()


def test_a_stopped_run_reports_what_it_could_not_undo(
    folder: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: str) -> None:
        raise OSError("busy")

    def stop() -> None:
        with journal.Journal("age folders 3", folder) as run_journal:
            run_journal.write("file", tmp_path / "stuck")
            raise KeyboardInterrupt

    monkeypatch.setitem(operations.UNDO, "file", fail)
    with pytest.raises(
        errors.CannotError, match=r"not everything was undone: file .*busy"
    ) as raised:
        stop()
    assert "KeyboardInterrupt" in raised.value.why


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        ("folder", "/"), ("folder", "/etc"), ("folder", "relative"), ("folder", "/tmp/../etc"),
        ("folder", "/sys/fs/cgroup/memory/x"), ("cgroup", "/home/x"), ("netns", "-all"),
        ("link", ""), ("netns", "a/b"), ("link", "a\nb"), ("folder", "/etc/cron.d"), ("file", "/etc/passwd"),
        ("cgroup", "/sys/fs/cgroup/system.slice"), ("mount", "/boot/efi"), ("netns", "production"),
    ],
)  # fmt: skip
def test_dangerous_targets_are_refused_when_written_and_when_read(
    folder: pathlib.Path, kind: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    monkeypatch.setitem(operations.UNDO, kind, called.append)
    with pytest.raises(ValueError, match="is no"), journal.Journal("a test", folder) as run_journal:
        run_journal.write(kind, target)
    head = {"schema": journal.SCHEMA, "run": "overnight-0", "what": "hostile", "pid": "0"}
    line = {"kind": kind, "target": target}
    (folder / "overnight-0.undo").write_text(f"{json.dumps(head)}\n{json.dumps(line)}\n")
    _, problems = journal.clean(folder)
    assert len(problems) == 1
    assert called == []


def test_a_truncated_line_is_ignored(folder: pathlib.Path) -> None:
    folder.mkdir(mode=0o700)
    (folder / "overnight-1.undo").write_text('{"schema": "overnight.undo/1", "what": "cut"}\n{"ki')
    assert journal.clean(folder) == (["cut (overnight-1)"], [])


def test_a_head_without_a_start_time_counts_as_a_killed_run(folder: pathlib.Path) -> None:
    folder.mkdir(mode=0o700)
    head = {"schema": journal.SCHEMA, "what": "cut", "pid": str(os.getpid())}
    head["boot"] = process_identity.read_boot()
    (folder / "overnight-1.undo").write_text(json.dumps(head) + "\n")
    assert [run.state for run in journal.runs(folder)] == ["left"]
    assert journal.clean(folder) == (["cut (overnight-1)"], [])


def test_a_folder_that_others_can_write_to_is_refused(folder: pathlib.Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(errors.CannotError, match="is not private"):
        journal.Journal("a test", folder)


def test_an_unknown_kind_is_refused(folder: pathlib.Path) -> None:
    with (
        pytest.raises(ValueError, match="no undo operation"),
        journal.Journal("a test", folder) as run_journal,
    ):
        run_journal.write("kernel", "x")


def test_runs_are_selected_by_name_and_listed_with_their_state(
    folder: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    for what in ("age dentries 5", "rehearse quiet"):
        run_journal = journal.Journal(what, folder)
        run_journal.write("file", tmp_path / what)
        (tmp_path / what).touch()
        run_journal.keep()
    with journal.Journal("age now", folder):
        states = {run.what: run.state for run in journal.runs(folder)}
        assert states == {"age dentries 5": "kept", "rehearse quiet": "kept", "age now": "running"}
        assert len(journal.runs(folder, what="age ")) == 2
        done, _ = journal.clean(folder, kept=True, what="age ")
    assert [text.split(" (")[0] for text in done] == ["age dentries 5"]
    assert not (tmp_path / "age dentries 5").exists()
    assert (tmp_path / "rehearse quiet").exists()


def test_two_concurrent_cleanups_undo_once(
    folder: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_journal = journal.Journal("age", folder)
    run_journal.write("file", tmp_path / "mine")
    run_journal.keep()
    undone: list[str] = []

    def slowly(target: str) -> None:
        undone.append(target)
        deadline = time.monotonic() + 0.5
        while len(undone) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)

    monkeypatch.setitem(operations.UNDO, "file", slowly)
    threads = [threading.Thread(target=journal.clean, args=(folder,), kwargs={"kept": True}) for _ in range(2)]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert undone == [str(tmp_path / "mine")]


def test_pages_of_a_cgroup_are_released(tmp_path: pathlib.Path) -> None:
    """v1 has one file for it; v2 has another, which takes the number of bytes."""
    (tmp_path / "memory.force_empty").write_text("")
    operations._release_pages(tmp_path)
    assert (tmp_path / "memory.force_empty").read_text() == "0"
    (tmp_path / "memory.current").write_text("4096\n")
    (tmp_path / "memory.reclaim").write_text("")
    operations._release_pages(tmp_path)
    assert (tmp_path / "memory.reclaim").read_text() == str(4096 + (1 << 20))


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
    """The folder of version 0.1, with the journal of a killed run that created the file `old`."""
    monkeypatch.delenv("OVERNIGHT_UNDO", raising=False)
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    monkeypatch.setattr(journal, "SYSTEM", tmp_path / "system")
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    place = tmp_path / f"overnight-undo-{os.getuid()}"
    (tmp_path / "old").touch()
    run_journal = journal.Journal("killed", place)
    run_journal.write("file", tmp_path / "old")
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
    assert not (tmp_path / "old").exists()
    assert list(old_place.iterdir()) == []


@pytest.mark.parametrize("how", ["writable", "link"])
def test_a_folder_that_another_user_placed_there_is_ignored(
    old_place: pathlib.Path, tmp_path: pathlib.Path, how: str
) -> None:
    if how == "writable":
        old_place.chmod(0o777)
    else:
        old_place.rename(tmp_path / "aside")
        old_place.symlink_to(tmp_path / "aside")
    assert journal.runs() == ()
    assert journal.clean(kept=True) == ([], [])
    assert (tmp_path / "old").exists()
