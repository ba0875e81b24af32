"""What must be free on this host before another machine is booted, so that the host survives."""

from __future__ import annotations

import ctypes
import os
import pathlib

from overnight import pools
from overnight.model import meminfo
from overnight.model.pool import Reason

FREE = 256 << 20  # bytes of memory, and of disk
# A machine's systemd takes 4 of root's inotify instances; without them it boots half-way without an error.
# Several machines may boot at once.
WATCHERS = 16
WATCHERS_SETTING = "fs.inotify.max_user_instances"


def require(folder: pathlib.Path) -> None:
    """Raise ProviderError if this host has no capacity for another machine in `folder`."""
    disk = os.statvfs(folder)
    free = {"disk": disk.f_bavail * disk.f_frsize, "memory": meminfo.read_available()}
    for what, size in free.items():
        if size < FREE:
            raise _full(
                f"{size >> 20} MiB of {what} free, {FREE >> 20} MiB required", f"free some {what}"
            )
    if not _has_watchers(WATCHERS):
        raise _full(
            f"root has fewer than {WATCHERS} inotify instances left",
            f"raise sysctl {WATCHERS_SETTING}",
        )


def _full(message: str, todo: str) -> pools.ProviderError:
    return pools.ProviderError(
        Reason.QUOTA,
        f"this host has no capacity for another machine: {message}",
        todo=f"{todo}, or lower the pool's target",
        nothing_made=True,
    )


def _has_watchers(count: int) -> bool:
    """Try to open `count` instances: the kernel does not report how many are left."""
    libc = ctypes.CDLL(None, use_errno=True)
    held: list[int] = []
    try:
        while len(held) < count:
            handle = libc.inotify_init1(os.O_CLOEXEC)
            if handle < 0:
                return False
            held.append(handle)
        return True
    finally:
        for handle in held:
            os.close(handle)
