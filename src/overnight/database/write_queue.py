"""A first-come-first-served queue of writers, across threads and processes.

SQLite has one writer; others sleep and poll, and the first to poll wins: the worst wait measured with eight
processes was 5.5 s. Here each writer draws a number, locks the byte of its number, and waits for the byte of
the number before: the kernel wakes exactly the next one, and releases the byte of a killed process. If a death
breaks the chain, or a writer that has waited too long leaves it, two may come through at once; SQLite's own lock keeps
them apart.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import queue
import sqlite3
import struct
import threading
import time
from collections.abc import Iterator

from overnight.model import files

FIRST = 1 << 20  # bytes of the file that are locked, never written
TURN = struct.Struct("<q")
TURN_SECONDS = 15.0  # until a writer gives up; a transaction takes milliseconds
MOST_STUCK = 64  # threads that still wait for a lock that nobody wants any more


# struct flock: l_type, l_whence, l_start, l_len, l_pid (0 for locks of an open file)
FLOCK = struct.Struct("hhqqi4x")


class TurnError(sqlite3.OperationalError):
    """No turn came in time: another process holds the queue, and may be stopped."""


def _lock(descriptor: int, kind: int, byte: int, count: int = 1, how: int = fcntl.F_OFD_SETLKW) -> None:  # fmt: skip
    fcntl.fcntl(descriptor, how, FLOCK.pack(kind, os.SEEK_SET, byte, count, 0))


class WriteQueue:
    """The queue of one file; threads may share one object."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._local = threading.local()

    def open(self) -> None:
        """Raise OSError if the file cannot be opened."""
        self._file()

    def _file(self) -> _File:
        # The locks belong to an open file, so each thread and each forked child has its own.
        file: _File | None = getattr(self._local, "file", None)
        if file is None or self._local.pid != os.getpid() or file.is_left:
            self._local.pid = os.getpid()
            file = self._local.file = _File(self._path)
        return file

    @contextlib.contextmanager
    def turn(self, seconds: float = TURN_SECONDS) -> Iterator[int]:
        """Wait for our turn and yield its number; the next turn begins when the block ends. Raise TurnError."""
        file, until = self._file(), time.monotonic() + seconds
        file.lock(fcntl.F_WRLCK, 0, until)
        try:
            stored = os.pread(file.descriptor, TURN.size, 0)
            number = TURN.unpack(stored)[0] if len(stored) == TURN.size else 0
            byte = FIRST + number
            file.lock(fcntl.F_WRLCK, byte, until)
            with files.named(self._path):
                os.pwrite(file.descriptor, TURN.pack(number + 1), 0)
        finally:
            _lock(file.descriptor, fcntl.F_UNLCK, 0)
        try:
            file.lock(fcntl.F_RDLCK, byte - 1, until)
            yield number
        finally:
            _lock(file.descriptor, fcntl.F_UNLCK, byte - 1, 2)


class _File:
    """An open file that is closed with the thread that opened it.

    The kernel has no deadline for a lock. A second thread waits for it, which starts with the first wait and closes the
    file if nobody wants the lock any more: it then waits on.
    """

    stuck: set[int] = set()  # noqa: RUF012  of all queues of this process

    def __init__(self, path: pathlib.Path) -> None:
        self.is_left, self._waits = False, False
        self._asked = queue.SimpleQueue[tuple[int, int] | None]()
        self._answered = queue.SimpleQueue[None]()
        self.descriptor = -1
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def lock(self, kind: int, byte: int, until: float) -> None:
        """Lock a byte until a time of the monotonic clock; raise TurnError. The file is of no use then."""
        with contextlib.suppress(BlockingIOError, PermissionError):
            return _lock(self.descriptor, kind, byte, how=fcntl.F_OFD_SETLK)
        if len(self.stuck) >= MOST_STUCK:
            raise TurnError("too many writers wait for another process")
        if not self._waits:
            given = (self.descriptor, self._asked, self._answered)
            threading.Thread(target=_wait, args=given, name="write queue", daemon=True).start()
            self._waits = True
        self._asked.put((kind, byte))
        try:
            self._answered.get(timeout=max(0.0, until - time.monotonic()))
        except BaseException as error:
            self.is_left = True
            self.stuck.add(self.descriptor)
            self._asked.put(None)
            if not isinstance(error, queue.Empty):
                raise
            raise TurnError(f"another process has been writing for {TURN_SECONDS:g} s") from None
        return None

    def __del__(self) -> None:
        if self._waits:
            self._asked.put(None)
        else:
            _close(self.descriptor)


def _wait(
    descriptor: int, asked: queue.SimpleQueue[tuple[int, int] | None], answered: queue.SimpleQueue[None]
) -> None:  # fmt: skip
    while job := asked.get():
        _lock(descriptor, *job)
        answered.put(None)
    _File.stuck.discard(descriptor)
    _close(descriptor)


def _close(descriptor: int) -> None:
    with contextlib.suppress(OSError):
        os.close(descriptor)
