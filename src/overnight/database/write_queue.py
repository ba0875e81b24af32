"""A first-come-first-served queue of writers, across threads and processes.

SQLite has one writer; others sleep and poll, and the first to poll wins: the worst wait measured with eight
processes was 5.5 s. Here each writer draws a number, locks the byte of its number, and waits for the byte of
the number before: the kernel wakes exactly the next one, and releases the byte of a killed process. If a death
breaks the chain, two may come through at once; SQLite's own lock keeps them apart.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import struct
import threading
from collections.abc import Iterator

FIRST = 1 << 20  # bytes of the file that are locked, never written
TURN = struct.Struct("<q")


# struct flock: l_type, l_whence, l_start, l_len, l_pid (0 for locks of an open file)
FLOCK = struct.Struct("hhqqi4x")


def _lock(descriptor: int, kind: int, byte: int, count: int = 1) -> None:
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLKW, FLOCK.pack(kind, os.SEEK_SET, byte, count, 0))


class WriteQueue:
    """The queue of one file; threads may share one object."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._local = threading.local()

    def open(self) -> None:
        """Raise OSError if the file cannot be opened."""
        self._descriptor()

    def _descriptor(self) -> int:
        # The locks belong to an open file, so each thread and each forked child has its own.
        if getattr(self._local, "pid", None) != os.getpid():
            self._local.pid = os.getpid()
            self._local.file = _File(self._path)
        return int(self._local.file.descriptor)

    @contextlib.contextmanager
    def turn(self) -> Iterator[int]:
        """Wait for our turn and yield its number; the next turn begins when the block ends."""
        descriptor = self._descriptor()
        _lock(descriptor, fcntl.F_WRLCK, 0)
        try:
            stored = os.pread(descriptor, TURN.size, 0)
            number = TURN.unpack(stored)[0] if len(stored) == TURN.size else 0
            byte = FIRST + number
            _lock(descriptor, fcntl.F_WRLCK, byte)
            os.pwrite(descriptor, TURN.pack(number + 1), 0)
        finally:
            _lock(descriptor, fcntl.F_UNLCK, 0)
        try:
            _lock(descriptor, fcntl.F_RDLCK, byte - 1)
            yield number
        finally:
            _lock(descriptor, fcntl.F_UNLCK, byte - 1, 2)


class _File:
    """An open file that is closed with the thread that opened it."""

    def __init__(self, path: pathlib.Path) -> None:
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.descriptor)
