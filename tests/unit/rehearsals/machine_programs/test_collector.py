"""The collector's workers keep reading and end with the collector."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from overnight.rehearsals import zombie_agent


def wait(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 8
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def children(pid: int) -> list[int]:
    return [
        int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    ]


def has_ended(pid: int) -> bool:
    """Return whether the process has ended; a zombie has."""
    try:
        status = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return status.rpartition(")")[2].split()[0] == "Z"


@pytest.mark.parametrize("rate", ["0", "1e6"])
def test_workers_end_with_the_collector(tmp_path: pathlib.Path, rate: str) -> None:
    files = [tmp_path / f"data-{number}" for number in range(3)]
    for file in files:
        with file.open("wb") as stream:
            stream.truncate(1 << 20)
    program = zombie_agent.INSIDE / "collector.py"
    collector = subprocess.Popen([sys.executable, "-I", "-S", program, tmp_path, rate, *files])
    workers: list[int] = []
    try:
        wait(lambda: len(children(collector.pid)) == 2)
        workers = children(collector.pid)
        # A worker starts its session a moment after the fork.
        wait(lambda: all(os.getsid(worker) == worker for worker in workers))
        assert (tmp_path / "cgroup.procs").read_text() == "0"
    finally:
        collector.kill()
        collector.wait(8)
    wait(lambda: all(map(has_ended, workers)))
