"""One process of a load (`python -m overnight.load.worker`), pinned and named.

It dies with its parent (PR_SET_PDEATHSIG), carries the undo journal's mark, and counts its work in memory
shared with the parent: a counter costs nothing, and a kill loses nothing.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import mmap
import os
import pathlib
import signal
import sys
import time
from typing import Any

from overnight.machines import network

PR_SET_PDEATHSIG = 1
# A slot is a row of 8-byte numbers, each written in one store: the ready flag, then the counters.
COUNTERS = 7
SLOT_BYTES = 8 * (COUNTERS + 1)
READY = 1.0
FAILED = 3  # exit code of a worker that reports the reason on its last line


class Link:
    """A worker's settings, and its channel to the parent."""

    def __init__(self, settings: dict[str, Any], slot: int, rank: int) -> None:
        self.settings = settings
        self.rank = rank
        self._memory = mmap.mmap(slot, 0)
        self._numbers = memoryview(self._memory).cast("d")
        self._at = rank * (COUNTERS + 1)

    def ready(self) -> None:
        """Report that setup is complete: from now on the footprint is constant."""
        self._numbers[self._at] = READY

    def count(self, counter: int, value: float) -> None:
        """Set a counter to its new total."""
        self._numbers[self._at + 1 + counter] = value

    def report(self, line: dict[str, object]) -> None:
        """Send one line to the parent, such as a trial's result. Slow: use it rarely."""
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


def main() -> None:
    """Bind, name and pin the process before anything else is imported: threads inherit it."""
    order = json.loads(sys.argv[1])
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != order["parent"]:  # the parent died before prctl
        raise SystemExit(FAILED)
    # The parent handles Ctrl-C and ends its workers in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.sched_setaffinity(0, order["cores"])
    if order["netns"]:
        network.enter(order["netns"])
    pathlib.Path("/proc/self/comm").write_text(order["name"][:15])
    if order["wait"]:
        time.sleep(order["wait"])
    link = Link(order["settings"], order["slot"], order["rank"])
    if command := order["command"]:
        # The program replaces this process; the death signal and the cores stay.
        link.ready()
        os.execvp(command[0], command)  # noqa: S606 - a fixed list, from the parent
    workload = importlib.import_module(f"overnight.load.workloads.{order['module']}").WORKLOAD
    try:
        workload.work(link)
    except (OSError, MemoryError, ImportError) as error:
        link.report({"failed": f"{type(error).__name__}: {error}"})
        raise SystemExit(FAILED) from None


if __name__ == "__main__":
    main()
