"""Files that are either the old or the new version after a crash, never half of one."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import tempfile
from collections.abc import Iterable

from overnight import errors


def write_atomically(path: pathlib.Path, data: bytes | str, *, mode: int = 0o600) -> None:
    """Write beside `path`, sync, rename over it, and sync the folder, so that it survives a power cut.

    Two writers of one path do not mix: each has a temporary file of its own, and the last rename wins.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".new")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        pathlib.Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            pathlib.Path(name).unlink()
        raise
    sync_folder(path.parent)


def append_lines(path: pathlib.Path, lines: Iterable[bytes], *, mode: int = 0o600) -> None:
    """Append whole lines in one write and sync; on OSError the file is unchanged."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, mode)
    try:
        before = os.fstat(descriptor).st_size
        # A line cut off by a crash must not swallow the next one.
        cut = before > 0 and os.pread(descriptor, 1, before - 1) != b"\n"
        data = (b"\n" if cut else b"") + b"".join(lines)
        try:
            if os.write(descriptor, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, before)
            raise
    finally:
        os.close(descriptor)


def find_disk_problem(folder: pathlib.Path, room: int = 1 << 20) -> OSError | None:
    """Try to reserve space in a folder; return the error where the disk is full or read-only."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, room)
    except OSError as error:
        return error if errors.is_own(error) else None
    return None


def sync_folder(folder: pathlib.Path) -> None:
    """Make renames and new names in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
