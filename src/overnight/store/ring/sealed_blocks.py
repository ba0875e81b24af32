"""From sealed open blocks to blocks at the end of a file, a little at each tick."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from overnight.store.ring import background_sync, block_encoder, blocks, columns, layout, open_block

if TYPE_CHECKING:
    from overnight.model import clock

__all__ = ["APPEND", "Sealed"]

RETRY_NS = 30_000_000_000
WAIT_SECONDS = 10  # at the end, for a disk that does not answer
APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class Sealed:
    """Open blocks that nobody appends to any more, waiting to be packed, the oldest first."""

    def __init__(
        self,
        folder: pathlib.Path,
        waiting: Iterable[pathlib.Path],
        note_gap: Callable[[int, int, str], None],
    ) -> None:
        self.folder = folder
        self.waiting = list(waiting)
        self.file_bytes = 0  # of the file that was appended to last
        self.stored = 0  # blocks
        self._note_gap = note_gap
        self._steps: block_encoder.Steps | None = None
        self._made: open_block.OpenBlock | None = None
        self._block = b""
        self._sync: background_sync.Sync | None = None
        self._closing = False
        self._retry_ns = 0

    def finish(self, now: clock.Clock) -> None:
        """All that is left, at once; what the disk does not take stays for the next writer."""
        self._closing = True
        self._retry_ns = 0
        while self.waiting and not self._retry_ns:
            self.step(now)

    def step(self, now: clock.Clock) -> None:
        """A little of the work; nothing while there is none, or while the disk is given time."""
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
                data = file.read(layout.MOST_BYTES)
        except FileNotFoundError:
            self.waiting.pop(0)
            return
        except OSError:
            self._retry_ns = now.monotonic_ns + RETRY_NS
            return
        try:
            self._made = open_block.parse(data)
        except columns.DamagedError:
            # Not even its head: a writer was killed right at the beginning, or it is of a later version.
            self.waiting.pop(0)
            if len(data) < open_block.RECORD.size or not data.strip(b"\0"):
                _remove(path)
            return
        if self._made.damage:
            begin = self._made.stamp_us
            self._note_gap(
                begin, begin, f"{path.name}: {self._made.damage}; the rest of it is lost"
            )
        if not self._made.tables and not self._made.facts:
            self.waiting.pop(0)
            _remove(path)
            return
        self._steps = block_encoder.pack(self._made)

    def _store(self, now: clock.Clock) -> None:
        """Append the block, have it synced, and only then remove what it was made of."""
        made = self._made
        assert made is not None, "a block is made of something"
        if self._sync is None:
            try:
                self._sync = self._append_block(made)
            except OSError:
                # An empty file of the name is no harm: the block comes there later.
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
        _remove(self.waiting[0])
        self.waiting.pop(0)
        self._block, self._made = b"", None
        self.stored += 1

    def _append_block(self, made: open_block.OpenBlock) -> background_sync.Sync:
        target = self._target(made)
        descriptor = os.open(target, APPEND, 0o600)
        try:
            if not _holds(target, descriptor, made.stamp_us):
                before = os.fstat(descriptor).st_size
                try:
                    if os.write(descriptor, self._block) < len(self._block):
                        raise OSError(errno.ENOSPC, "no space left on device")
                except OSError:
                    os.ftruncate(descriptor, before)
                    raise
            self.file_bytes = os.fstat(descriptor).st_size
        except OSError:
            os.close(descriptor)
            raise
        return background_sync.Sync(descriptor, self.folder)

    def _target(self, made: open_block.OpenBlock) -> pathlib.Path:
        """The file a block belongs into: that of the facts it builds on."""
        boot = layout.boot_name(made.boot)
        name = layout.Name(made.stamp_us, boot, layout.RING)
        if not made.full:
            for found, path in reversed(layout.files(self.folder, layout.RING)):
                if found.boot == boot and found.stamp_us <= made.stamp_us:
                    if made.stamp_us - found.stamp_us <= layout.FILE_SECONDS * 1_000_000:
                        return path
                    break
        return self.folder / str(name)


def _holds(path: pathlib.Path, descriptor: int, stamp_us: int) -> bool:
    """Whether a block is stored already; cuts off what a writer that was killed left half written."""
    for found in blocks.blocks_of(path, descriptor):
        if isinstance(found, blocks.Damage):
            if found.what == "is cut off":
                os.ftruncate(descriptor, found.begin)
        elif found.head.stamp_us == stamp_us:
            return True
    return False


def _remove(path: pathlib.Path) -> None:
    """An open block whose block is stored; one that stays is read once all the same."""
    with contextlib.suppress(OSError):
        path.unlink()
