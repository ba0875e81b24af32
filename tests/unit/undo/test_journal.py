"""Everything that a run changes is undone: at its end, after a kill -9, and never more than it changed."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import threading
import time

import pytest

from overnight import errors
from overnight.undo import journal, operations


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "undo"


def is_over(pid: int) -> bool:
    """Gone, or dead and not yet fetched by its parent."""
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


def test_files_and_folders_are_removed_and_what_is_gone_is_no_fault(
    folder: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    made = tmp_path / "made"
    with journal.Journal("a test", folder) as run_journal:
        run_journal.write("folder", made)
        made.mkdir()
        (made / "inside").write_text("x")
        run_journal.write("file", tmp_path / "never")
    assert not made.exists()
    assert run_journal.problems == []


def test_its_processes_and_their_children_are_ended(folder: pathlib.Path) -> None:
    with journal.Journal("a test", folder) as run_journal:
        child = subprocess.Popen(["sh", "-c", "sleep 60 & wait"], env=run_journal.environment())
        while len(run_journal.processes()) < 2:
            time.sleep(0.01)
        there = run_journal.processes()
    child.wait(5)
    assert all(is_over(pid) for pid in there)


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
    made = tmp_path / "made"
    subprocess.run([sys.executable, "-c", KILLED, folder, made], check=False)
    (left,) = journal.leftovers(folder)
    assert left.what == "killed"
    deadline = time.monotonic() + 5
    while not journal.processes_of(left.run) and time.monotonic() < deadline:
        time.sleep(0.01)  # a process that was just made has no environment to read yet
    (sleeper,) = journal.processes_of(left.run)
    done, problems = journal.clean(folder)
    assert (problems, made.exists(), journal.leftovers(folder)) == ([], False, ())
    assert "killed" in done[0]
    assert is_over(sleeper)


def test_a_run_that_lives_is_left_alone(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with journal.Journal("alive", folder) as run_journal:
        run_journal.write("folder", tmp_path / "mine")
        (tmp_path / "mine").mkdir()
        assert journal.leftovers(folder) == ()
        assert journal.clean(folder) == ([], [])
        assert (tmp_path / "mine").exists()


def test_what_was_kept_is_undone_only_when_asked(
    folder: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    run_journal = journal.Journal("aged", folder)
    run_journal.write("file", tmp_path / "kept")
    (tmp_path / "kept").touch()
    run_journal.keep()
    assert journal.leftovers(folder) == ()
    assert [one.what for one in journal.leftovers(folder, kept=True)] == ["aged"]
    assert journal.clean(folder, kept=True)[1] == []
    assert not (tmp_path / "kept").exists()


def test_what_cannot_be_undone_stays_written_and_is_told(
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


def test_one_that_was_stopped_says_itself_what_it_could_not_undo(
    folder: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: str) -> None:
        raise OSError("busy")

    def stop() -> None:
        with journal.Journal("age folders 3", folder) as run_journal:
            run_journal.write("file", tmp_path / "stuck")
            raise KeyboardInterrupt

    monkeypatch.setitem(operations.UNDO, "file", fail)
    with pytest.raises(errors.CannotError, match=r"not everything was undone: file .*busy") as told:
        stop()
    assert "KeyboardInterrupt" in told.value.why


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        ("folder", "/"), ("folder", "/etc"), ("folder", "relative"), ("folder", "/tmp/../etc"),
        ("folder", "/sys/fs/cgroup/memory/x"), ("cgroup", "/home/x"), ("netns", "-all"),
        ("link", ""), ("netns", "a/b"), ("link", "a\nb"),
    ],
)  # fmt: skip
def test_what_no_run_would_write_is_refused_also_when_read(
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


def test_a_line_that_was_cut_off_was_never_acted_upon(folder: pathlib.Path) -> None:
    folder.mkdir(mode=0o700)
    (folder / "overnight-1.undo").write_text('{"schema": "overnight.undo/1", "what": "cut"}\n{"ki')
    assert journal.clean(folder) == (["cut (overnight-1)"], [])


def test_a_folder_that_others_can_write_to_is_refused(folder: pathlib.Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(errors.CannotError, match="is not private"):
        journal.Journal("a test", folder)


def test_nobody_knows_how_to_undo_something_new(folder: pathlib.Path) -> None:
    with (
        pytest.raises(ValueError, match="no undo operation"),
        journal.Journal("a test", folder) as run_journal,
    ):
        run_journal.write("kernel", "x")


def test_runs_are_chosen_by_what_they_are_and_told_by_state(
    folder: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    for what in ("age dentries 5", "rehearse quiet"):
        run_journal = journal.Journal(what, folder)
        run_journal.write("file", tmp_path / what)
        (tmp_path / what).touch()
        run_journal.keep()
    with journal.Journal("age now", folder):
        states = {left.what: left.state for left in journal.runs(folder)}
        assert states == {"age dentries 5": "kept", "rehearse quiet": "kept", "age now": "running"}
        assert len(journal.runs(folder, what="age ")) == 2
        done, _ = journal.clean(folder, kept=True, what="age ")
    assert [text.split(" (")[0] for text in done] == ["age dentries 5"]
    assert not (tmp_path / "age dentries 5").exists()
    assert (tmp_path / "rehearse quiet").exists()


def test_two_that_undo_at_once_undo_once(
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


def test_pages_are_not_left_to_zombies(tmp_path: pathlib.Path) -> None:
    """v1 has one file for it, v2 another, to which it is said how much."""
    (tmp_path / "memory.force_empty").write_text("")
    operations._release_pages(tmp_path)
    assert (tmp_path / "memory.force_empty").read_text() == "0"
    (tmp_path / "memory.current").write_text("4096\n")
    (tmp_path / "memory.reclaim").write_text("")
    operations._release_pages(tmp_path)
    assert (tmp_path / "memory.reclaim").read_text() == str(4096 + (1 << 20))
