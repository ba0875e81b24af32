from __future__ import annotations

import json
import pathlib

from overnight.agent.uplink import tasks
from overnight.model import uplink

TASK = {"id": "7", "kind": "upload-window", "arguments": {"event": "e-1"}, "expires_us": 1000}


def write_state(folder: pathlib.Path, **state: object) -> None:
    (folder / "7" / "state.json").write_text(json.dumps(state))


def changed(own: tasks.Tasks, *, holds: bool = False) -> list[tuple[str, tasks.Document]]:
    return list(own.changed(lambda _: holds))


def test_a_task_is_stored_once_and_reported_at_each_change(tmp_path: pathlib.Path) -> None:
    own = tasks.Tasks(tmp_path)
    own.accept(TASK)
    own.accept({**TASK, "arguments": {}})
    assert json.loads((tmp_path / "7" / "task.json").read_text()) == TASK
    assert changed(own) == []
    write_state(tmp_path, state="running", detail="", progress=0.0, pid=4)
    ((name, report),) = changed(own)
    assert uplink.TaskReport.from_json(report).state == "running"
    assert "pid" not in report
    own.note_reported(name, report)
    assert changed(own) == changed(tasks.Tasks(tmp_path)) == []
    write_state(tmp_path, state="done", detail="", progress=1.0, result={"path": "x"})
    assert changed(own)[0][1]["result"] == {"path": "x"}


def test_a_window_is_done_when_the_server_has_it(tmp_path: pathlib.Path) -> None:
    own = tasks.Tasks(tmp_path)
    own.accept(TASK)
    write_state(tmp_path, state="done", detail="", progress=1.0, result={"sha256": "ab"})
    ((_, waiting),) = changed(own, holds=True)
    assert (waiting["state"], waiting["detail"]) == ("running", "uploading")
    assert waiting["progress"] < 1
    assert changed(own, holds=False)[0][1]["state"] == "done"


def test_other_states_of_a_window_are_reported_as_they_are(tmp_path: pathlib.Path) -> None:
    own = tasks.Tasks(tmp_path)
    own.accept(TASK)
    write_state(tmp_path, state="failed", detail="", progress=1.0, result={"sha256": "ab"})
    assert changed(own, holds=True)[0][1]["state"] == "failed"


def test_progress_is_a_change_and_so_is_what_is_done(tmp_path: pathlib.Path) -> None:
    own = tasks.Tasks(tmp_path)
    own.accept(TASK)
    for detail, progress in (("", 0.25), ("", 0.5), ("packing", 0.5)):
        write_state(tmp_path, state="running", detail=detail, progress=progress)
        ((name, report),) = changed(own)
        assert (report["detail"], report["progress"]) == (detail, progress)
        own.note_reported(name, report)
        assert changed(own) == []


def test_a_host_has_a_limited_number_of_tasks(tmp_path: pathlib.Path) -> None:
    own = tasks.Tasks(tmp_path)
    for n in range(tasks.MAX_TASKS + 1):
        own.accept({**TASK, "id": f"t-{n}"})
    assert len(list(tmp_path.iterdir())) == tasks.MAX_TASKS


def test_what_is_not_a_task_is_not_stored(tmp_path: pathlib.Path) -> None:
    own = tasks.Tasks(tmp_path)
    for wrong in (
        {**TASK, "id": "../x"},
        {**TASK, "kind": "shell"},
        {**TASK, "expires_us": "soon"},
        {},
        {"id": 7},
    ):
        own.accept(wrong)
    assert list(tmp_path.iterdir()) == []


def test_a_task_is_forgotten_when_it_cannot_come_again(tmp_path: pathlib.Path) -> None:
    own = tasks.Tasks(tmp_path)
    own.accept(TASK)
    write_state(tmp_path, state="done", detail="", progress=1.0)
    own.forget_old(1000 + tasks.KEEP_US + 1)
    assert (tmp_path / "7").exists()  # the server does not know that it is done
    own.note_reported(*changed(own)[0])
    own.forget_old(1000 + tasks.KEEP_US - 1)
    assert (tmp_path / "7").exists()
    own.forget_old(1000 + tasks.KEEP_US + 1)
    assert not (tmp_path / "7").exists()


def test_a_task_that_comes_again_after_it_was_forgotten_is_reported_anew(
    tmp_path: pathlib.Path,
) -> None:
    own = tasks.Tasks(tmp_path)
    for _ in range(2):
        own.accept(TASK)
        write_state(tmp_path, state="done", detail="", progress=1.0)
        ((name, report),) = changed(own)
        own.note_reported(name, report)
        own.forget_old(1000 + tasks.KEEP_US + 1)
        assert not (tmp_path / "7").exists()


def test_a_task_whose_file_was_lost_in_a_crash_is_taken_again(tmp_path: pathlib.Path) -> None:
    (tmp_path / "7").mkdir()
    tasks.Tasks(tmp_path).accept(TASK)
    assert json.loads((tmp_path / "7" / "task.json").read_text()) == TASK


def test_a_finished_task_of_which_nothing_is_known_is_forgotten(tmp_path: pathlib.Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "reported").write_text("failed  1.0")
    tasks.Tasks(tmp_path).forget_old(0)
    assert list(tmp_path.iterdir()) == []
