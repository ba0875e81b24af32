from __future__ import annotations

import concurrent.futures as cf
import contextlib
import os
import pathlib
import subprocess
import sys
import threading
import time

import noise
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight import sources
from overnight.sources import processes
from overnight.sources.processes import table


def stat(pid: int, comm: bytes = b"x", *, utime: int = 0, stime: int = 0, state: bytes = b"S", started: int = 5, policy: int = 0, priority: int = 0, parent: int = 0, stack: int = 7) -> bytes:  # fmt: skip
    fields = [b"0"] * 50
    fields[0] = state
    for at, value in (
        (1, parent),
        (9, 3),
        (11, utime),
        (12, stime),
        (19, started),
        (21, 44),
        (25, stack),
        (36, 1),
        (37, priority),
        (38, policy),
    ):
        fields[at] = str(value).encode()
    return str(pid).encode() + b" (" + comm + b") " + b" ".join(fields) + b"\n"


class Host:
    """A /proc of files."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.last = 0
        (root / "proc").mkdir()

    def put(self, pid: int, comm: bytes = b"x", **fields: object) -> None:
        folder = self.root / "proc" / str(pid)
        folder.mkdir(exist_ok=True)
        (folder / "stat").write_bytes(stat(pid, comm, **fields))
        self.last = max(self.last, pid)
        (self.root / "proc/loadavg").write_text(f"0.1 0.1 0.1 1/9 {self.last}\n")

    def end(self, pid: int) -> None:
        """Open files of it then read as empty; those of a real process, as an error."""
        (self.root / "proc" / str(pid) / "stat").write_bytes(b"")
        (self.root / "proc" / str(pid) / "stat").unlink()
        (self.root / "proc" / str(pid)).rmdir()


@pytest.fixture
def host(tmp_path: pathlib.Path) -> Host:
    return Host(tmp_path)


def test_cpu_time_used_before_the_first_poll_is_not_counted(host: Host) -> None:
    host.put(10, utime=100_000)
    host.put(11)
    with contextlib.closing(table.Table(host.root)) as seen:
        assert seen.read() == {}
        host.put(10, utime=100_090, stime=5)
        assert seen.read() == {"10 x": (100_090, 5, 44, 1, 3, ord("S"), 0, 0)}


def test_processes_have_the_names_of_their_programs(host: Host) -> None:
    commands = {
        10: (b"nightly.sh", b"/bin/bash\0/opt/nightly.sh\0"),
        11: (b"gzip", b"gzip\0-9\0"),
        12: (b"python3", b"python3\0collect.py\0"),
        13: (b"python3", b"python3\0train.py\0"),
    }
    parents = {11: 10}
    for pid, (comm, line) in commands.items():
        host.put(pid, comm, parent=parents.get(pid, 1))
        (host.root / f"proc/{pid}/cmdline").write_bytes(line)
    with contextlib.closing(table.Table(host.root)) as seen:
        seen.read()
        for pid, (comm, _) in commands.items():
            host.put(pid, comm, parent=parents.get(pid, 1), utime=90)
        seen.full_scan()
        assert set(seen.read()) == {
            "10 nightly.sh (bash)", "11 nightly.sh → gzip", "12 collect.py (python3)", "13 train.py (python3)",
        }  # fmt: skip
        # It runs another program.
        (host.root / "proc/12/cmdline").write_bytes(b"redis-server\0")
        host.put(12, b"redis-server", utime=180)
        assert "12 redis-server" in seen.read()
        # Its name stays that of the interpreter, but exec placed its stack elsewhere.
        (host.root / "proc/13/cmdline").write_bytes(b"python3\0serve.py\0")
        host.put(13, b"python3", utime=180)
        assert "13 train.py (python3)" in seen.read()
        host.put(13, b"python3", utime=270, stack=8)
        assert "13 serve.py (python3)" in seen.read()


def test_a_real_time_process_has_its_policy(host: Host) -> None:
    host.put(10)
    with contextlib.closing(table.Table(host.root)) as seen:
        seen.read()
        host.put(10, utime=90, policy=1, priority=50)
        assert seen.read()["10 x"][-2:] == (1, 50)


def test_the_policy_of_a_real_process_is_the_kernels() -> None:
    text = pathlib.Path("/proc/self/stat").read_bytes()
    assert table.parse_stat(text)[-3] == os.sched_getscheduler(0)


def test_a_new_process_is_seen_at_the_next_poll(host: Host) -> None:
    for pid in range(10, 300):
        host.put(pid)
    with contextlib.closing(table.Table(host.root)) as seen:
        seen.read()
        host.put(900, b"burst", utime=40, started=99)
        assert seen.read() == {"900 burst": (40, 0, 44, 1, 3, ord("S"), 0, 0)}


def test_every_process_is_read_within_five_polls(host: Host) -> None:
    pids = range(10, 60)
    for pid in pids:
        host.put(pid)
    with contextlib.closing(table.Table(host.root)) as seen:
        seen.read()
        for pid in pids:
            host.put(pid, utime=9)
        for _ in range(5):
            seen.read()
        assert all(process.ticks == 9 for process in seen._known.values())


def test_a_sleeping_process_is_read_rarely_but_still_found(host: Host) -> None:
    pids = range(10, 60)
    for pid in pids:
        host.put(pid)
    with contextlib.closing(table.Table(host.root)) as seen:
        read: list[int] = []
        real = seen._text
        seen._text = lambda pid, process: read.append(pid) or real(pid, process)  # type: ignore[method-assign]
        for _ in range(1 + table.TURNS * table.PATIENT):
            seen.read()
        read.clear()
        for _ in range(table.TURNS * table.SELDOM):
            seen.read()
        assert sorted(read) == list(pids)  # each once, in twenty polls
        host.put(33, utime=70)
        rows: sources.Rows = {}
        for _ in range(table.TURNS * table.SELDOM):
            rows = rows or seen.read()
        assert rows["33 x"][0] == 70


def test_the_twenty_busiest_are_reported(host: Host) -> None:
    pids = range(100, 160)
    for pid in pids:
        host.put(pid)
    with contextlib.closing(table.Table(host.root)) as seen:
        seen.read()
        for pid in pids:
            host.put(pid, utime=pid - 99)
        seen.full_scan()
        rows = seen.read()
        assert set(rows) == {f"{pid} x" for pid in range(140, 160)}


def test_a_process_that_ends_and_one_that_reuses_its_pid(host: Host) -> None:
    host.put(10, b"old", utime=500)
    with contextlib.closing(table.Table(host.root)) as seen:
        seen.read()
        host.end(10)
        host.put(10, b"new", utime=7, started=1000)
        seen.full_scan()
        assert seen.read() == {"10 new": (7, 0, 44, 1, 3, ord("S"), 0, 0)}
        host.end(10)
        seen.full_scan()
        assert seen.read() == {}
        assert seen._opened == 0


def test_blocked_processes_are_reported_and_counted(host: Host) -> None:
    host.put(10, state=b"D")
    host.put(11, state=b"Z")
    host.put(12, state=b"R")
    with contextlib.closing(table.Table(host.root)) as seen:
        assert list(seen.read()) == ["10 x"]
        assert seen.states() == {"": (3, 1, 1, 1)}
        host.put(10, state=b"S")
        seen.full_scan()
        assert seen.read() == {}
        assert seen.states() == {"": (3, 1, 0, 1)}


@pytest.mark.parametrize(
    "comm",
    [b"a) (b", b"tab\tnew\nline", b"\x1b]0;x\x07", b"\xff\xfe", b"", b"x" * 8000, b"1 (2) 3"],
)
def test_hostile_names(host: Host, comm: bytes) -> None:
    host.put(10, comm)
    with contextlib.closing(table.Table(host.root)) as seen:
        seen.read()
        host.put(10, comm, utime=50)
        seen.full_scan()
        if len(comm) > 1000:  # cut off by the read: the kernel writes at most 64 bytes
            assert seen.read() == {}
        else:
            (key,) = seen.read()
            assert key.isprintable()
            assert key == f"10 {table.display_name(comm)}"


@given(st.binary(max_size=200))
def test_any_bytes_are_parsed_or_a_value_error(text: bytes) -> None:
    with contextlib.suppress(ValueError, IndexError):
        assert len(table.parse_stat(text)) == 11


def test_open_files_and_work_are_bounded_at_many_processes(host: Host) -> None:
    for pid in range(1000, 1000 + table.MAX_OPEN + 150):
        host.put(pid)
    with contextlib.closing(table.Table(host.root)) as seen:
        seen.read()
        assert seen._opened == table.MAX_OPEN
        read = []
        real = seen._text
        seen._text = lambda pid, process: read.append(pid) or real(pid, process)  # type: ignore[method-assign]
        seen.read()
        assert 0 < len(read) <= table.MAX_A_TURN + table.HOT


def test_a_host_without_proc_has_no_data(tmp_path: pathlib.Path) -> None:
    with pytest.raises(sources.NoDataError):
        table.Table(tmp_path)


def test_signals_have_a_value_for_each_column(host: Host) -> None:
    host.put(10, state=b"D")
    for signal in processes.SIGNALS:
        for row in signal.open(host.root)().values():
            assert len(row) == len(signal.columns)
    host.put(10, utime=5)
    processes.full_scan(host.root)
    assert processes.SIGNALS[0].open(host.root)() == {"10 x": (5, 0, 44, 1, 3, ord("S"), 0, 0)}


def test_threads_of_this_process_are_not_processes() -> None:
    with contextlib.closing(table.Table()) as seen, cf.ThreadPoolExecutor(3) as pool:
        started = threading.Barrier(4)
        for _ in range(3):
            pool.submit(started.wait)
        while len(tasks := os.listdir("/proc/self/task")) < 4:  # noqa: PTH208
            os.sched_yield()
        for task in tasks:
            seen._read(int(task))
        started.wait()
        assert list(seen._known) == [os.getpid()]
        assert seen._opened == 1


def test_new_and_busy_processes_of_this_host_are_seen_at_once() -> None:
    """The real /proc, where the listing can begin at a PID."""
    with contextlib.closing(table.Table()) as seen:
        assert seen._seeks
        seen.read()
        busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        try:
            began, waited = time.monotonic(), noise.read_waited([os.getpid()])
            rows: sources.Rows = {}
            # A process that is blocked while it is loaded has no ticks yet.
            while not any(k.startswith(f"{busy.pid} ") and sum(row[:2]) for k, row in rows.items()):
                late = noise.read_waited([os.getpid(), busy.pid]) - waited
                assert time.monotonic() - began < 1.5 + late
                rows = seen.read()
                os.sched_yield()
        finally:
            busy.kill()
            busy.wait()
        text = pathlib.Path(f"/proc/{os.getpid()}/stat").read_bytes()
        assert table.parse_stat(text)[0] == pathlib.Path("/proc/self/comm").read_bytes().strip()
