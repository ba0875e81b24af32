"""Run an instrument for a while: start its processes, read their lines, measure what they cost, end them.

Nothing is left behind: probes belong to file descriptors of the processes, and these die with this one, also after
kill -9.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import platform
import resource
import select
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO

from overnight import errors, instruments
from overnight.instruments import _bpftrace
from overnight.model import process_identity
from overnight.model.instrument import Reading, Usage

START_SECONDS = 30.0
POLL_SECONDS = 0.25
USAGE_SECONDS = 10.0
END_SECONDS = 10.0  # between SIGINT and SIGKILL
PIECE, MAX_LINE = 1 << 16, 4 << 20
ERROR_BYTES = 8 << 20
MAX_PER_SECOND = 2_000  # readings; a storm of events must not fill the disk
BPF = {"x86_64": 321, "aarch64": 280}  # system call
BPF_ENABLE_STATS = 32

OnReadings = Callable[[Sequence[Reading]], None]
OnUsage = Callable[[Usage], None]


def run(
    pipeline: instruments.Pipeline,
    seconds: float | None,
    stop: threading.Event,
    on_readings: OnReadings,
    on_usage: OnUsage = lambda _: None,
) -> Usage:
    """Run until the time is over, a command has ended, or `stop` is set; return what it cost.

    Call it from a thread that lives as long: the processes die with it. Raise CannotError if they fail.
    """
    with _bpf_statistics(), contextlib.ExitStack() as stack:
        running = _Running(pipeline, stack)
        # Compiling and attaching take a second or more, which is not a part of the time.
        running.wait_started(stop)
        deadline = float("inf") if seconds is None else time.monotonic() + seconds
        usage_at = time.monotonic() + USAGE_SECONDS
        while not (is_over := stop.is_set() or time.monotonic() >= deadline):
            if not running.read(on_readings):
                break
            if time.monotonic() >= usage_at:
                usage_at += USAGE_SECONDS
                on_usage(running.measure())
        return running.end(on_readings, was_asked=is_over)


class _Running:
    def __init__(self, pipeline: instruments.Pipeline, stack: contextlib.ExitStack) -> None:
        self._pipeline, self._reader = pipeline, pipeline.reader
        self._thread_began = time.thread_time()
        self._partial = b""
        self._dropped = 0
        self._second, self._count = 0, 0
        self._kernel: float | None = None
        self._cpu: dict[int, float] = {}
        self._processes: list[subprocess.Popen[bytes]] = []
        self._errors = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - closed by the stack
        stack.callback(self._kill)
        source: IO[bytes] | None = None
        for argv in pipeline.commands:
            process = self._start(argv, source)
            self._processes.append(process)
            assert process.stdout is not None
            if source is not None:
                source.close()  # the processes have their own
            self._output = source = stack.enter_context(process.stdout)

    def _start(self, argv: Sequence[str], source: IO[bytes] | None) -> subprocess.Popen[bytes]:
        try:
            process = subprocess.Popen(
                argv,
                stdin=source or subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=self._pipeline.environment,
                cwd="/",
                start_new_session=True,  # Ctrl-C is for this process
                preexec_fn=process_identity.die_with(os.getpid(), signal.SIGKILL),  # noqa: PLW1509 - two system calls
            )
        except OSError as error:
            raise errors.CannotError(
                f"cannot start {argv[0]}", why=str(error), todo="install it, or correct its path"
            ) from error
        with contextlib.suppress(ProcessLookupError):
            # Its messages are the only file that it writes.
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (ERROR_BYTES, ERROR_BYTES))
        return process

    def wait_started(self, stop: threading.Event) -> None:
        deadline = time.monotonic() + (START_SECONDS if self._pipeline.announces else 0.0)
        while not stop.is_set() and time.monotonic() < deadline:
            if select.select([self._output], [], [], POLL_SECONDS)[0]:
                return

    def read(self, on_readings: OnReadings, wait: float = POLL_SECONDS) -> bool:
        """Read what was printed until now; return False at the end."""
        if not select.select([self._output], [], [], wait)[0]:
            return True
        piece = os.read(self._output.fileno(), PIECE)
        *lines, self._partial = (self._partial + piece).split(b"\n")
        if not piece and self._partial:
            lines, self._partial = [self._partial], b""
        if len(self._partial) > MAX_LINE:
            self._partial, self._dropped = b"", self._dropped + 1
        if readings := [each for line in lines for each in self._limit(line)]:
            on_readings(readings)
        return bool(piece)

    def _limit(self, line: bytes) -> Iterator[Reading]:
        read_at, time_us = -1, 0
        for nanoseconds, reading in self._reader.feed(line):
            if nanoseconds != read_at:  # the readings of a second have one time
                read_at, time_us = nanoseconds, to_wall_clock(nanoseconds)
            if self._second != time_us // 1_000_000:
                self._second, self._count = time_us // 1_000_000, 0
            self._count += 1
            if self._count > MAX_PER_SECOND:
                self._dropped += 1
                continue
            # Not dataclasses.replace, which takes five times as long.
            yield Reading(time_us, reading.kind, reading.core, reading.pid, reading.subject, reading.text, reading.values)  # fmt: skip

    def measure(self) -> Usage:
        for process in self._processes:
            with contextlib.suppress(OSError):
                self._cpu[process.pid] = process_identity.read_cpu_seconds(process.pid)
        spent = read_program_seconds([process.pid for process in self._processes])
        self._kernel = spent if spent is not None else self._kernel
        own = time.thread_time() - self._thread_began
        return Usage(sum(self._cpu.values()) + own, self._kernel, self._reader.lost, self._dropped)

    def end(self, on_readings: OnReadings, *, was_asked: bool) -> Usage:
        """End the processes, and read what is left."""
        self.measure()  # the programs are gone afterwards
        first = self._processes[0]
        if was_asked:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(first.pid, signal.SIGINT)
        deadline = time.monotonic() + END_SECONDS
        while self.read(on_readings, POLL_SECONDS) and time.monotonic() < deadline:
            pass
        while any(map(_is_alive, self._processes)) and time.monotonic() < deadline:
            time.sleep(0.01)
        usage = self.measure()  # also of those that have ended, until they are waited for
        self._kill()
        failed = self._pipeline.is_endless or first.returncode
        if failed and not was_asked:
            self._raise_failure()
        return usage

    def _kill(self) -> None:
        for process in self._processes:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _raise_failure(self) -> None:
        self._errors.seek(0)
        name = pathlib.Path(self._pipeline.commands[0][0]).name
        code = next((each.returncode for each in self._processes if each.returncode), 0)
        raise errors.CannotError(
            f"{name} ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}",
            why=_bpftrace.find_reason(self._errors.read(PIECE)) or "it printed no error message",
            todo="`overnight doctor` shows what this host allows; run it as root",
        )


def to_wall_clock(nanoseconds: int) -> int:
    """Return microseconds of the wall clock for a time of the kernel; 0 is now.

    perf has the monotonic clock, bpftrace that or, if the kernel can, the one that also counts suspended time. Readings
    arrive within seconds, so it is the one that is nearer to now.
    """
    now = time.time_ns()
    if not nanoseconds:
        return now // 1000
    clocks = map(time.clock_gettime_ns, (time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME))
    age = min((clock - nanoseconds for clock in clocks), key=abs)
    return (now - age) // 1000


def read_program_seconds(pids: Sequence[int]) -> float | None:
    """Return how long the BPF programs of processes ran; None if they have none, or it is not counted."""
    total = None
    for pid in pids:
        with contextlib.suppress(OSError):
            for path in pathlib.Path(f"/proc/{pid}/fdinfo").iterdir():
                with contextlib.suppress(OSError, ValueError):
                    _, found, rest = path.read_text().partition("run_time_ns:")
                    if found:
                        total = (total or 0.0) + int(rest.split()[0]) / 1e9
    return total


@contextlib.contextmanager
def _bpf_statistics() -> Iterator[None]:
    """Let the kernel (5.8) count how long BPF programs run, until the block ends or this process dies."""
    number = BPF.get(platform.machine())
    what = ctypes.create_string_buffer(128)  # 0: run time
    descriptor = -1
    if number is not None:
        descriptor = ctypes.CDLL(None).syscall(number, BPF_ENABLE_STATS, what, len(what))
    try:
        yield
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _is_alive(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process runs, without reaping it: a zombie still has its CPU time."""
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    except ChildProcessError:
        return False
