"""Leftovers of a killed recorder become ordinary segments."""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import subprocess
import sys
import threading
import time

import perfsamples
import pytest

from overnight.sources import perf
from overnight.sources.perf import events, recovery, segmentfile

WALL = 1_700_000_000_000_000_000
IDENTITY = perf.Identity("web-1", "89abcdef" * 4)
FIRST = str(perf.SegmentName("web-1", WALL, "0123abcd"))


def sample(time_ns: int) -> bytes:
    body = struct.pack("<QiiQIIQQ", 1, 7, 7, time_ns, 0, 0, 1, 1)
    return struct.pack("<IHH", 9, 2, 8 + len(body)) + body


def leave(path, *times: int, finish: bool = False) -> bytes:
    file = segmentfile.SegmentFile.create(path, events.EventAttr().pack(), [1])
    file.write([sample(time_ns) for time_ns in times])
    if finish:
        clock = perf.Clock(WALL, 0)
        file.finish(segmentfile.features("web-1", [], 1, (clock, clock)))
    else:
        os.close(file.descriptor)
    return segmentfile.read_head(path)


def test_an_unfinished_segment_is_finished_under_its_own_host_and_boot(tmp_path):
    leave(tmp_path / (FIRST + perf.WRITING), 5, 6)
    recovery.write_current(tmp_path, recovery.Current(FIRST + perf.WRITING, perf.Clock(WALL, 3)))
    assert [path.name for path in recovery.recover_segments(tmp_path, IDENTITY, 1)] == [FIRST]
    samples = perfsamples.read_samples(tmp_path / FIRST)
    assert list(samples.time) == [5, 6]
    assert samples.finished
    assert recovery.recover_segments(tmp_path, IDENTITY, 1) == ()


def test_perfs_later_files_have_names_of_their_own(tmp_path):
    base = FIRST + perf.WRITING
    head = leave(tmp_path / f"{base}.2026111506264824", 1, finish=True)
    leave(tmp_path / base, 2)
    with (tmp_path / base).open("r+b") as file:
        file.write(bytes(len(head)))
    began = perf.Clock(WALL + 120 * 10**9, 9)
    recovery.write_current(tmp_path, recovery.Current(base, began, head))
    first, second = recovery.recover_segments(tmp_path, IDENTITY, 1)
    assert (first.name, list(perfsamples.read_samples(first).time)) == (FIRST, [1])
    assert perf.parse_segment_name(second.name).start_ns == began.wall_ns
    assert list(perfsamples.read_samples(second).time) == [2]


def test_without_current_json_nothing_readable_is_lost(tmp_path):
    leave(tmp_path / (FIRST + perf.WRITING), 5)
    (tmp_path / perf.CURRENT).write_text("{torn")
    assert [path.name for path in recovery.recover_segments(tmp_path, IDENTITY, 1)] == [FIRST]


def test_empty_segments_are_removed_and_unreadable_ones_set_aside(tmp_path):
    (tmp_path / "a.perf.data.writing").write_bytes(b"")
    leave(tmp_path / "b.perf.data.writing")
    (tmp_path / "c.perf.data.writing").write_bytes(bytes(5000))
    assert recovery.recover_segments(tmp_path, IDENTITY, 1) == ()
    assert [path.name for path in tmp_path.iterdir()] == ["c.perf.data.damaged"]


def test_an_existing_segment_is_never_replaced(tmp_path):
    (tmp_path / FIRST).write_bytes(b"precious")
    leave(tmp_path / (FIRST + perf.WRITING), 5)
    os.utime(tmp_path / FIRST, ns=(WALL, WALL))
    (recovered,) = recovery.recover_segments(tmp_path, IDENTITY, 1)
    assert recovered.name != FIRST
    assert (tmp_path / FIRST).read_bytes() == b"precious"


def describe(child, file=FIRST + perf.WRITING):
    born = recovery.read_start_ticks(child.pid)
    return recovery.Current(file, perf.Clock(0, 0), b"", child.pid, born)


@contextlib.contextmanager
def start_perf(output):
    """Start a process with an argument of perf; yield it when the kernel shows its command line.

    It ends when its standard input is closed.
    """
    command = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", output]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        yield child


def test_recovery_waits_for_a_perf_that_is_still_finishing(tmp_path):
    with start_perf(f"--output={tmp_path / FIRST}{perf.WRITING}") as child:
        current = describe(child)
        recovery.write_current(tmp_path, current)
        assert recovery.read_current(tmp_path) == current
        threading.Timer(0.3, child.stdin.close).start()
        recovery.recover_segments(tmp_path, IDENTITY, 1)
        assert child.stdin.closed
        assert child.wait() == 0  # it was not killed


@pytest.mark.parametrize(
    ("output", "file"),
    [
        ("", FIRST + perf.WRITING),  # not a perf
        (f"--output=/other/{FIRST}x{perf.WRITING}", FIRST + perf.WRITING),  # of another spool
        ("/usr/sbin/sshd", "sshd"),  # current.json names a word of the victim's command
    ],
)
def test_recovery_neither_awaits_nor_kills_a_process_that_is_not_its_perf(
    tmp_path, monkeypatch, output, file
):
    monkeypatch.setattr(recovery, "WAIT_SECONDS", 0.0)
    with start_perf(output) as child:
        recovery.write_current(tmp_path, describe(child, file))
        recovery.recover_segments(tmp_path, IDENTITY, 1)
        child.terminate()
        assert child.wait() == -signal.SIGTERM  # a SIGKILL before it would have come first


def test_a_perf_that_does_not_end_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(recovery, "WAIT_SECONDS", 0.0)
    output = f"--output={tmp_path / FIRST}{perf.WRITING}"
    with start_perf(output) as child:
        recovery.write_current(tmp_path, describe(child))
        recovery.recover_segments(tmp_path, IDENTITY, 1)
        assert child.wait() == -signal.SIGKILL


def test_recovery_does_not_wait_for_a_reused_pid(tmp_path):
    own = os.getpid()
    stale = recovery.Current("x", perf.Clock(0, 0), b"", own, recovery.read_start_ticks(own) - 1)
    recovery.write_current(tmp_path, stale)
    begin = time.monotonic()
    recovery.recover_segments(tmp_path, IDENTITY, 1)
    assert time.monotonic() - begin < recovery.WAIT_SECONDS / 2
