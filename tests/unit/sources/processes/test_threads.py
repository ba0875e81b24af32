from __future__ import annotations

import contextlib
import os
import pathlib
import threading
import time

import pytest

from overnight.sources.processes import table, threads


def stat(number: int, comm: str, *, utime: int, count: int = 1, policy: int = 0, priority: int = 0) -> str:  # fmt: skip
    fields = ["0"] * 50
    fields[0] = "R"
    for at, value in ((11, utime), (17, count), (19, 5), (36, 3), (37, priority), (38, policy)):
        fields[at] = str(value)
    return f"{number} ({comm}) {' '.join(fields)}\n"


class Host:
    """A /proc of files with one process and its threads."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.threads: dict[int, tuple[int, int]] = {}
        (root / "proc/10/task").mkdir(parents=True)
        (root / "proc/loadavg").write_text("0.1 0.1 0.1 1/9 10\n")

    def put(self, utime: int) -> None:
        count = 1 + len(self.threads)
        (self.root / "proc/10/stat").write_text(stat(10, "app", utime=utime, count=count))
        for number, (policy, priority) in {10: (1, 9), **self.threads}.items():
            folder = self.root / f"proc/10/task/{number}"
            folder.mkdir(exist_ok=True)
            text = stat(number, "poll", utime=utime, policy=policy, priority=priority)
            (folder / "stat").write_text(text)


@pytest.fixture
def host(tmp_path: pathlib.Path) -> Host:
    return Host(tmp_path)


def polls(host: Host, *used: int) -> list[dict[str, tuple[int, ...]]]:
    with contextlib.closing(table.Table(host.root)) as processes:
        seen = threads.RealTime(processes, host.root)
        host.put(0)
        processes.read()
        results = []
        for utime in used:
            host.put(utime)
            processes.read()
            results.append(dict(seen.read()))
        return results


def test_a_real_time_thread_of_a_busy_process_is_reported(host: Host) -> None:
    host.threads = {11: (0, 0), 12: (1, 50), 13: (2, 7)}
    assert polls(host, 90)[0] == {
        "10/13 poll": (90, 0, 3, 2, 7),
        "10/12 poll": (90, 0, 3, 1, 50),
    }


def test_an_idle_process_is_not_read(host: Host) -> None:
    host.threads = {12: (1, 50)}
    assert polls(host, 9, 18) == [{}, {}]


def test_many_threads_are_read_in_parts_and_real_time_ones_at_each_poll(host: Host) -> None:
    host.threads = {11: (1, 50), **dict.fromkeys(range(20, 20 + 2 * threads.MAX_READ), (0, 0))}
    results = polls(host, 90, 180, 270, 360)
    assert [list(rows) for rows in results] == [[], [], ["10/11 poll"], ["10/11 poll"]]


def test_a_thread_that_becomes_ordinary_or_ends_is_dropped(host: Host) -> None:
    host.threads = {12: (1, 50), 13: (1, 50)}
    with contextlib.closing(table.Table(host.root)) as processes:
        seen = threads.RealTime(processes, host.root)
        host.put(0)
        processes.read()
        host.put(90)
        processes.read()
        assert len(seen.read()) == 2
        host.threads = {12: (0, 0)}
        (host.root / "proc/10/task/13/stat").unlink()
        host.put(180)
        processes.read()
        assert seen.read() == {}


def test_a_real_thread_matches_the_kernel() -> None:
    """The test itself is busy; its other thread is ordinary, so it has no row, and its line was parsed."""
    done = threading.Event()
    helper = threading.Thread(target=done.wait, daemon=True)
    helper.start()
    try:
        with contextlib.closing(table.Table()) as processes:
            seen = threads.RealTime(processes)
            processes.read()
            begin = time.process_time()
            while time.process_time() - begin < 0.7:
                pass
            processes.full_scan()
            processes.read()
            rows = seen.read()
            assert not any(key.startswith(f"{os.getpid()}/") for key in rows)
            process = seen._known[os.getpid()]
            assert process.threads >= 2
            assert process.unread == []
    finally:
        done.set()
        helper.join()
