"""The agent that runs in the machine, on plain folders."""

from __future__ import annotations

import pathlib

import pytest

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
