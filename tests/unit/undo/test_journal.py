"""A run's changes are undone at its end or after a kill -9, and nothing else is."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

from overnight import errors
from overnight.model import process_identity
from overnight.undo import journal, operations


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "undo"


def create(kind: str, run_journal: journal.Journal, above: pathlib.Path) -> pathlib.Path:
    """Record a file or folder that is named after the run, and create it."""
    path = above / f"{run_journal.run}-{kind}"
    run_journal.write(kind, path)
    path.mkdir() if kind == "folder" else path.touch()
    return path


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
        first = create("file", run_journal, tmp_path)
        run_journal.write("file", f"{first}-second")
        assert run_journal.path.exists()
    assert order == [f"{first}-second", str(first)]
    assert run_journal.problems == []
    assert not run_journal.path.exists()


def test_files_and_folders_are_removed_and_missing_ones_are_not_an_error(
    folder: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    with journal.Journal("a test", folder) as run_journal:
        created = create("folder", run_journal, tmp_path)
        (created / "inside").write_text("x")
        run_journal.write("file", f"{created}/never")
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
        while len(pids := journal.processes_of(run_journal.run)) < 2:
            time.sleep(0.01)
    child.wait(5)
    assert all(has_ended(pid) for pid in pids)


KILLED = """
import os, pathlib, signal, subprocess, sys
from overnight.undo import journal
run_journal = journal.Journal("killed", pathlib.Path(sys.argv[1]))
folder = f"{sys.argv[2]}/{run_journal.run}"
run_journal.write("folder", folder)
os.mkdir(folder)
subprocess.Popen(["sleep", "60"], env=run_journal.environment())
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_after_kill_9_the_next_run_cleans_up(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, folder, tmp_path], check=False)
    (leftover,) = journal.runs(folder)
    created = tmp_path / leftover.run
    assert (leftover.what, leftover.state, created.exists()) == ("killed", "left", True)
    deadline = time.monotonic() + 5
    while not journal.processes_of(leftover.run) and time.monotonic() < deadline:
        time.sleep(0.01)  # a new process has no environment to read yet
    (sleeper,) = journal.processes_of(leftover.run)
    done, problems = journal.clean(folder)
    assert (problems, created.exists(), journal.runs(folder)) == ([], False, ())
    assert "killed" in done[0]
    assert has_ended(sleeper)


def test_a_running_run_is_left_alone(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with journal.Journal("alive", folder) as run_journal:
        created = create("folder", run_journal, tmp_path)
        assert journal.clean(folder, kept=True) == ([], [])
        assert created.exists()


def test_kept_changes_are_undone_only_on_request(
    folder: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    run_journal = journal.Journal("aged", folder)
    created = create("file", run_journal, tmp_path)
    run_journal.keep()
    assert journal.clean(folder) == ([], [])
    assert journal.clean(folder, kept=True) == ([f"aged ({run_journal.run})"], [])
    assert not created.exists()


def test_a_change_that_cannot_be_undone_stays_in_the_journal_and_is_reported(
    folder: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: str) -> None:
        raise OSError("busy")

    with monkeypatch.context() as changed:
        changed.setitem(operations.UNDO, "file", fail)
        with journal.Journal("a test", folder) as run_journal:
            create("file", run_journal, tmp_path)
    assert "busy" in run_journal.problems[0]
    assert run_journal.path.exists()


def test_a_stopped_run_reports_what_it_could_not_undo(
    folder: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: str) -> None:
        raise OSError("busy")

    def stop() -> None:
        with journal.Journal("age folders 3", folder) as run_journal:
            create("file", run_journal, tmp_path)
            raise KeyboardInterrupt

    monkeypatch.setitem(operations.UNDO, "file", fail)
    with pytest.raises(
        errors.CannotError, match=r"not everything was undone: file .*busy"
    ) as raised:
        stop()
    assert "KeyboardInterrupt" in raised.value.why


RUN = "overnight-0123abcd"
OWN = (
    ("folder", f"/tmp/{RUN}"), ("folder", f"/tmp/{RUN}-ray"), ("folder", f"/home/a/rehearsals/rt-hog-1-{RUN}/stage"),
    ("file", f"/tmp/.#{RUN}.lck"), ("file", f"/tmp/.#{RUN}-123.lck"), ("file", f"/dev/shm/{RUN}-89abcdef"),
    ("file", "/run/systemd/nspawn/locks/inode-26:1742"), ("netns", RUN), ("netns", f"{RUN}-0a"), ("machine", f"{RUN}-1"),
    ("cgroup", f"/sys/fs/cgroup/memory/{RUN}/z"), ("cgroup", "/sys/fs/cgroup/index-scan-0123abcd"),
)  # fmt: skip
FOREIGN = (
    ("folder", "/"), ("folder", "/etc"), ("folder", RUN), ("folder", f"/tmp/{RUN}/../../etc"),
    ("folder", "/home/overnight-backup"), ("folder", "/srv/overnight-4567cdef"), ("folder", "/srv/my-notes"),
    ("folder", f"/srv/{RUN}0"), ("folder", f"/srv/x{RUN}"), ("folder", "/srv/web-0123abcd"),
    ("folder", f"/sys/fs/cgroup/memory/{RUN}"), ("cgroup", f"/home/{RUN}"), ("cgroup", "/sys/fs/cgroup/web-0123abcde"),
    ("cgroup", "/sys/fs/cgroup/system.slice"), ("cgroup", f"/sys/fs/cgroup/{RUN}/../system.slice"),
    ("file", "/etc/passwd"), ("file", "/run/systemd/nspawn/locks/inode-26:1742/x"), ("file", "/a/run/systemd/nspawn/locks/inode-26:1"),
    ("folder", "/run/systemd/nspawn/locks/inode-26:1742"), ("machine", "/run/systemd/nspawn/locks/inode-26:1742"),
    ("netns", "-all"), ("netns", ""), ("netns", "a/b"), ("netns", "production"), ("netns", f"{RUN}\n"),
    ("machine", "web"), ("machine", "overnight-4567cdef"), ("machine", f"{RUN}-*"), ("machine", f"{RUN}-/../x"),
)  # fmt: skip


def test_only_targets_named_after_the_run_are_accepted() -> None:
    for kind, target in OWN:
        operations.check({"kind": kind, "target": target}, RUN)
    for kind, target in FOREIGN:
        with pytest.raises(ValueError, match="is not a"):
            operations.check({"kind": kind, "target": target}, RUN)
    # "-" alone would be in almost every path.
    for run in ("overnight-", "overnight-0123abc", "overnight-........", "x-0123abcd", ""):
        with pytest.raises(ValueError, match="is not the name of a run"):
            operations.check({"kind": "folder", "target": f"/tmp/{run}"}, run)


def test_dangerous_targets_are_refused_when_written_and_when_read(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    monkeypatch.setitem(operations.UNDO, "folder", called.append)
    with (
        pytest.raises(ValueError, match="is not a"),
        journal.Journal("a test", folder) as run_journal,
    ):
        run_journal.write("folder", "/etc")
    head = {"schema": journal.SCHEMA, "run": RUN, "what": "hostile", "pid": "0"}
    line = {"kind": "folder", "target": "/etc"}
    (folder / f"{RUN}.undo").write_text(f"{json.dumps(head)}\n{json.dumps(line)}\n")
    _, problems = journal.clean(folder)
    assert (len(problems), called) == (1, [])


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
    created: dict[str, pathlib.Path] = {}
    for what in ("age dentries 5", "rehearse quiet"):
        run_journal = journal.Journal(what, folder)
        created[what] = create("file", run_journal, tmp_path)
        run_journal.keep()
    with journal.Journal("age now", folder):
        states = {run.what: run.state for run in journal.runs(folder)}
        assert states == {"age dentries 5": "kept", "rehearse quiet": "kept", "age now": "running"}
        assert len(journal.runs(folder, what="age ")) == 2
        done, _ = journal.clean(folder, kept=True, what="age ")
    assert [text.split(" (")[0] for text in done] == ["age dentries 5"]
    assert not created["age dentries 5"].exists()
    assert created["rehearse quiet"].exists()


def test_two_concurrent_cleanups_undo_once(
    folder: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_journal = journal.Journal("age", folder)
    created = create("file", run_journal, tmp_path)
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
    assert undone == [str(created)]


def test_pages_of_a_cgroup_are_released(tmp_path: pathlib.Path) -> None:
    """v1 has one file for it; v2 has another, which takes the number of bytes."""
    (tmp_path / "memory.force_empty").write_text("")
    operations._release_pages(tmp_path)
    assert (tmp_path / "memory.force_empty").read_text() == "0"
    (tmp_path / "memory.current").write_text("4096\n")
    (tmp_path / "memory.reclaim").write_text("")
    operations._release_pages(tmp_path)
    assert (tmp_path / "memory.reclaim").read_text() == str(4096 + (1 << 20))


def test_a_second_signal_does_not_interrupt_the_undo(
    folder: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    received: list[int] = []
    before = {number: signal.signal(number, lambda number, _: received.append(number)) for number in numbers}  # fmt: skip
    handlers = [signal.getsignal(number) for number in numbers]
    remove = operations.UNDO["file"]

    def interrupted(target: str) -> None:
        for number in numbers:
            signal.raise_signal(number)
        remove(target)

    monkeypatch.setitem(operations.UNDO, "file", interrupted)
    try:
        with contextlib.suppress(KeyboardInterrupt), journal.Journal("stopped", folder) as stopped:
            created = [create("file", stopped, tmp_path)]
            raise KeyboardInterrupt
        killed = journal.Journal("killed", folder)
        created.append(create("file", killed, tmp_path))
        killed.keep()
        assert journal.clean(folder, kept=True)[1] == []
        restored = [signal.getsignal(number) for number in numbers]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert (received, restored) == ([], handlers)
    assert [path.exists() for path in (*created, stopped.path, killed.path)] == [False] * 4


def test_only_the_process_that_wrote_the_journal_keeps_it_from_being_undone(
    folder: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """A PID is reused: the start time or the boot differ then. A zombie may never be reaped."""
    zombie = subprocess.Popen(["true"])
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    states = {}
    for name, change in {
        "same": {},
        "reused": {"started": "1"},
        "rebooted": {"boot": "another"},
        "zombie": {"pid": str(zombie.pid), **process_identity.read_identity(zombie.pid)},
    }.items():
        run_journal = journal.Journal(name, folder)
        created = create("file", run_journal, tmp_path)
        head, *lines = run_journal.path.read_text().splitlines()
        run_journal.path.write_text("\n".join([json.dumps({**json.loads(head), **change}), *lines]))
        states[name] = (journal.runs(folder, what=name)[0].state, len(journal.clean(folder)[0]), created.exists())  # fmt: skip
    zombie.wait()
    undone = ("left", 1, False)
    expected = {
        "same": ("running", 0, True),
        "reused": undone,
        "rebooted": undone,
        "zombie": undone,
    }
    assert states == expected


def test_a_change_that_cannot_be_recorded_is_not_made_and_costs_no_other_line(
    folder: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_journal = journal.Journal("a test", folder)
    before = run_journal.path.read_bytes()
    write = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda handle, data: write(handle, data[:9]))
        with pytest.raises(OSError, match="No space left"):
            create("file", run_journal, tmp_path)
    assert run_journal.path.read_bytes() == before
    assert run_journal.targets() == list(tmp_path.glob("*-file")) == []
    run_journal.path.write_bytes(before + b'{"kind": "fi')  # cut off by a crash
    created = create("file", run_journal, tmp_path)
    assert [change["target"] for change in journal.runs(folder)[0].changes] == [str(created)]
    assert run_journal.undo() == []
