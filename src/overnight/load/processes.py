"""The worker processes of a load: start, read and end them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import mmap
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from overnight import errors
from overnight.load import worker
from overnight.model import process_identity

if TYPE_CHECKING:
    from overnight import load
    from overnight.undo import journal

READY_SECONDS = 90.0  # Ray takes about 15 s on a busy host
END_SECONDS = 3.0
MAX_WORDS = 400


@dataclasses.dataclass(frozen=True)
class Trial:
    seconds: float
    loss: float


class Workers:
    """All processes of one load. They die with the thread that created this object."""

    def __init__(self, module: str, jobs: tuple[load.Job, ...], journal: journal.Journal) -> None:
        self.jobs = jobs
        self.trials: list[Trial] = []
        self.host_reports: list[dict[str, Any]] = []  # of the driver of a cluster
        self._failed: dict[int, str] = {}
        self._partial = [b""] * len(jobs)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._errors: list[Any] = []
        size = max(worker.SLOT_BYTES * len(jobs), mmap.PAGESIZE)
        slot = os.memfd_create("overnight-load")
        try:
            os.ftruncate(slot, size)
            self._memory = mmap.mmap(slot, size)
            self._numbers = memoryview(self._memory).cast("d")
            for rank, job in enumerate(jobs):
                self._start(module, rank, job, slot, journal)
        except BaseException:
            self.end()
            raise
        finally:
            os.close(slot)
            for number in {number for job in jobs for number in job.files}:
                os.close(number)

    def _start(
        self, module: str, rank: int, job: load.Job, slot: int, journal: journal.Journal
    ) -> None:
        order = {"parent": os.getpid(), "module": module, "rank": rank, "slot": slot}
        order |= dataclasses.asdict(dataclasses.replace(job, wanted=None))
        stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the processes
        self._errors.append(stderr)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", worker.__name__, json.dumps(order)],
            env={**journal.environment(), **job.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            pass_fds=(slot, *job.files),
        )
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._processes.append(process)

    def all_pids(self) -> Iterator[tuple[int, int]]:
        """Yield job number and process of running workers, and of the descendants of those with `Job.tree`."""
        for rank, (job, process) in enumerate(zip(self.jobs, self._processes, strict=True)):
            if process.poll() is None:
                yield rank, process.pid
                if job.tree:
                    yield from ((rank, pid) for pid in _descendants(process.pid))

    def counter(self, number: int) -> float:
        """Sum one counter over all workers."""
        rows = range(len(self.jobs))
        return sum(self._numbers[row * (worker.COUNTERS + 1) + 1 + number] for row in rows)

    def wait_ready(
        self, stop: Any, why: str = "the host is busy, or the workload's imports are slow"
    ) -> None:
        """Wait until every worker is ready; raises CannotError if one fails."""
        deadline = time.monotonic() + READY_SECONDS
        while not stop.is_set():
            self.read_reports()
            if dead := self.deaths():
                raise errors.CannotError(
                    f"the load did not start: {dead[0]}",
                    why="a worker ended before it was ready",
                    todo="fix what it reports, or use fewer --cores or a smaller --size",
                )
            rows = range(len(self.jobs))
            if all(self._numbers[row * (worker.COUNTERS + 1)] == worker.READY for row in rows):
                return
            if time.monotonic() > deadline:
                raise errors.CannotError(
                    f"the load was not ready in {READY_SECONDS:.0f} s",
                    why=why,
                    todo="retry when it is less busy",
                )
            stop.wait(0.02)

    def read_reports(self) -> None:
        for rank, process in enumerate(self._processes):
            assert process.stdout is not None
            text = self._partial[rank] + (process.stdout.read() or b"")  # never blocks
            *lines, self._partial[rank] = text.split(b"\n")
            for line in lines:
                self._parse_report(rank, line)

    def _parse_report(self, rank: int, line: bytes) -> None:
        # A program that replaced a worker may print, too.
        with contextlib.suppress(ValueError, KeyError, TypeError):
            report = json.loads(line)
            if "failed" in report:
                self._failed[rank] = str(report["failed"])
            elif "host" in report:
                self.host_reports.append(report)
            else:
                self.trials.append(Trial(float(report["seconds"]), float(report["loss"])))

    def is_done(self) -> bool:
        return all(process.poll() is not None for process in self._processes)

    def deaths(self) -> tuple[str, ...]:
        """Describe the workers that failed."""
        return tuple(
            f"{job.name} ended with {process.returncode}: {self._failure(rank)}"
            for rank, (job, process) in enumerate(zip(self.jobs, self._processes, strict=False))
            if process.poll() not in (None, 0)
        )

    def _failure(self, rank: int) -> str:
        if rank in self._failed:
            return self._failed[rank]
        file = self._errors[rank]
        file.seek(0)
        lines = file.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:MAX_WORDS] if lines else "no error message"

    def end(self) -> None:
        """End all workers, and the descendants of those with `Job.tree`."""
        descendants = {
            pid: process_identity.read_start(pid)
            for job, process in zip(self.jobs, self._processes, strict=False)
            if job.tree and process.poll() is None
            for pid in _descendants(process.pid)
        }
        for process in self._processes:
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + END_SECONDS
        for process in self._processes:
            try:
                process.wait(max(deadline - time.monotonic(), 0.01))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for pid, began in descendants.items():
            process_identity.send_signal(pid, began)
        self.read_reports()
        for process in self._processes:
            assert process.stdout is not None
            process.stdout.close()
        for file in self._errors:
            file.close()


def _descendants(pid: int) -> Iterator[int]:
    with contextlib.suppress(OSError, ValueError):
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield int(child)
                yield from _descendants(int(child))
