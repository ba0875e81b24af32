"""The ring buffer of a perf event: the records since the last drain, without a copy.

The first page holds `data_head`, advanced by the kernel, and `data_tail`, advanced by the reader; the
records between the two can be read (include/uapi/linux/perf_event.h, perf_event_mmap_page).
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
    """Execute a full memory barrier on processors that need one here.

    x86 keeps loads in order, and stores after earlier loads, so it needs none. See `fence`.
    """
    if machine != "x86_64":
        fence(machine)


def fence(machine: str = platform.machine()) -> None:
    """Execute a full memory barrier with membarrier(2).

    Python has no fence, and entering the kernel is not one either. GLOBAL_EXPEDITED is documented to be
    one for the caller and runs smp_mb() on entry and on return (kernel/sched/membarrier.c).
    PRIVATE_EXPEDITED is not enough: it returns at once in a process with one thread. A pass over all rings
    needs two, not two for each ring.
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
        why=f"this processor needs membarrier(2) to order reads: {os.strerror(code)}",
        todo="overnight record --recorder perf",
    )


class Ring:
    """One event and its buffer of `pages` pages, a power of two."""

    def __init__(self, attr: events.EventAttr, core: int, pages: int) -> None:
        self.descriptor = events.open_event(attr, pid=-1, cpu=core)
        self.size = pages * PAGE
        try:
            self.map = mmap.mmap(self.descriptor, PAGE + self.size)
        except OSError:
            os.close(self.descriptor)
            raise
        self._all = memoryview(self.map)
        # With a cast to Q, an access is one 8-byte move; struct's "<Q" reads byte by byte and may
        # see half of a head that the kernel is writing.
        self._control = self._all[:PAGE].cast("Q")
        self._data = self._all[PAGE:]
        self._format = attr.read_format
        self._checked = (0, 0)
        self.lost = 0
        self.head = self.tail = self._control[TAIL_AT]

    @property
    def id(self) -> int:
        answer = fcntl.ioctl(self.descriptor, events.IOC_ID, bytes(8))
        return int.from_bytes(answer, "little")

    def enable(self) -> None:
        fcntl.ioctl(self.descriptor, events.IOC_ENABLE, 0)

    def update_head(self) -> None:
        """Read how far the kernel has written; a barrier must follow before the bytes are read."""
        self.head = self._control[HEAD_AT]

    def chunks(self) -> list[memoryview]:
        """Return the unread bytes: whole records, in two pieces where they wrap around the end."""
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
        """Release the bytes to the kernel; a barrier must come between reading them and this."""
        self.tail = self._control[TAIL_AT] = self.head

    def idle_ns(self, now_ns: int) -> int:
        """Return how long the event was not enabled since the last call; update `lost`.

        When a core goes off-line its events die, and stay dead when it comes back (kernel/events/core.c,
        perf_event_exit_cpu_context): their enabled time stops.
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
        self._control.release()
        self._data.release()
        self._all.release()
        self.map.close()
        os.close(self.descriptor)


@contextlib.contextmanager
def drain(rings: Iterable[Ring]) -> Iterator[list[memoryview]]:
    """Yield the contents of all rings, in order of core; release them unless the block fails."""
    ordered = list(rings)
    for ring in ordered:
        ring.update_head()
    barrier()
    chunks = [piece for ring in ordered for piece in ring.chunks()]
    try:
        yield chunks
        barrier()
        for ring in ordered:
            ring.release()
    finally:
        for chunk in chunks:  # a view that an exception refers to would keep the ring mapped
            chunk.release()
