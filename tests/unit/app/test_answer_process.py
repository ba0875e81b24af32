"""Answers of a server that come from another process: kept, limited, and failing."""

from __future__ import annotations

import json
import pathlib
import subprocess
import threading
import time
from typing import Any

import pytest

from overnight import errors
from overnight.app import answer_process, serving
from overnight.model.event import Event

EVENT = Event(1, "net.driver_reset", host="db-7", id="net.driver_reset-00000001")


@pytest.fixture
def answers(tmp_path: pathlib.Path) -> answer_process.Answers:
    return answer_process.Answers("sqlite:///none", tmp_path, tmp_path / "reports")


def play(monkeypatch: pytest.MonkeyPatch, *results: Any) -> list[Any]:
    """Answer each process with a result; return what the processes were given."""
    given: list[Any] = []
    pending = list(results)

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
        given.append((command, json.loads(options["input"])))
        result = pending.pop(0)
        if isinstance(result, Exception):
            raise result
        return subprocess.CompletedProcess(command, *result)

    monkeypatch.setattr(subprocess, "run", run)
    return given


def test_a_diagnosis_is_made_once(answers, monkeypatch) -> None:
    given = play(monkeypatch, (0, b'{"fleet": 1}'), (0, b"<html>"))
    first = answers.diagnose(pathlib.Path("/bundle"), "a" * 64, EVENT, "html")
    assert answers.diagnose(pathlib.Path("/bundle"), "a" * 64, EVENT, "html") == first
    assert first.read_bytes() == b"<html>"
    (_, question), (_, diagnosis) = given
    assert question["parameters"] == {"kind": ["net.driver_reset"]}
    assert diagnosis["fleet"] == {"fleet": 1}
    assert "database" not in diagnosis  # who opens the bundle does not know it


def test_a_diagnosis_does_without_a_fleet_that_cannot_answer(answers, monkeypatch) -> None:
    given = play(monkeypatch, (-9, b""), (0, b"{}"))
    answers.diagnose(pathlib.Path("/bundle"), "a" * 64, EVENT, "json")
    assert given[1][1]["fleet"] is None


def test_no_secret_is_in_the_arguments(answers, monkeypatch) -> None:
    given = play(monkeypatch, (0, b"{}"))
    answers.ask("cohorts", {"kind": ["net.driver_reset"]})
    [(command, sent)] = given
    assert sent["database"] == "sqlite:///none"
    assert not any("sqlite" in word for word in command)


@pytest.mark.parametrize(
    ("result", "kind", "status"),
    [
        ((3, json.dumps(errors.NotFoundError("a", why="b", todo="c").as_json()).encode()), errors.NotFoundError, 404),
        ((2, json.dumps(errors.UsageError("a", why="b", todo="c").as_json()).encode()), errors.UsageError, 400),
        ((1, b"Traceback"), answer_process.FailedError, 500),
        ((-9, b""), answer_process.FailedError, 500),
        ((1, b"[]"), answer_process.FailedError, 500),
        (subprocess.TimeoutExpired("x", 1), answer_process.FailedError, 500),
    ],
)  # fmt: skip
def test_an_error_of_the_process_is_that_of_the_request(
    answers, monkeypatch, result, kind, status
) -> None:
    play(monkeypatch, result)
    with pytest.raises(kind) as caught:
        answers.ask("cohorts", {})
    assert serving.status_of(caught.value) == status


def test_too_many_questions_at_once_are_refused(answers, monkeypatch) -> None:
    go, started = threading.Event(), threading.Semaphore(0)

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        started.release()
        assert go.wait(30)
        return subprocess.CompletedProcess(command, 0, b"{}")

    monkeypatch.setattr(subprocess, "run", run)
    asking = [
        threading.Thread(target=answers.ask, args=("hazard", {}))
        for _ in range(answer_process.AT_ONCE + answer_process.WAITING)
    ]
    for thread in asking:
        thread.start()
    for _ in range(answer_process.AT_ONCE):
        assert started.acquire(timeout=30)
    while answers._taken._value:  # the others get in line, too
        time.sleep(0.01)
    with pytest.raises(answer_process.BusyError) as caught:
        answers.ask("hazard", {})
    assert serving.status_of(caught.value) == 503
    go.set()
    for thread in asking:
        thread.join()
    assert answers.ask("hazard", {}) == b"{}"


def test_old_diagnoses_are_removed(answers, tmp_path, monkeypatch) -> None:
    answers.prune()  # nothing there
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "a.html").touch()
    (tmp_path / "reports" / "b.html").symlink_to("removed by another server")
    answers.prune()
    (tmp_path / "reports" / "b.html").unlink()
    assert list((tmp_path / "reports").iterdir())
    monkeypatch.setattr(answer_process, "KEEP_SECONDS", -1)
    answers.prune()
    assert not list((tmp_path / "reports").iterdir())
