"""Which processes are the recorder's."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from overnight.agent import own_processes


@pytest.fixture
def helper() -> Iterator[int]:
    """A process of the same interpreter and environment."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.close()


def write_status(home: pathlib.Path, **fields: object) -> None:
    (home / "spool").mkdir()
    status = {"mode": "recording", "updated_ns": time.time_ns(), "processes": [], **fields}
    (home / "spool/status.json").write_text(json.dumps(status))


def read_pids(home: pathlib.Path, parent: int = 0) -> list[int]:
    rows = own_processes.signal(home, parent).open(pathlib.Path("/nowhere"))()
    assert all(len(row) == 2 and min(row) >= 0 for row in rows.values())
    return sorted(int(key.partition(" ")[0]) for key in rows)


def test_the_recorder_is_this_process_its_parent_and_the_profiler(
    tmp_path: pathlib.Path, helper: int
) -> None:
    assert read_pids(tmp_path) == [os.getpid()]
    assert read_pids(tmp_path, os.getppid()) == sorted([os.getpid(), os.getppid()])
    write_status(tmp_path, processes=[helper])
    assert read_pids(tmp_path) == sorted([os.getpid(), helper])


@pytest.mark.parametrize("fields", [{"mode": "stopped"}, {"updated_ns": 1}, {"processes": None}])
def test_a_profiler_that_ended_is_not_the_recorder(
    tmp_path: pathlib.Path, helper: int, fields: dict[str, object]
) -> None:
    write_status(tmp_path, **{"processes": [helper], **fields})
    assert read_pids(tmp_path) == [os.getpid()]
