"""Stored bytes of a real recording at 97 Hz, with actors and without.

Actors are the table of processes, and a tree of stacks per program instead of per name of the kernel. Without them, a
segment is as before: each path also had a stored hash of 8 bytes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import sys
import tempfile
import threading
from collections.abc import Iterator

from benchmarks import Result
from benchmarks.support import load
from overnight.agent import profiler
from overnight.ingest import identities, perfdata
from overnight.store import capture, parquet, writer

__all__ = ["measure"]

SECONDS = 60.0
SCRIPTS = 12
HASH_BYTES = 8
SCRIPT = "import json, time\nuntil = time.process_time() + {}\nwhile time.process_time() < until:\n    json.loads(json.dumps(list(range(500))))\n"
COMPILE = "while :; do {compiler} -O1 -c load.cc -o load.o; for n in 1 2 3 4 5 6 7 8; do grep -c x load.cc; done; done"
TESTS = "while :; do for test in test_*.py; do {python} $test; done; done"


def measure() -> list[Result]:
    results = []
    loads = {
        "idle": [],
        "a compiler": [["sh", "-c", COMPILE.format(compiler="g++")]],
        "Python tests": [["sh", "-c", TESTS.format(python=sys.executable)]] * 2,
    }
    for name, commands in loads.items():
        with tempfile.TemporaryDirectory(prefix="overnight-bench-") as folder:
            home = pathlib.Path(folder)
            recorded = _record(home, commands)
            with_actors, _ = _store(home / "with", recorded)
            without, nodes = _store(home / "without", _without_actors(recorded))
        samples = len(recorded.time)
        value, before = with_actors / samples, (without + HASH_BYTES * nodes) / samples
        results.append(
            Result(
                f"stored with actors, {name}", value, "B/sample", f"<= {1.1 * before:.3g}",
                value <= 1.1 * before, "without, and stored hashes", before,
            )
        )  # fmt: skip
    return results


def _record(home: pathlib.Path, commands: list[list[str]]) -> capture.Capture:
    (home / "load.cc").write_text(load.C)
    for number in range(SCRIPTS):
        (home / f"test_{number}.py").write_text(SCRIPT.format(0.3 + 0.2 * number))
    spool = home / "spool"
    spool.mkdir()
    registry = identities.Registry()
    with load.running(commands, home), _refreshed(registry):
        recording = profiler.run(
            profiler.ProfilerOptions(
                spool, recorder="native", seconds=SECONDS, segment_seconds=2 * SECONDS
            ),
            threading.Event(),
        )
        symbols = perfdata.live_symbols(registry=registry)
        return perfdata.read(recording.segments[0], symbols)


@contextlib.contextmanager
def _refreshed(registry: identities.Registry) -> Iterator[None]:
    """Read new processes every few seconds, as the recorder does."""
    stop = threading.Event()

    def refresh() -> None:
        while not stop.wait(identities.REFRESH_SECONDS):
            registry.refresh()

    thread = threading.Thread(target=refresh)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _without_actors(recorded: capture.Capture) -> capture.Capture:
    assert recorded.processes is not None
    assert recorded.tasks.row is not None
    comm, tasks = recorded.processes.comm, recorded.tasks
    names = [
        comm[row] if row >= 0 else name
        for row, name in zip(tasks.row.tolist(), tasks.process, strict=True)
    ]
    plain = dataclasses.replace(tasks, process=names, row=None, launcher=[])
    return dataclasses.replace(recorded, tasks=plain, processes=None, spawns=None)


def _store(home: pathlib.Path, recorded: capture.Capture) -> tuple[int, int]:
    """Return the bytes of the segment and the nodes of its tree."""
    (segment,) = writer.write_capture(home, recorded, segment_seconds=86400)
    size = sum(path.stat().st_size for path in segment.path.iterdir())
    return size, len(parquet.read(segment.path / "nodes.parquet", ("up",))["up"])
