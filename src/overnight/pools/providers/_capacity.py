"""What must be free on a host before another machine is booted on it: the host itself must live on."""

from __future__ import annotations

import ctypes
import os
import pathlib
import re

from overnight import pools

__all__ = ["require"]

FREE = 256 << 20  # bytes of memory, and of disk
# A machine's systemd takes 4 of root's inotify instances; without them it comes up half, and says nothing.
# A few machines may be on their way at once.
WATCHERS = 16
WATCHERS_SETTING = "fs.inotify.max_user_instances"


def require(folder: pathlib.Path) -> None:
    """Raises ProviderError where there is no room for another machine in that folder."""
    disk = os.statvfs(folder)
    free = {"disk": disk.f_bavail * disk.f_frsize, "memory": _memory()}
    for what, size in free.items():
        if size < FREE:
            raise _full(
                f"{size >> 20} MiB of {what} are free, {FREE >> 20} must be", f"free some {what}"
            )
    if not _has_watchers(WATCHERS):
        raise _full(
            f"root has fewer than {WATCHERS} inotify instances left, and a machine takes some",
            f"raise it: sysctl {WATCHERS_SETTING}",
        )


def _full(message: str, todo: str) -> pools.ProviderError:
    return pools.ProviderError(
        "provider_quota_exceeded",
        f"there is no room for another machine: {message}",
        todo=f"{todo}, or lower the pool's target",
        nothing_made=True,
    )


def _memory() -> int:
    text = pathlib.Path("/proc/meminfo").read_text()
    found = re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) << 10 if found else FREE


def _has_watchers(count: int) -> bool:
    """Whether so many could be had: nobody tells how many are left."""
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
