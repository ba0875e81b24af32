"""Many processes that sleep, and many that live for a moment, at the lowest priority.

`python -m benchmarks.support.crowd PROCESSES FORKS` starts them and ends with its parent, after three minutes at most.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import signal
import sys
import time
from collections.abc import Iterator

from benchmarks.support import load

__all__ = ["count_forks", "count_processes", "running"]

SECONDS = 180
TURNS = 50  # a second


def count_processes() -> int:
    return sum(path.name.isdigit() for path in pathlib.Path("/proc").iterdir())


def count_forks() -> int:
    """Return the forks of this host since boot, threads included."""
    lines = pathlib.Path("/proc/stat").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("processes "))


@contextlib.contextmanager
def running(processes: int, forks: int) -> Iterator[None]:
    """Run `processes` that sleep and start `forks` a second, during the block."""
    enough = count_processes() + processes
    command = [sys.executable, "-m", "benchmarks.support.crowd", str(processes), str(forks)]
    with load.running([command], pathlib.Path.cwd()):
        until = time.monotonic() + SECONDS / 3
        while count_processes() < enough:
            if time.monotonic() > until:
                raise RuntimeError(f"only {count_processes()} of {enough} processes were started")
            time.sleep(0.2)
        yield


def main(processes: int, forks: int) -> None:
    os.nice(19)
    parent = os.getppid()
    sleep, true = (shutil.which(name) or name for name in ("sleep", "true"))
    try:
        for _ in range(processes):
            os.posix_spawn(sleep, ["sleep", str(SECONDS)], os.environ)
        began = time.monotonic()
        for turn in range(1, SECONDS * TURNS):
            if os.getppid() != parent:
                break
            for _ in range(forks // TURNS):
                os.waitpid(os.posix_spawn(true, ["true"], os.environ), 0)
            time.sleep(max(0.0, began + turn / TURNS - time.monotonic()))
    finally:
        os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
