"""Host signals on this host's kernel."""

from __future__ import annotations

import ctypes
import os
import pathlib
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from overnight.model import cgroups
from overnight.sources import clocksync, limits, load, memory, vmstat

PROC = pathlib.Path("/proc")


def read_counters() -> dict[str, int]:
    return {
        name: int(number)
        for name, number in (line.split() for line in (PROC / "vmstat").read_text().splitlines())
    }


def test_counters_are_between_the_kernels_before_and_after() -> None:
    read = vmstat.open_vmstat()
    read()
    before = read_counters()
    row = dict(zip(vmstat.COLUMNS, read()[""], strict=True))
    after = read_counters()
    assert before.keys() & row.keys()
    for column, names in vmstat.COLUMNS.items():
        known = [name for name in names if name in before]
        assert sum(before[n] for n in known) <= row[column] <= sum(after[n] for n in known)


@pytest.fixture
def small_cgroup() -> Iterator[pathlib.Path]:
    """A memory cgroup of 16 MB, removed after the test."""
    layout = cgroups.read_layout()
    assert layout.memory, "no memory controller is mounted"
    folder = pathlib.Path(layout.memory) / f"overnight-test-{os.getpid()}"
    limit = "memory.max" if layout.memory == layout.unified else "memory.limit_in_bytes"
    folder.mkdir()
    try:
        (folder / limit).write_text("16M")
        yield folder
    finally:
        folder.rmdir()


@pytest.mark.needs_root
def test_an_oom_kill_is_counted(small_cgroup: pathlib.Path) -> None:
    read = vmstat.open_vmstat()
    place = list(vmstat.COLUMNS).index("oom_kill")
    before = read()[""][place]
    program = (
        f"import os\nopen({str(small_cgroup / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))\n"
        "kept = [bytearray(1 << 20) for _ in range(64)]\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert read()[""][place] > before


def test_memory() -> None:
    row = dict(zip(memory.FIELDS, memory.open_memory()()[""], strict=True))
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 1024
    assert row["total"] == pages
    assert 0 < row["available"] <= row["total"]
    assert row["reclaimable"] <= row["slab"]


def test_threads_are_counted_in_the_load_and_against_their_limits() -> None:
    read, read_load = limits.open_limits(), load.open_load()
    before = read()
    leave = threading.Event()
    threads = [threading.Thread(target=leave.wait) for _ in range(200)]
    for thread in threads:
        thread.start()
    try:
        during, levels = read(), read_load()[""]
    finally:
        leave.set()
        for thread in threads:
            thread.join()
    # Other processes start and end threads too, but fewer.
    assert during["threads"][0] - before["threads"][0] > 100
    assert abs(levels[4] - during["threads"][0]) < 100
    assert during["pids"][1] == int((PROC / "sys/kernel/pid_max").read_text())
    assert during["threads"][1] == int((PROC / "sys/kernel/threads-max").read_text())


def test_open_files_are_counted_against_their_limit() -> None:
    read = limits.open_limits()
    before = read()["files"][0]
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(400)]
    try:
        used, most = read()["files"]
    finally:
        for descriptor in held:
            os.close(descriptor)
    assert used - before > 200
    assert most == int((PROC / "sys/fs/file-nr").read_text().split()[2])


class Timex(ctypes.Structure):
    """The kernel's clock state, field by field, to compare with."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 256),
    )


def test_the_clock_as_the_c_library_sees_it() -> None:
    def read() -> Timex:
        timex = Timex()
        assert ctypes.CDLL(None).ntp_adjtime(ctypes.byref(timex)) >= 0
        return timex

    before = read()
    unsynced, status, _, largest, _ = clocksync.open_clocksync()()[""]
    after = read()
    assert status in (before.status, after.status)
    assert unsynced == bool(status & clocksync.STA_UNSYNC)
    # The largest error grows by 500 us a second until a time server sets the clock right.
    low, high = sorted((before.maxerror, after.maxerror))
    assert low <= largest <= high
