"""A first-come-first-served queue of writers, across threads and processes.

SQLite has one writer; those who wait for it sleep and look again, and who looks first wins: 5.5 s was the
worst wait measured with eight processes. Here each writer draws a number, holds a lock on the byte of its
number, and waits for the byte of the number before it: the kernel wakes exactly the next one, and gives up
the byte of a process that was killed. Should the chain be broken by a death in it, two may come
through at once; SQLite's own lock keeps them apart.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import struct
import threading
from collections.abc import Iterator

__all__ = ["WriteQueue"]

FIRST = 1 << 20  # bytes of the file that are locked, never written
TURN = struct.Struct("<q")


# struct flock: l_type, l_whence, l_start, l_len, l_pid (0 for locks of an open file)
FLOCK = struct.Struct("hhqqi4x")


def _lock(descriptor: int, kind: int, byte: int, count: int = 1) -> None:
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLKW, FLOCK.pack(kind, os.SEEK_SET, byte, count, 0))


class WriteQueue:
    """The queue of one file; one object may be shared by threads."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._mine = threading.local()

    def open(self) -> None:
        """Raises OSError where its file cannot be had."""
        self._descriptor()

    def _descriptor(self) -> int:
        # The locks belong to an open file, so each thread has its own, and so has a forked child.
        if getattr(self._mine, "pid", None) != os.getpid():
            self._mine.pid = os.getpid()
            self._mine.file = _File(self._path)
        return int(self._mine.file.descriptor)

    @contextlib.contextmanager
    def turn(self) -> Iterator[int]:
        """Wait for one's turn, and get its number; the next one comes when the block is left."""
        descriptor = self._descriptor()
        _lock(descriptor, fcntl.F_WRLCK, 0)
        try:
            drawn = os.pread(descriptor, TURN.size, 0)
            number = TURN.unpack(drawn)[0] if len(drawn) == TURN.size else 0
            mine = FIRST + number
            _lock(descriptor, fcntl.F_WRLCK, mine)
            os.pwrite(descriptor, TURN.pack(number + 1), 0)
        finally:
            _lock(descriptor, fcntl.F_UNLCK, 0)
        try:
            _lock(descriptor, fcntl.F_RDLCK, mine - 1)
            yield number
        finally:
            _lock(descriptor, fcntl.F_UNLCK, mine - 1, 2)


class _File:
    """An open file that is closed with the thread that opened it."""

    def __init__(self, path: pathlib.Path) -> None:
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.descriptor)
