"""One process of a load: `python -m overnight.load.worker`, pinned, named, and never left alone.

It dies with the process that started it (PR_SET_PDEATHSIG), carries the ledger's mark, and counts what it
does in memory that its parent reads: a counter costs nothing and a kill loses nothing.
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
from typing import Any, NoReturn

__all__ = ["COUNTERS", "READY", "SLOT_BYTES", "Link", "main"]

PR_SET_PDEATHSIG = 1
CLONE_NEWNET = 0x40000000
# A slot is a row of numbers of 8 bytes, each written at once: whether it is ready, then what it counts.
COUNTERS = 7
SLOT_BYTES = 8 * (COUNTERS + 1)
READY = 1.0
FAILED = 3  # the exit code of a worker that says why on its last line


class Link:
    """What a worker is told, and how it tells."""

    def __init__(self, told: dict[str, Any], slot: int, rank: int) -> None:
        self.told = told
        self.rank = rank
        self._memory = mmap.mmap(slot, 0)
        self._numbers = memoryview(self._memory).cast("d")
        self._at = rank * (COUNTERS + 1)

    def ready(self) -> None:
        """All is set up: from now on the footprint is to be constant."""
        self._numbers[self._at] = READY

    def count(self, counter: int, value: float) -> None:
        """What counter number so-and-so has come to."""
        self._numbers[self._at + 1 + counter] = value

    def say(self, line: dict[str, object]) -> None:
        """One line to the parent, such as a trial's result: seldom."""
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


def main() -> None:
    """Bound, named and pinned before anything else is imported, for threads inherit it."""
    order = json.loads(sys.argv[1])
    _bind(order["parent"])
    # Ctrl-C is for the parent, which ends its workers in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.sched_setaffinity(0, order["cores"])
    if order["netns"]:
        _enter(order["netns"])
    pathlib.Path("/proc/self/comm").write_text(order["name"][:15])
    if order["wait"]:
        time.sleep(order["wait"])
    if order["command"]:
        _become(order)
    link = Link(order["told"], order["slot"], order["rank"])
    workload = importlib.import_module(f"overnight.load.workloads.{order['module']}").WORKLOAD
    try:
        workload.work(link)
    except (OSError, MemoryError, ImportError) as error:
        link.say({"failed": f"{type(error).__name__}: {error}"})
        raise SystemExit(FAILED) from None


def _bind(parent: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        raise SystemExit(FAILED)


def _enter(path: str) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(handle, CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    os.close(handle)


def _become(order: dict[str, Any]) -> NoReturn:
    """The program in this process: its death signal and its cores stay."""
    Link({}, order["slot"], order["rank"]).ready()
    command = order["command"]
    os.execvp(command[0], command)  # noqa: S606 - a fixed list, from our parent


if __name__ == "__main__":
    main()
