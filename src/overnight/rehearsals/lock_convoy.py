"""Processes of one name that all write to one file: who waits for its lock burns the victim's core.

The kernel lets one process at a time write to a file. One of them, on the spare core, writes much in
each call; the others write a byte each, on the victim's core. While the lock's owner runs, a waiter does
not sleep but spins. The file is in memory and has no name: nothing of it outlives the processes.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from overnight import rehearsals
from overnight.rehearsals import crowd, processes

if TYPE_CHECKING:
    from overnight.model.truth import Truth

__all__ = ["REHEARSALS", "LockConvoy", "main"]

BLOCK = bytes(64 << 10)
SHORTEST_SLEEP = 0.0003
BYTES_BETWEEN_LOOKS = 64


class LockConvoy:
    """A `Rehearsal`."""

    name = "lock-convoy"
    about = "Processes that write to one file spin for its lock on the victim's core."
    needs = ("root", "kmsg", "netns")
    has_event = True

    def prepare(self, stage: rehearsals.Stage) -> None:
        """Draw names and rates."""
        chance = stage.chance
        word = chance.choice(("audit", "ledger", "trace", "journal", "access", "metric"))
        stage.facts["process"] = f"{word}-{chance.choice(('log', 'sink', 'append', 'writer'))}"
        stage.facts["waiters"] = chance.randrange(4, 7)
        # Of the spare core's time: the waiters can spin no longer than somebody else has the lock.
        stage.facts["held"] = round(chance.uniform(0.42, 0.47), 3)
        stage.facts["held_kib"] = chance.randrange(1024, 5120, 256)

    def strike(self, stage: rehearsals.Stage) -> None:
        """One holds, the others wait."""
        facts = stage.facts
        holder = processes.start(
            stage,
            "overnight.rehearsals.lock_convoy",
            name=str(facts["process"]),
            core=stage.spare,
            seconds=180,
            waiters_core=stage.core,
            waiters=facts["waiters"],
            held=facts["held"],
            held_kib=facts["held_kib"],
        )
        processes.ends_with_fault(stage, holder)

    def truth(self, stage: rehearsals.Stage) -> Truth:
        """The lock, the full core, the reset."""
        process = str(stage.facts["process"])
        return rehearsals.starved(
            stage, ("kernel.lock_contention", {"core": stage.core, "process": process})
        )


def main() -> None:
    """The process that holds the lock most, and becomes the waiters, too."""
    told = processes.begin()
    file = os.memfd_create(told["name"])

    def wait(number: int) -> None:
        os.sched_setaffinity(0, {told["waiters_core"]})
        while True:
            for _ in range(BYTES_BETWEEN_LOOKS):
                os.pwrite(file, b"\n", number)

    crowd.fork(told, wait, told["waiters"])
    _hold(file, told["held_kib"] << 10, told["held"])


def _hold(file: int, size: int, share: float) -> None:
    """Write so much in each call, for that share of a core's time."""
    blocks = [BLOCK] * (size // len(BLOCK))
    begin, used = time.monotonic(), time.thread_time()
    while True:
        os.pwritev(file, blocks, 0)
        rest = (time.thread_time() - used) / share - (time.monotonic() - begin)
        if rest > SHORTEST_SLEEP:
            time.sleep(rest)
        elif rest < -1.0:
            # Kept from it for a second: that is not made up for.
            begin, used = time.monotonic(), time.thread_time()


REHEARSALS = (LockConvoy(),)

if __name__ == "__main__":
    main()
