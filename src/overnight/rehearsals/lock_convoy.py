"""Processes that write to one file: those that wait for its lock spin on the victim's core.

The kernel lets one process at a time write to a file. One, on the spare core, writes much in each call; the
others write a byte each, on the victim's core. While the lock's owner runs, a waiter spins instead of
sleeping. The file is an unnamed memfd, so nothing of it outlives the processes.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from overnight import rehearsals
from overnight.rehearsals import processes

if TYPE_CHECKING:
    from overnight.model.truth import Truth

BLOCK = bytes(64 << 10)
SHORTEST_SLEEP = 0.0003
BYTES_PER_ROUND = 64


class LockConvoy:
    name = "lock-convoy"
    about = "Processes that write to one file spin for its lock on the victim's core."
    needs = ("root", "kmsg", "netns")
    has_event = True

    def prepare(self, stage: rehearsals.Stage) -> None:
        chance = stage.chance
        word = chance.choice(("audit", "ledger", "trace", "journal", "access", "metric"))
        stage.facts["process"] = f"{word}-{chance.choice(('log', 'sink', 'append', 'writer'))}"
        stage.facts["waiters"] = chance.randrange(4, 7)
        # Share of the spare core's time: waiters spin only while another process holds the lock.
        stage.facts["held"] = round(chance.uniform(0.42, 0.47), 3)
        stage.facts["held_kib"] = chance.randrange(1024, 5120, 256)

    def strike(self, stage: rehearsals.Stage) -> None:
        module = "overnight.rehearsals.lock_convoy"
        processes.start_fault(stage, module, core=stage.spare, waiters_core=stage.core)

    def truth(self, stage: rehearsals.Stage) -> Truth:
        return rehearsals.starved_by_process(stage, "kernel.lock_contention")


def main() -> None:
    """Fork the waiters, then hold the lock for most of the time."""
    settings = processes.begin()
    file = os.memfd_create(settings["name"])

    def wait(number: int) -> None:
        os.sched_setaffinity(0, {settings["waiters_core"]})
        while True:
            for _ in range(BYTES_PER_ROUND):
                os.pwrite(file, b"\n", number)

    processes.fork(settings, wait, settings["waiters"])
    _hold(file, settings["held_kib"] << 10, settings["held"])


def _hold(file: int, size: int, share: float) -> None:
    """Write `size` bytes in each call, for `share` of a core's time."""
    blocks = [BLOCK] * (size // len(BLOCK))
    begin, used = time.monotonic(), time.thread_time()
    while True:
        os.pwritev(file, blocks, 0)
        rest = (time.thread_time() - used) / share - (time.monotonic() - begin)
        if rest > SHORTEST_SLEEP:
            time.sleep(rest)
        elif rest < -1.0:
            # After a stall of a second the missed time is dropped.
            begin, used = time.monotonic(), time.thread_time()


REHEARSALS = (LockConvoy(),)

if __name__ == "__main__":
    main()
