"""Real load on real cores, and segments as perf reads them."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import noise
import perfsamples
import pytest

from overnight.agent import profiler
from overnight.sources import cpu, perf
from overnight.sources.perf import native_recorder, perf_recorder

LOAD = """
import ctypes, os, sys, time
core, duty, name = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
ctypes.CDLL(None).prctl(15, name.encode())
os.sched_setaffinity(0, {core})
def known_work(until):
    while time.perf_counter() < until:
        pass
while True:
    begin = time.perf_counter()
    known_work(begin + 0.05 * duty)
    if duty < 1:
        time.sleep(0.05 * (1 - duty))
"""

AGENT = """
import json, pathlib, sys, threading
from overnight.agent import profiler
options = json.loads(sys.argv[1])
options["spool"] = pathlib.Path(options["spool"])
profiler.TICK_SECONDS = 0.2  # the tests wait for a status most of the time
profiler.run(profiler.ProfilerOptions(**options), threading.Event())
"""


def eventually(condition: Callable[[], object], seconds: float = noise.HANG_SECONDS) -> None:
    """Wait until the condition holds; on a busy machine that may take a while."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s"
        time.sleep(0.02)


@pytest.fixture
def wait_for() -> Callable[..., None]:
    return eventually


@contextlib.contextmanager
def _busy(core: int, duty: float, name: str) -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", LOAD, str(core), str(duty), name]) as child:
        try:
            comm = pathlib.Path(f"/proc/{child.pid}/comm")
            eventually(lambda: comm.read_text().strip() == name)
            yield child.pid
        finally:
            child.kill()


@pytest.fixture
def busy() -> Callable[[int, float, str], contextlib.AbstractContextManager[int]]:
    """Run a pinned process of that name, busy for that share of the time, during the block."""
    return _busy


@pytest.fixture
def make() -> Callable[..., perf.Recorder]:
    """A recorder of a kind."""

    def build(kind: str, frequency: int) -> perf.Recorder:
        kinds = {
            "native": native_recorder.NativeRecorder,
            "perf": perf_recorder.PerfRecorder,
        }
        return kinds[kind](perf.read_identity(), frequency=frequency, online=cpu.online)

    return build


Sample = collections.namedtuple("Sample", "comm pid cpu time leaf file")


def _script(path: pathlib.Path) -> list[Sample]:
    done = subprocess.run(
        ["perf", "script", "--no-inline", "-i", str(path), "-F", "comm,pid,cpu,time,ip,sym,dso"],
        capture_output=True,
        text=True,
        check=False,
        errors="replace",
    )
    assert done.returncode == 0, done.stderr
    samples = []
    for block in done.stdout.split("\n\n"):
        lines = [line for line in block.splitlines() if line.strip()]
        if not lines:
            continue
        comm, pid, core, when = lines[0].rsplit(None, 3)
        frame = lines[1].split(None, 1)[1].strip() if len(lines) > 1 else " ()"
        leaf, _, file = frame[:-1].rpartition(" (")
        samples.append(
            Sample(comm.strip(), int(pid), int(core[1:-1]), float(when[:-1]), leaf, file)
        )
    return samples


@pytest.fixture
def script() -> Callable[[pathlib.Path], list[Sample]]:
    """Return the samples that `perf script` reads in a segment."""
    return _script


def _readable(path: pathlib.Path) -> bool:
    done = subprocess.run(
        # Without the name: one of a process beside this test may have a line break.
        ["perf", "script", "-G", "-F", "time", "-i", str(path)],
        capture_output=True,
        check=False,
    )
    found, stored = done.stdout.count(b"\n"), len(perfsamples.read_samples(path))
    if done.returncode == 0 and found == stored:
        return True
    sys.stderr.write(f"{path}: {found} of {stored} samples: {done.returncode}, {done.stderr!r}\n")
    return False


@pytest.fixture
def readable() -> Callable[[pathlib.Path], bool]:
    """Return whether `perf script` finds the same number of samples in a segment."""
    return _readable


class Agent:
    """The recording loop in a process of its own."""

    def __init__(self, folder: pathlib.Path, **options: object) -> None:
        self.folder = folder
        settings = {"spool": str(folder), "floor_bytes": 0, "segment_seconds": 0.6, **options}
        self.process = subprocess.Popen(
            [sys.executable, "-c", AGENT, json.dumps(settings)], stderr=subprocess.PIPE
        )

    @property
    def status(self) -> dict[str, object]:
        with contextlib.suppress(OSError, ValueError):
            status = json.loads((self.folder / profiler.STATUS).read_text())
            if status["pid"] == self.process.pid:
                return dict(status)
        return {}

    def until(
        self, condition: Callable[[dict[str, object]], object], seconds: float = noise.HANG_SECONDS
    ) -> None:
        """Wait for a status."""

        def holds() -> object:
            assert self.process.poll() is None, (self.process.stderr or sys.stderr).read()
            return self.status and condition(self.status)

        eventually(holds, seconds)

    def perfs(self) -> list[int]:
        """Return the perf processes that write into the spool, whatever their parent."""
        pids = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = path.read_bytes().split(b"\0")
                if b"record" in words and any(os.fsencode(self.folder) in w for w in words):
                    pids.append(int(path.parent.name))
        return pids

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        self.process.communicate(timeout=noise.HANG_SECONDS)
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.end(signal.SIGKILL)
        if self.process.stderr:
            self.process.stderr.close()


@pytest.fixture
def agent() -> Iterator[Callable[..., Agent]]:
    """Start agents, and end those that are still running after the test."""
    started: list[Agent] = []

    def start(folder: pathlib.Path, **options: object) -> Agent:
        started.append(Agent(folder, **options))
        return started[-1]

    yield start
    for running in started:
        running.close()
