"""The ring buffer of a perf event: what the kernel wrote since the last look, without a copy.

The first page holds `data_head`, which the kernel moves on, and `data_tail`, which we do; the
records between the two are ours to read (include/uapi/linux/perf_event.h, perf_event_mmap_page).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import platform
import struct
from collections.abc import Iterable, Iterator

from overnight import errors
from overnight.sources.perf import events

__all__ = ["Ring", "barrier", "drained", "fence"]

PAGE = mmap.PAGESIZE
HEAD_AT, TAIL_AT = 1024 // 8, 1032 // 8

# linux/membarrier.h; the number of the system call in each architecture's table.
MEMBARRIER_GLOBAL_EXPEDITED = 1 << 1
MEMBARRIER = {
    "x86_64": 324,
    "aarch64": 283,
    "riscv64": 283,
    "loongarch64": 283,
    "ppc64le": 365,
    "s390x": 356,
}


def barrier(machine: str = platform.machine()) -> None:
    """A full memory barrier, on processors that need one here.

    x86 keeps loads in order, and stores behind earlier loads: nothing to do. See `fence`.
    """
    if machine != "x86_64":
        fence(machine)


def fence(machine: str = platform.machine()) -> None:
    """A full memory barrier by membarrier(2).

    Python has no fence of its own, and entering the kernel is none either. GLOBAL_EXPEDITED is
    documented to be one for the caller and runs smp_mb() on entry and on return
    (kernel/sched/membarrier.c); PRIVATE_EXPEDITED is not enough, for it returns at once in a
    process of one thread. Needed twice in a pass over all rings, not for each ring.
    """
    number = MEMBARRIER.get(machine)
    code = errno.ENOSYS
    if number is not None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.syscall(number, MEMBARRIER_GLOBAL_EXPEDITED, 0, 0) == 0:
            return
        code = ctypes.get_errno()
    raise errors.CannotError(
        f"the native recorder cannot read its buffers safely on {machine}",
        why=f"membarrier(2), which orders reads on this processor: {os.strerror(code)}",
        todo="record with perf: overnight record --recorder perf",
    )


class Ring:
    """One event and its buffer of `pages` pages, a power of two; closed with `close`."""

    def __init__(self, attr: events.EventAttr, core: int, pages: int) -> None:
        self.core = core
        self.descriptor = events.open_event(attr, pid=-1, cpu=core)
        self.size = pages * PAGE
        try:
            self.map = mmap.mmap(self.descriptor, PAGE + self.size)
        except OSError:
            os.close(self.descriptor)
            raise
        self._all = memoryview(self.map)
        # Cast to Q, an access is one 8-byte move; struct's "<Q" goes byte by byte and may see
        # half of a head that the kernel is writing.
        self._control = self._all[:PAGE].cast("Q")
        self._data = self._all[PAGE:]
        self._format = attr.read_format
        self._checked = (0, 0)
        self.lost = 0
        self.head = self.tail = self._control[TAIL_AT]

    @property
    def id(self) -> int:
        """The event's id in the kernel."""
        answer = fcntl.ioctl(self.descriptor, events.IOC_ID, bytes(8))
        return int.from_bytes(answer, "little")

    def enable(self) -> None:
        """Start sampling."""
        fcntl.ioctl(self.descriptor, events.IOC_ENABLE, 0)

    def update_head(self) -> None:
        """See how far the kernel has written; a barrier must follow before the bytes are read."""
        self.head = self._control[HEAD_AT]

    def chunks(self) -> list[memoryview]:
        """The unread bytes: whole records, in two pieces where they go over the end."""
        length = self.head - self.tail
        if not length:
            return []
        begin = self.tail % self.size
        first = min(length, self.size - begin)
        pieces = [self._data[begin : begin + first]]
        if first < length:
            pieces.append(self._data[: length - first])
        return pieces

    def release(self) -> None:
        """Give the bytes back to the kernel; a barrier must stand between reading and this."""
        self.tail = self._control[TAIL_AT] = self.head

    def idle_ns(self, now_ns: int) -> int:
        """For how long of the time since the last call the event did not count; updates `lost`.

        A core that goes off-line takes its events with it, and they stay dead when it comes back
        (kernel/events/core.c, perf_event_exit_cpu_context): their enabled time stands still.
        """
        before_ns, before = self._checked
        try:
            raw = os.read(self.descriptor, 24)
            _, enabled = struct.unpack_from("=QQ", raw)
        except (OSError, struct.error):
            return max(now_ns - before_ns, 1)
        if self._format & events.FORMAT_LOST and len(raw) >= 24:
            self.lost = struct.unpack_from("=Q", raw, 16)[0]
        self._checked = (now_ns, enabled)
        return max(0, (now_ns - before_ns) - (enabled - before)) if before_ns else 0

    def close(self) -> None:
        """Unmap and close."""
        self._control.release()
        self._data.release()
        self._all.release()
        self.map.close()
        os.close(self.descriptor)


@contextlib.contextmanager
def drained(rings: Iterable[Ring]) -> Iterator[list[memoryview]]:
    """What all rings hold now, in order of core; given back to the kernel unless the block fails."""
    held = list(rings)
    for ring in held:
        ring.update_head()
    barrier()
    chunks = [piece for ring in held for piece in ring.chunks()]
    try:
        yield chunks
        barrier()
        for ring in held:
            ring.release()
    finally:
        for chunk in chunks:  # a view that an exception holds on to would keep the ring mapped
            chunk.release()
