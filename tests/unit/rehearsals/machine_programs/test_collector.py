"""The collector's workers read on, and not longer than the collector itself."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable

from overnight.rehearsals import zombie_agent


def wait(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 8
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def children(pid: int) -> list[int]:
    return [
        int(one) for one in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    ]


def gone(pid: int) -> bool:
    """Or dead, and only not yet collected by whoever adopted it."""
    try:
        status = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return status.rpartition(")")[2].split()[0] == "Z"


def test_workers_end_with_it(tmp_path: pathlib.Path) -> None:
    files = [tmp_path / f"data-{number}" for number in range(3)]
    for file in files:
        with file.open("wb") as made:
            made.truncate(1 << 20)
    program = zombie_agent.INSIDE / "collector.py"
    collector = subprocess.Popen([sys.executable, "-I", "-S", program, tmp_path, *files])
    workers: list[int] = []
    try:
        wait(lambda: len(children(collector.pid)) == 2)
        workers = children(collector.pid)
        wait(lambda: all(os.getsid(one) == one for one in workers))  # a moment after the fork
        assert (tmp_path / "cgroup.procs").read_text() == "0"
    finally:
        collector.kill()
        collector.wait(8)
    wait(lambda: all(map(gone, workers)))
