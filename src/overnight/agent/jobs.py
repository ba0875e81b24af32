"""Child processes of the agent, each with a time limit and a log."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Mapping

from overnight.model import files

GRACE_SECONDS = 10.0  # usual, between SIGTERM and SIGKILL
OUTPUT_BYTES, LOG_BYTES = 64 << 10, 8 << 20


@dataclasses.dataclass
class Job:
    """A child process; `on_end` gets whether it succeeded, and what it printed."""

    name: str
    process: subprocess.Popen[bytes]
    log: pathlib.Path
    deadline: float
    on_end: Callable[[bool, str], None]
    grace: float = GRACE_SECONDS
    ended_by: str = ""
    kill_at: float = 0.0
    is_over: bool = False


class Jobs:
    """Call `check` every now and then."""

    def __init__(self) -> None:
        self.running: dict[str, Job] = {}

    def check(self) -> None:
        for job in list(self.running.values()):
            with contextlib.suppress(OSError):  # a full disk: `on_end` is called again
                self._check(job, time.monotonic())

    def close(self) -> None:
        """End all processes; `on_end` of each is called."""
        for job in self.running.values():
            job.ended_by = job.ended_by or "the agent was stopped"
        graces = [job.grace for job in self.running.values()]
        deadline = time.monotonic() + 2 * max(graces, default=0.0)
        while self.running and time.monotonic() < deadline:
            self.check()
            time.sleep(0.05)

    def start(
        self,
        name: str,
        argv: tuple[str, ...],
        seconds: float,
        log: pathlib.Path,
        on_end: Callable[[bool, str], None],
        env: Mapping[str, str] | None = None,
        grace: float = GRACE_SECONDS,
    ) -> subprocess.Popen[bytes]:
        descriptor = files.open_private(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=descriptor,
                stderr=subprocess.STDOUT,
                cwd="/",
                env=env,
                start_new_session=True,
            )
        finally:
            os.close(descriptor)
        if env is not None:  # a command of the administrator, which writes to its log only
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (LOG_BYTES, LOG_BYTES))
        self.running[name] = Job(name, process, log, time.monotonic() + seconds, on_end, grace)
        return process

    def _check(self, job: Job, now: float) -> None:
        code = job.process.poll()
        if code is None:
            if now > job.deadline and not job.ended_by:
                job.ended_by = "it exceeded its time limit"
            if job.ended_by and not job.kill_at:
                job.kill_at = now + job.grace
                signal_group(job.process.pid, signal.SIGTERM)
            elif job.kill_at and now > job.kill_at:
                signal_group(job.process.pid, signal.SIGKILL)
            return
        if not job.is_over:
            signal_group(job.process.pid, signal.SIGKILL)  # what it started and left
            job.is_over = True
        output, reason = _read_end(job.log), job.ended_by
        if code and not reason:
            reason = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        if reason:
            output = ": ".join(filter(None, (reason, output.strip())))
        job.on_end(not reason, output)
        del self.running[job.name]


def signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _read_end(path: pathlib.Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - OUTPUT_BYTES))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
