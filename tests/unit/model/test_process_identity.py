"""Which process wrote a file."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys

import pytest

from overnight.model import process_identity

RENAMED = r"""
import ctypes
ctypes.CDLL(None).prctl(15, b"\xff) Z (x", 0, 0, 0)  # PR_SET_NAME
print(flush=True)
input()
"""


def test_a_process_with_any_name_is_identified():
    command = [sys.executable, "-c", RENAMED]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        identity = process_identity.read_identity(child.pid)
        assert process_identity.read_stat(child.pid)[0] in "SR"
        assert int(identity["started"]) >= int(process_identity.read_start(os.getpid()))
        assert process_identity.is_running(child.pid, **identity)
        assert not process_identity.is_running(child.pid, "1", identity["boot"])
        child.communicate(b"\n")
    assert process_identity.read_stat(child.pid) == ("X", "")
    assert not process_identity.is_running(child.pid, **identity)


@pytest.mark.parametrize("handles", [True, False], ids=["pidfd", "before Linux 5.3"])
def test_only_the_process_that_was_meant_is_signalled(
    handles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: int) -> int:
        raise OSError(errno.ENOSYS, "not implemented")

    if not handles:
        monkeypatch.setattr(os, "pidfd_open", refuse)
    with subprocess.Popen(["sleep", "600"]) as child:
        started = process_identity.read_start(child.pid)
        for other in ("", str(int(started) - 1)):
            process_identity.send_signal(child.pid, other)
            assert child.poll() is None
        process_identity.send_signal(child.pid, started)
        assert child.wait() == -signal.SIGKILL
    process_identity.send_signal(child.pid, started)  # gone: not an error


def test_a_pid_that_is_reused_before_the_signal_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The handle is opened before the start time is read, so a later process cannot get the signal."""
    with subprocess.Popen(["sleep", "600"]) as child:
        started, kill = process_identity.read_start(child.pid), os.kill

        def end_meanwhile(pid: int) -> str:
            kill(pid, signal.SIGKILL)
            child.wait()
            return started

        monkeypatch.setattr(process_identity, "read_start", end_meanwhile)
        monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("signalled by number"))
        process_identity.send_signal(child.pid, started)


def test_cpu_time_of_a_process_that_has_ended_is_counted() -> None:
    process = subprocess.Popen(["/bin/sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"])  # fmt: skip
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert process_identity.read_cpu_seconds(process.pid) > 0
    process.wait()
