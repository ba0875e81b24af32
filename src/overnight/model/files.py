"""Stored files: private, and after a crash either the old or the new version, never half of one.

Folders have mode 0700 and files 0600, whatever the umask. Below a folder with mode 2750, which the administrator
chooses, its group may read: folders get 2750 and files 0640.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pathlib
import stat
from collections.abc import Iterable, Iterator
from typing import BinaryIO

DEVICES = pathlib.Path("/dev")
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
SHARED = stat.S_ISGID | stat.S_IRGRP | stat.S_IXGRP


def folder_mode(above: pathlib.Path) -> int:
    """Return the mode of a folder in `above`; without the execute bits it is the mode of a file there."""
    return 0o2750 if above.stat().st_mode & SHARED == SHARED else 0o700


def make_folder(folder: pathlib.Path, *, durable: bool = True) -> None:
    """Create a folder and missing parents, which survive a power cut if `durable`."""
    if folder.is_dir():
        return
    make_folder(folder.parent, durable=durable)
    mode = folder_mode(folder.parent)
    try:
        folder.mkdir(mode=mode & 0o777)
        if stat.S_IMODE(folder.stat().st_mode) != mode:
            folder.chmod(mode)
    except FileExistsError:  # another process was first
        if not folder.is_dir():
            raise
    if durable:
        sync(folder.parent)


def open_private(path: pathlib.Path, flags: int) -> int:
    """Open a file, never through a link in its place, and set its mode."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    mode = folder_mode(path.parent) & 0o666
    if stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:
        with contextlib.suppress(PermissionError):  # a file of root's that we may write
            os.fchmod(descriptor, mode)
    return descriptor


@contextlib.contextmanager
def replace(path: pathlib.Path) -> Iterator[BinaryIO]:
    """Yield an empty file that only its owner may read, whatever the umask; it replaces `path` at the end.

    A device or a pipe is written to instead: root must not replace /dev/null, or /dev/stdout, which is a link.
    """
    if path.parent == DEVICES or (path.exists() and not path.is_file()):
        with named(path), path.open("wb") as file:
            yield file
        return
    fresh = path.parent / f".{path.name}.{os.urandom(4).hex()}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with named(path), os.fdopen(os.open(fresh, flags, 0o600), "wb") as file:
            yield file
        fresh.replace(path)
    finally:
        with contextlib.suppress(OSError):
            fresh.unlink()


@contextlib.contextmanager
def named(path: pathlib.Path) -> Iterator[None]:
    """Name the file in an OSError of a write, which the kernel does not."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def write(path: pathlib.Path, data: bytes | str) -> None:
    """Write a file that need not survive a power cut."""
    with (
        named(path),
        os.fdopen(open_private(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file,
    ):
        file.write(data.encode() if isinstance(data, str) else data)


def read_tail(path: pathlib.Path, size: int) -> str:
    """Return the last bytes of a file as text; '' where there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - size))
            return file.read(size).decode(errors="replace")
    except OSError:
        return ""


def write_atomically(path: pathlib.Path, data: bytes | str, *, mode: int | None = None) -> None:
    """Write beside `path` and publish it there, so that it survives a power cut.

    Two writers of one path do not mix: each has a temporary file of its own, and the last rename wins.
    """
    # Not tempfile, which imports half a megabyte: the uplink of an agent is small.
    name = path.parent / f".{path.name}.{os.urandom(4).hex()}.new"
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with named(path), os.fdopen(descriptor, "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            os.fchmod(file.fileno(), folder_mode(path.parent) & 0o666 if mode is None else mode)
        publish(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            name.unlink()
        raise


def publish(written: pathlib.Path, path: pathlib.Path) -> None:
    """Sync a file, rename it to `path`, and sync the folder; never replace a device, a pipe or a link in /dev."""
    with contextlib.suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        if path.parent == DEVICES or not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
            raise OSError(errno.EEXIST, "it is not a regular file", str(path))
    sync(written)
    written.replace(path)
    sync(path.parent)


def append_lines(path: pathlib.Path, lines: Iterable[bytes]) -> None:
    """Append whole lines in one write and sync, a new file also by name; on OSError the file is unchanged."""
    descriptor = open_private(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    try:
        before = os.fstat(descriptor).st_size
        # A line cut off by a crash must not swallow the next one.
        cut = before > 0 and os.pread(descriptor, 1, before - 1) != b"\n"
        data = (b"\n" if cut else b"") + b"".join(lines)
        try:
            with named(path):
                if os.write(descriptor, data) < len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(descriptor)
            if not before:
                sync(path.parent)
        except OSError:
            os.ftruncate(descriptor, before)
            raise
    finally:
        os.close(descriptor)


def remove(path: pathlib.Path) -> None:
    """Remove a file if it exists; a power cut does not bring it back."""
    path.unlink(missing_ok=True)
    sync(path.parent)


@contextlib.contextmanager
def locked(path: pathlib.Path) -> Iterator[None]:
    """Wait for the lock of an existing file or folder, and hold it."""
    # NFS locks a file only for those who may write to it (flock(2)), and a folder on this host only.
    descriptor = os.open(path, (os.O_RDONLY if path.is_dir() else os.O_RDWR) | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def find_disk_problem(folder: pathlib.Path) -> OSError | None:
    """Try to reserve space in a folder; return the error where the disk is full or read-only."""
    import tempfile

    try:
        with named(folder), tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, 1 << 20)
    except OSError as error:
        return error if error.errno in DISK else None
    return None


def find_lost_write(folder: pathlib.Path) -> OSError:
    """Return why something was not written to a folder, which may have room again."""
    lost = OSError(errno.ENOSPC, "the disk was full, or fails", str(folder))
    return find_disk_problem(folder) or lost


def sync(path: pathlib.Path) -> None:
    """Make a file's data, or the names in a folder, durable; a folder that this user may not list is left."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
