"""Packs sealed open blocks and appends them to a file, a little at each tick."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from overnight.model import files
from overnight.model.event import boot_name
from overnight.model.times import SECOND_NS, SECOND_US
from overnight.store.ring import block_encoder, blocks, columns, layout, open_block

if TYPE_CHECKING:
    from overnight.model import clock

RETRY_NS = 30 * SECOND_NS
WAIT_SECONDS = 10  # at the end, for a disk that does not answer
APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND


class Sealed:
    """Open blocks that are complete and wait to be packed, the oldest first."""

    def __init__(
        self,
        folder: pathlib.Path,
        waiting: Iterable[pathlib.Path],
        note_gap: Callable[[int, int, str], None],
    ) -> None:
        self.folder = folder
        self.waiting = list(waiting)
        self.file_bytes = 0  # of the file appended to last
        self.stored = 0  # blocks
        self._note_gap = note_gap
        self._steps: block_encoder.Steps | None = None
        self._open_block: open_block.OpenBlock | None = None
        self._block = b""
        self._sync: _Sync | None = None
        self._closing = False
        self._retry_ns = 0

    def finish(self, now: clock.Clock) -> None:
        """Pack all remaining blocks; on a full disk they stay for the next writer."""
        self._closing = True
        self._retry_ns = 0
        while self.waiting and not self._retry_ns:
            self.step(now)

    def step(self, now: clock.Clock) -> None:
        """Do a little of the work, if there is any and no retry is pending."""
        if not self.waiting or now.monotonic_ns < self._retry_ns:
            return
        self._retry_ns = 0
        if self._block:
            self._store(now)
        elif self._steps is None:
            self._begin_packing(now)
        else:
            try:
                next(self._steps)
            except StopIteration as done:
                self._steps, self._block = None, done.value

    def _begin_packing(self, now: clock.Clock) -> None:
        path = self.waiting[0]
        try:
            with path.open("rb") as file:
                data = file.read(layout.MAX_BYTES)
        except FileNotFoundError:
            self.waiting.pop(0)
            return
        except OSError:
            self._retry_ns = now.monotonic_ns + RETRY_NS
            return
        try:
            self._open_block = open_block.parse(data)
        except columns.DamagedError:
            # No valid head: a writer was killed at the begin, or a later version wrote it.
            self.waiting.pop(0)
            if len(data) < open_block.RECORD.size or not data.strip(b"\0"):
                _remove(path)
            return
        block = self._open_block
        if block.damage:
            why = f"{path.name}: {block.damage}; the rest is lost"
            self._note_gap(block.stamp_us, block.stamp_us, why)
        if not block.tables and not block.facts:
            _remove(self.waiting.pop(0))
            return
        self._steps = block_encoder.pack(block)

    def _store(self, now: clock.Clock) -> None:
        """Append the block, sync it, and only then remove the open block it was made of."""
        block = self._open_block
        assert block is not None
        if self._sync is None:
            try:
                self._sync = self._append_block(block)
            except OSError:
                # An empty file is harmless: the block is appended later.
                self._retry_ns = now.monotonic_ns + RETRY_NS
            return
        if not self._sync.is_done(WAIT_SECONDS if self._closing else 0):
            if self._closing:
                self._retry_ns = now.monotonic_ns
            return
        failed, self._sync = self._sync.failed, None
        if failed:
            self._retry_ns = now.monotonic_ns + RETRY_NS
            return
        _remove(self.waiting.pop(0))
        self._block, self._open_block = b"", None
        self.stored += 1

    def _append_block(self, block: open_block.OpenBlock) -> _Sync:
        target = self._target(block)
        descriptor = files.open_private(target, APPEND)
        try:
            if not _holds(target, descriptor, block.stamp_us):
                before = os.fstat(descriptor).st_size
                try:
                    if os.write(descriptor, self._block) < len(self._block):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                except OSError:
                    os.ftruncate(descriptor, before)
                    raise
            self.file_bytes = os.fstat(descriptor).st_size
        except OSError:
            os.close(descriptor)
            raise
        return _Sync(descriptor, self.folder)

    def _target(self, block: open_block.OpenBlock) -> pathlib.Path:
        """Return the file of a block: that of the facts it builds on."""
        boot = boot_name(block.boot)
        if not block.full:
            for name, path in reversed(layout.files(self.folder, layout.RING)):
                if name.boot == boot and name.stamp_us <= block.stamp_us:
                    if block.stamp_us - name.stamp_us <= layout.FILE_SECONDS * SECOND_US:
                        return path
                    break
        return self.folder / str(layout.Name(block.stamp_us, boot, layout.RING))


def _holds(path: pathlib.Path, descriptor: int, stamp_us: int) -> bool:
    """Return whether a block is stored already; cut off what a killed writer left incomplete."""
    for block in blocks.blocks_of(path, descriptor):
        if isinstance(block, blocks.Damage):
            if block.cut_off:
                os.ftruncate(descriptor, block.begin)
        elif block.head.stamp_us == stamp_us:
            return True
    return False


def _remove(path: pathlib.Path) -> None:
    """Remove an open block that is stored; readers skip one that cannot be removed."""
    with contextlib.suppress(OSError):
        path.unlink()


class _Sync:
    """Syncs a file and its folder in a thread, so that a slow disk does not stop the loop; then closes it."""

    def __init__(self, descriptor: int, folder: pathlib.Path) -> None:
        self.failed = False
        self._descriptor = descriptor
        self._folder = folder
        # A daemon thread: a disk that never answers must not keep the agent from ending.
        self._thread = threading.Thread(target=self._run, name="ring-sync", daemon=True)
        self._started = True
        try:
            self._thread.start()
        except RuntimeError:  # no more threads on this host: sync here
            self._started = False
            self._run()

    def _run(self) -> None:
        try:
            os.fsync(self._descriptor)
            files.sync(self._folder)
        except OSError:
            self.failed = True
        finally:
            os.close(self._descriptor)

    def is_done(self, wait_seconds: float = 0) -> bool:
        """Return whether the sync has ended, also by failing; wait for it at most `wait_seconds`."""
        if self._started:
            self._thread.join(wait_seconds)
        return not self._thread.is_alive()
