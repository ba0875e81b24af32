"""Processes: which one wrote a file (a PID is reused, but not with the same start time and boot), and child processes."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import time
from collections.abc import Callable

from overnight import errors

PR_SET_PDEATHSIG = 1


def read_stat(pid: int) -> tuple[str, str]:
    """Return state and start time in ticks since boot; ("X", "") where the process is gone."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text(errors="replace")
        # The name may hold any bytes, also brackets: it ends at the last bracket (proc(5)).
        fields = text.rpartition(")")[2].split()
        return fields[0], fields[19]
    except (OSError, IndexError) as error:
        errors.raise_own(error)  # the process may well run
        return "X", ""


def read_start(pid: int) -> str:
    return read_stat(pid)[1]


def read_started_us(pid: int) -> int:
    """Return when a process started, in microseconds since the epoch; 0 where it is gone."""
    start = read_start(pid)
    up_s = time.clock_gettime(time.CLOCK_BOOTTIME) - int(start or 0) / os.sysconf("SC_CLK_TCK")
    return round((time.time() - up_s) * 1e6) if start else 0


def read_boot(root: pathlib.Path = pathlib.Path("/")) -> str:
    try:
        return (root / "proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError as error:
        errors.raise_own(error)
        return ""


def read_identity(pid: int) -> dict[str, str]:
    """Return `started` and `boot`, as files store them."""
    return {"started": read_start(pid), "boot": read_boot()}


def send_signal(pid: int, started: str, number: int = signal.SIGKILL) -> None:
    """Signal a process; one that has ended is left, also if its PID is another's by now."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:  # it is gone, or the kernel is older than Linux 5.3
        handle = -1
    try:
        if started and read_start(pid) == started:
            with contextlib.suppress(ProcessLookupError):
                if handle < 0:
                    os.kill(pid, number)
                else:
                    signal.pidfd_send_signal(handle, number)
    finally:
        if handle >= 0:
            os.close(handle)


def is_running(pid: int, started: str, boot: str) -> bool:
    """Return whether the process that wrote this still runs; a zombie, maybe never reaped, does not."""
    state, now = read_stat(pid)
    return bool(started) and boot == read_boot() and now == started and state not in "ZX"


def read_cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process, also of a zombie. Raises OSError.

    By the kernel's clock of the process (clock_getcpuclockid(3)), in ns: /proc has ticks of 10 ms.
    """
    return time.clock_gettime((~pid << 3) | 2)


def die_with(parent: int, number: int) -> Callable[[], None]:
    """Return a preexec_fn: the child gets this signal when the thread that forked it ends.

    Everything is looked up before the fork, and the child only makes two system calls: safe even when other threads
    hold locks.
    """
    import ctypes  # a megabyte, which readers of files do not need

    prctl = ctypes.PyDLL(None).prctl
    exit_now, get_parent = os._exit, os.getppid

    def prepare() -> None:
        prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if get_parent() != parent:  # died before the prctl took effect
            exit_now(1)

    return prepare
