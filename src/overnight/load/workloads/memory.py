"""A constant resident set that is written to at a constant rate."""

from __future__ import annotations

import mmap
import time
from typing import TYPE_CHECKING

from overnight import errors, load
from overnight.model import sizes

if TYPE_CHECKING:
    from overnight.load import worker
    from overnight.undo import journal

__all__ = ["WORKLOAD"]

SIZE = 256 << 20
RATE = 64e6
PERIOD = 0.01
BLOCK = 1 << 16
INTERPRETER = (
    32 << 20
)  # what a worker holds besides, at most; the check on the target allows for it


class Memory:
    """Anonymous memory, faulted in once, then written block by block, round and round."""

    name = "memory"
    about = "a constant resident set (--size, of all cores together), written to at a constant rate"
    takes = ("size", "rate")

    def metrics(self, options: load.Options) -> tuple[load.Metric, ...]:
        """What is held, and what is written."""
        rate = RATE if options.rate is None else options.rate
        return (
            load.Metric("resident", "B", "resident"),
            load.Metric("written", "B/s", "0", target=rate),
            load.Metric("cpu", "cores", "cpu", gated=False),
        )

    def prepare(self, options: load.Options, book: journal.Journal) -> tuple[load.Job, ...]:  # noqa: ARG002 - changes nothing
        """One process a core, each with its part of both."""
        size = SIZE if options.size is None else options.size
        rate = RATE if options.rate is None else options.rate
        parts = len(options.cores)
        each = size // parts // BLOCK * BLOCK
        if each < BLOCK or rate <= 0:
            raise errors.UsageError(
                f"{sizes.format_size(size)} at {sizes.format_size(rate)}/s is no load on {parts} cores",
                why=f"each core needs at least {sizes.format_size(BLOCK)}, and something is written",
                todo="write them like --size 256MiB --rate 64MB",
            )
        _check_room(size)
        name = options.name or "load-memory"
        return tuple(
            load.Job(f"{name}-{core}", (core,), {"size": each, "rate": rate / parts})
            for core in options.cores
        )

    def work(self, link: worker.Link) -> None:
        """For ever; what is due follows the clock, so lateness is made up for within a period."""
        size, rate = int(link.told["size"]), float(link.told["rate"])
        held = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        block = bytes(range(256)) * (BLOCK // 256)
        for at in range(0, size, BLOCK):
            held[at : at + BLOCK] = block
        link.ready()
        written, at, begin = 0, 0, time.monotonic()
        while True:
            due = (time.monotonic() - begin) * rate
            if due - written > rate:  # a stall of a second: what it missed is not made up for
                begin += (due - written) / rate
                continue
            while written + BLOCK <= due:
                held[at : at + BLOCK] = block
                at = (at + BLOCK) % size
                written += BLOCK
            link.count(0, written)
            time.sleep(PERIOD)


def _check_room(size: int) -> None:
    """Half of what is free may be taken: a load that makes the host reclaim is another test."""
    with open("/proc/meminfo") as file:  # noqa: PTH123 - no path of a host's root
        free = next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable"))
    if size + INTERPRETER > free / 2:
        raise errors.CannotError(
            f"{sizes.format_size(size)} are too much for this host",
            why=f"{sizes.format_size(free)} are available, and half of that may be taken",
            todo=f"ask for less: --size {int(free / 2 - INTERPRETER) >> 20}MiB",
        )


WORKLOAD = Memory()
