"""A constant resident set that is written to at a constant rate."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

from overnight import errors, load
from overnight.load import controller
from overnight.model import meminfo, sizes

if TYPE_CHECKING:
    from overnight.load import worker
    from overnight.undo import journal

SIZE = 256 << 20
RATE = 64e6
PERIOD = 0.01
BLOCK = 1 << 16
INTERPRETER = 32 << 20  # at most this much beside the resident set, per worker


class Memory:
    """Anonymous memory, faulted in once, then written block by block in a ring."""

    name = "memory"
    about = "a constant resident set (--size, all cores together), written at a constant rate"
    takes = ("size", "rate")

    def metrics(self, options: load.Options) -> tuple[load.Metric, ...]:
        rate = RATE if options.rate is None else options.rate
        return (
            load.Metric("resident", "B", "resident"),
            load.Metric("written", "B/s", "0", target=rate),
            load.Metric("cpu", "cores", "cpu", gated=False),
        )

    def prepare(self, options: load.Options, journal: journal.Journal) -> tuple[load.Job, ...]:  # noqa: ARG002 - changes nothing
        """One process per core, each with its part of size and rate."""
        size = SIZE if options.size is None else options.size
        rate = RATE if options.rate is None else options.rate
        parts = len(options.cores)
        each = size // parts // BLOCK * BLOCK
        if each < BLOCK or rate <= 0:
            raise errors.UsageError(
                f"--size {sizes.format_size(size)} at --rate {sizes.format_size(rate)}/s is too small for {parts} cores",
                why=f"each core needs at least {sizes.format_size(BLOCK)} and a rate above 0",
                todo="write them like --size 256MiB --rate 64MB",
            )
        _check_room(size)
        name = options.name or "load-memory"
        return tuple(
            load.Job(f"{name}-{core}", (core,), {"size": each, "rate": rate / parts})
            for core in options.cores
        )

    def work(self, link: worker.Link) -> None:
        size, rate = int(link.settings["size"]), float(link.settings["rate"])
        held = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        block = bytes(range(256)) * (BLOCK // 256)
        for at in range(0, size, BLOCK):
            held[at : at + BLOCK] = block
        link.ready()
        written = at = 0
        for due in controller.amounts_due(rate, PERIOD):
            while written + BLOCK <= due:
                held[at : at + BLOCK] = block
                at = (at + BLOCK) % size
                written += BLOCK
            link.count(0, written)


def _check_room(size: int) -> None:
    """Allow at most half of the available memory: a load that makes the host reclaim is another test."""
    free = meminfo.read_available()
    if size + INTERPRETER > free / 2:
        raise errors.CannotError(
            f"--size {sizes.format_size(size)} is too large for this host",
            why=f"{sizes.format_size(free)} of memory is available, and a load may use half of it",
            todo=f"use at most --size {int(free / 2 - INTERPRETER) >> 20}MiB",
        )


WORKLOAD = Memory()
