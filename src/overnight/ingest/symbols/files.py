"""Finds the file that a process has mapped, also in containers, and reads the vdso."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import errno
import os
import pathlib
import re
import stat
import struct

from overnight import errors
from overnight.ingest.symbols import elf

MAX_PERF_MAP = 64 << 20
MAX_VDSO = 1 << 20
VDSO = "[vdso]"
OPENAT2 = 437  # its number on all architectures with little-endian ELF files
RESOLVE_IN_ROOT = 0x10
FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
REGULAR = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY  # a pipe must not hang this process
VDSO_MAPPING = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) r.*\[vdso\]$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class LiveFiles:
    """Files of this host's processes, while they run and afterwards."""

    root: pathlib.Path = pathlib.Path("/")

    def find(self, module: str, pid: int, build_id: str = "") -> pathlib.Path | None:
        """Find the file of a mapping: in the process's root, else in this host's.

        A file with another build id (hex) was replaced since and is ignored: its names would be wrong.
        Raises PermissionError where it may be in the root of a process of another user.
        """
        if not module.startswith("/") or "\0" in module:
            return None
        for root in (*self._container(pid), self.root):
            path = root / module.lstrip("/")
            # perf records at most 20 bytes of it.
            if _is_inside(root, path) and (
                not build_id or (elf.read_build_id(path) or "").startswith(build_id)
            ):
                return path
        for container in self._container(pid):
            if container.parent.is_dir() and not os.access(container, os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), module)
        return None

    def perf_map(self, pid: int) -> bytes | None:
        """Read the map of a JIT compiler, which is named by its pid inside its container.

        Every user can create a file of that name in /tmp: DamagedFileError where the owner is neither
        root nor the process's user. The user of an ended process is unknown.
        """
        status = self._status(pid)
        nested = re.search(r"^NSpid:.*\t(\d{1,10})$", status, re.MULTILINE)
        # The last of the four is the one that owns new files.
        user = re.search(r"^Uid:.*\t(\d{1,10})$", status, re.MULTILINE)
        names = dict.fromkeys((int(nested[1]) if nested else pid, pid))
        places = [(root, name) for root in self._container(pid) for name in names]
        # Without privileges this process reads for its own user, who cannot deceive anybody else.
        owners = {0, os.geteuid(), *([int(user[1])] if user else [])}
        refused: errors.DamagedFileError | None = None
        for root, name in (*places, (self.root, pid)):
            try:
                return _read_owned(root, f"tmp/perf-{name}.map", owners)
            except OSError as error:
                errors.raise_own(error)
            except errors.DamagedFileError as error:
                refused = refused or error
        if refused is not None:
            raise refused
        return None

    def _container(self, pid: int) -> tuple[pathlib.Path, ...]:
        return (self.root / "proc" / str(pid) / "root",) if pid > 0 else ()

    def _status(self, pid: int) -> str:
        try:
            return (self.root / "proc" / str(pid) / "status").read_text(errors="replace")
        except OSError as error:
            errors.raise_own(error)
            return ""


def _is_inside(root: pathlib.Path, path: pathlib.Path) -> bool:
    """Return whether a path is a regular file, and the same one for a process with this root."""
    try:
        status = path.stat()
        descriptor = _open_in_root(root, str(path.relative_to(root)), os.O_PATH)
    except (OSError, ValueError) as error:  # also without permission, as for other users' roots
        errors.raise_own(error)
        return False
    opened = os.fstat(descriptor)
    os.close(descriptor)
    return stat.S_ISREG(status.st_mode) and os.path.samestat(status, opened)


def _read_owned(root: pathlib.Path, relative: str, owners: set[int]) -> bytes:
    descriptor = _open_in_root(root, relative, REGULAR)
    with os.fdopen(descriptor, "rb") as file:
        # After opening: the name may have meant another file before.
        status = os.fstat(descriptor)
        problem = ""
        if not stat.S_ISREG(status.st_mode):
            problem = "not a regular file"
        elif status.st_uid not in owners:
            problem = f"uid {status.st_uid} owns it, not root or the process's user,"
        elif status.st_mode & stat.S_IWOTH:
            problem = "every user may write it"
        if problem:
            raise errors.DamagedFileError(str(root / relative), 0, problem)
        return file.read(MAX_PERF_MAP)


def _open_in_root(root: pathlib.Path, relative: str, flags: int) -> int:
    """Open a file as a process with this root does: no link leads out of it."""
    with contextlib.ExitStack() as opened:
        folder = os.open(root, FOLDER)
        opened.callback(os.close, folder)
        try:
            return _openat2(folder, relative, flags)
        except OSError as error:
            # Before Linux 5.6, or under a seccomp filter of an older container runtime.
            if error.errno not in {errno.ENOSYS, errno.EPERM}:
                raise
        *folders, name = pathlib.PurePath(relative).parts
        if ".." in (*folders, name):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), relative)
        for part in folders:  # without following any link
            folder = os.open(part, FOLDER | os.O_NOFOLLOW, dir_fd=folder)
            opened.callback(os.close, folder)
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)


def _openat2(folder: int, relative: str, flags: int) -> int:
    how = struct.pack("=QQQ", flags | os.O_CLOEXEC, 0, RESOLVE_IN_ROOT)
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor: int = libc.syscall(OPENAT2, folder, os.fsencode(relative), how, len(how))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), relative)
    return descriptor


def read_vdso(proc: pathlib.Path = pathlib.Path("/proc/self")) -> bytes | None:
    """Read the vdso from memory: all 64-bit processes of a boot share it. None where it is not readable."""
    try:
        mapping = VDSO_MAPPING.search((proc / "maps").read_bytes())
        if mapping is None:
            return None
        begin, end = int(mapping[1], 16), int(mapping[2], 16)
        with (proc / "mem").open("rb") as memory:
            memory.seek(begin)
            return memory.read(min(end - begin, MAX_VDSO))
    except OSError as error:
        errors.raise_own(error)
        return None
