"""The agent that runs in the machine, on plain folders."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from overnight.rehearsals import zombie_agent
from overnight.rehearsals.machine_programs import supervisor


@pytest.fixture
def place(tmp_path: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    unit, state = tmp_path / "unit", tmp_path / "state"
    unit.mkdir()
    state.mkdir()
    return unit, state


def test_each_start_has_a_group_of_its_own_and_leaves_its_state(
    tmp_path: pathlib.Path, place: tuple[pathlib.Path, pathlib.Path]
) -> None:
    unit, state = place
    task = tmp_path / "task"
    # Called as sh would be; the group exists while it runs.
    task.write_text('#!/bin/sh\ntest "$1" = -c && test -d "$4" && echo "$4" > "$5"; exit 1\n')
    task.chmod(0o755)
    for number in range(3):
        supervisor.start(str(task), unit / f"task-{number}", state / f"task-{number}")
    assert list(unit.iterdir()) == []
    assert sorted(path.read_text().strip() for path in state.iterdir()) == [
        str(unit / f"task-{number}") for number in range(3)
    ]


def test_a_simulated_past_leaves_the_state_of_its_starts(
    place: tuple[pathlib.Path, pathlib.Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    unit, state = place
    entered: list[str] = []
    monkeypatch.setattr(supervisor, "enter", lambda folder: entered.append(folder.name))
    supervisor.leave_zombies(unit, unit, state, 5)
    assert len(list(state.iterdir())) == 5
    assert list(unit.iterdir()) == []
    assert entered == [word for number in range(5) for word in (f"past-{number}", "unit")]


def test_a_runtime_starts_containers_at_each_call_and_no_other(
    tmp_path: pathlib.Path, place: tuple[pathlib.Path, pathlib.Path]
) -> None:
    unit, state = place
    pipe = tmp_path / "pipe"
    task = tmp_path / "task"
    task.write_text('#!/bin/sh\nbasename "$4" > "$5"\n')
    task.chmod(0o755)
    arguments = (unit, state, str(task), 3, str(pipe), "docker-", ".scope")
    threading.Thread(target=supervisor.serve, args=arguments, daemon=True).start()
    wait_for(pipe.exists)
    for count in (3, 6):
        with pipe.open("ab", buffering=0) as calls:
            calls.write(b"+")
        wait_for(lambda: len(list(state.iterdir())) >= count and not list(unit.iterdir()))  # noqa: B023
        assert len(list(state.iterdir())) == count
    for file in state.iterdir():
        assert file.read_text().strip() == f"docker-{file.name}.scope"
        assert len(file.name) == 64


def test_the_agent_calls_and_waits(tmp_path: pathlib.Path) -> None:
    pipe, program = tmp_path / "pipe", zombie_agent.INSIDE / "client.py"
    os.mkfifo(pipe)
    with (
        pipe.open("r+b", buffering=0) as calls,
        subprocess.Popen([sys.executable, "-I", "-S", program, pipe, "/bin/sleep"]) as agent,
    ):
        try:
            assert calls.read(1) == b"+"
            children = pathlib.Path(f"/proc/{agent.pid}/task/{agent.pid}/children")
            wait_for(lambda: children.read_text().split())
        finally:
            agent.kill()


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 8
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
