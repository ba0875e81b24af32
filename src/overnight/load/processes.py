"""The processes of a load: started, read and ended."""

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

if TYPE_CHECKING:
    from overnight import load
    from overnight.undo import journal

__all__ = ["Trial", "Workers"]

READY_SECONDS = 90.0  # Ray takes some 15 on a busy host
END_SECONDS = 3.0
MOST_WORDS = 400


@dataclasses.dataclass(frozen=True)
class Trial:
    """What a worker said of a trial that is done."""

    seconds: float
    loss: float


class Workers:
    """All processes of one load. The thread that makes them must live as long: they die with it."""

    def __init__(self, module: str, jobs: tuple[load.Job, ...], book: journal.Journal) -> None:
        self.jobs = jobs
        self.trials: list[Trial] = []
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
                self._start(module, rank, job, slot, book)
        except BaseException:
            self.end()
            raise
        finally:
            os.close(slot)
            for number in {number for job in jobs for number in job.files}:
                os.close(number)

    def _start(
        self, module: str, rank: int, job: load.Job, slot: int, book: journal.Journal
    ) -> None:
        order = {
            "parent": os.getpid(),
            "module": module,
            "rank": rank,
            "slot": slot,
            "name": job.name,
            "cores": list(job.cores),
            "netns": job.netns,
            "wait": job.wait,
            "command": list(job.command),
            "told": dict(job.told),
        }
        complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the processes
        self._errors.append(complaints)
        started = subprocess.Popen(
            [sys.executable, "-P", "-m", worker.__name__, json.dumps(order)],
            env={**book.environment(), **job.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=complaints,
            pass_fds=(slot, *job.files),
        )
        assert started.stdout is not None
        os.set_blocking(started.stdout.fileno(), False)
        self._processes.append(started)

    @property
    def pids(self) -> tuple[int, ...]:
        """Of the workers themselves."""
        return tuple(one.pid for one in self._processes)

    def all_pids(self) -> Iterator[int]:
        """Those that run, and the children of those whose children count."""
        for job, one in zip(self.jobs, self._processes, strict=True):
            if one.poll() is None:
                yield one.pid
                if job.tree:
                    yield from _below(one.pid)

    def counter(self, number: int) -> float:
        """A counter of all workers together."""
        rows = range(len(self.jobs))
        return sum(self._numbers[row * (worker.COUNTERS + 1) + 1 + number] for row in rows)

    def wait_ready(self, stop: Any) -> None:
        """Returns when every worker is set up; raises CannotError when one cannot."""
        deadline = time.monotonic() + READY_SECONDS
        while not stop.is_set():
            self.listen()
            if dead := self.deaths():
                raise errors.CannotError(
                    f"the load did not start: {dead[0]}",
                    why="a worker ended before it was ready",
                    todo="see what it says; fewer --cores, or less --size, need less of the host",
                )
            rows = range(len(self.jobs))
            if all(self._numbers[row * (worker.COUNTERS + 1)] == worker.READY for row in rows):
                return
            if time.monotonic() > deadline:
                raise errors.CannotError(
                    f"the load was not ready in {READY_SECONDS:.0f} s",
                    why="the host is busy, or what the workload imports is slow",
                    todo="try again when the host is quiet",
                )
            stop.wait(0.02)

    def listen(self) -> None:
        """Take in what the workers said."""
        for rank, one in enumerate(self._processes):
            assert one.stdout is not None
            while data := _read(one.stdout.fileno()):
                self._partial[rank] += data
            *lines, self._partial[rank] = self._partial[rank].split(b"\n")
            for line in lines:
                self._hear(rank, line)

    def _hear(self, rank: int, line: bytes) -> None:
        # Other programs in a worker's place may print, too.
        with contextlib.suppress(ValueError, KeyError, TypeError):
            said = json.loads(line)
            if "failed" in said:
                self._failed[rank] = str(said["failed"])
            else:
                self.trials.append(Trial(float(said["seconds"]), float(said["loss"])))

    def is_done(self) -> bool:
        """Whether all have ended."""
        return all(one.poll() is not None for one in self._processes)

    def deaths(self) -> tuple[str, ...]:
        """Those that ended before their work was done, in words."""
        found = []
        for rank, one in enumerate(self._processes):
            if one.poll() not in (None, 0):
                found.append(
                    f"{self.jobs[rank].name} ended with {one.returncode}: {self._why(rank)}"
                )
        return tuple(found)

    def _why(self, rank: int) -> str:
        if rank in self._failed:
            return self._failed[rank]
        file = self._errors[rank]
        file.seek(0)
        lines = file.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:MOST_WORDS] if lines else "it did not say why"

    def end(self) -> None:
        """All of them, and the children of those whose children count; none is left."""
        below = {
            pid: _started(pid)
            for job, one in zip(self.jobs, self._processes, strict=False)
            if job.tree and one.poll() is None
            for pid in _below(one.pid)
        }
        for one in self._processes:
            if one.poll() is None:
                one.terminate()
        deadline = time.monotonic() + END_SECONDS
        for one in self._processes:
            try:
                one.wait(max(deadline - time.monotonic(), 0.01))
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()
        for pid, began in below.items():
            if began and _started(pid) == began:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)
        self.listen()
        for one in self._processes:
            assert one.stdout is not None
            one.stdout.close()
        for file in self._errors:
            file.close()


def _read(file: int) -> bytes:
    try:
        return os.read(file, 1 << 16)
    except BlockingIOError:
        return b""


def _below(pid: int) -> Iterator[int]:
    """Children, and theirs."""
    with contextlib.suppress(OSError, ValueError):
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield int(child)
                yield from _below(int(child))


def _started(pid: int) -> str:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
