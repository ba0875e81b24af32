"""Processes of a rehearsal have its mark, their core and a short life."""

from __future__ import annotations

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from overnight import errors, rehearsals
from overnight.rehearsals import processes
from overnight.undo import journal

ACTOR = """
import signal
from overnight.rehearsals import processes
arguments = processes.begin()
open(arguments["file"], "w").write("there")
signal.pause()
"""


@pytest.fixture
def stage(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[rehearsals.Stage]:
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "an_actor.py").write_text(ACTOR)
    monkeypatch.setenv("PYTHONPATH", f"{os.environ.get('PYTHONPATH', '')}:{modules}")
    core = min(os.sched_getaffinity(0))
    with journal.Journal("a test", tmp_path / "undo") as run_journal:
        yield rehearsals.Stage(
            1, core, core, tmp_path, tmp_path, run_journal, random.Random(1), threading.Event()
        )


def wait(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 8
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def start(stage: rehearsals.Stage, **more: object) -> subprocess.Popen[bytes]:
    file = stage.folder / "there"
    actor = processes.start(
        stage, "an_actor", name="servo-loop", core=stage.core, file=str(file), **more
    )
    wait(lambda: file.exists() and file.read_text())
    return actor


def test_an_actor_has_its_name_its_core_and_the_mark(stage: rehearsals.Stage) -> None:
    actor = start(stage)
    proc = pathlib.Path(f"/proc/{actor.pid}")
    assert (proc / "comm").read_text() == "servo-loop\n"
    assert os.sched_getaffinity(actor.pid) == {stage.core}
    assert (proc / "oom_score_adj").read_text() == "1000\n"
    assert journal.processes_of(stage.journal.run) == (actor.pid,)
    processes.end(actor)
    assert actor.returncode == -signal.SIGKILL


def test_an_actor_ends_after_its_seconds(stage: rehearsals.Stage) -> None:
    assert start(stage, seconds=1).wait(8) == -signal.SIGALRM


def test_an_actor_ends_with_the_fault_and_the_run_can_wait_for_it(stage: rehearsals.Stage) -> None:
    actor = start(stage)
    processes.end_with_fault(stage, actor)
    assert actor.poll() is None
    stage.stop.set()
    (thread,) = stage.ending
    thread.join(8)
    assert actor.returncode == -signal.SIGKILL


def test_an_actor_that_ends_at_once_is_an_error(stage: rehearsals.Stage) -> None:
    actor = processes.start(stage, "no_such_module", name="x", core=stage.core)
    actor.wait(8)
    with pytest.raises(errors.CannotError, match="ended unexpectedly") as raised:
        processes.end_with_fault(stage, actor)
    assert "exit code 1: " in raised.value.why
    assert "no_such_module" in raised.value.why


def test_an_actor_that_ends_before_the_fault_is_an_error(stage: rehearsals.Stage) -> None:
    actor = start(stage)
    processes.end_with_fault(stage, actor)
    processes.check(stage)
    actor.kill()
    actor.wait(8)
    with pytest.raises(errors.CannotError, match="ended unexpectedly"):
        processes.check(stage)
    stage.stop.set()
    processes.check(stage)


def test_an_actor_whose_run_has_ended_does_not_start(tmp_path: pathlib.Path) -> None:
    arguments = {"name": "x", "core": 0, "seconds": 5, "parent": 1 << 22}
    done = subprocess.run(
        [sys.executable, "-c", "from overnight.rehearsals import processes; processes.begin()", json.dumps(arguments)],
        capture_output=True, text=True, timeout=8, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "has already ended" in done.stderr
