"""Cores that go off-line and come back, from the online list and the kernel's uevents.

The list alone misses a core that went off-line and came back between two polls, but its perf event is dead
all the same. The kernel reports each change on a netlink socket::

    offline@/devices/system/cpu/cpu1\\0ACTION=offline\\0DEVPATH=/devices/system/cpu/cpu1\\0...

Without the socket (a container may forbid it) only the list is used.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import socket
from collections.abc import Callable

NETLINK_KOBJECT_UEVENT = 15
KERNEL_GROUP = 1
OFFLINE = re.compile(rb"offline@/devices/system/cpu/cpu(\d{1,6})\0")


@dataclasses.dataclass(frozen=True)
class Change:
    """Cores that went off-line since the last poll, and those that came on-line.

    A core that went off-line and came back is in both.
    """

    gone: tuple[int, ...] = ()
    back: tuple[int, ...] = ()


def parse_uevent(message: bytes) -> int | None:
    r"""Parse the core that went off-line; None for every other uevent.

    >>> parse_uevent(b"offline@/devices/system/cpu/cpu39\0ACTION=offline\0")
    39
    """
    match = OFFLINE.match(message)
    return int(match[1]) if match else None


class CoreWatch:
    """Compares the online cores with those at the last poll; `online` lists them."""

    def __init__(self, online: Callable[[], tuple[int, ...]]) -> None:
        self._online = online
        self._uevents = _open_uevents()
        self._known = frozenset(online())

    def poll(self) -> Change:
        """Return what changed since the last poll, or since the watch was created."""
        flapped = self._drain() & self._known
        now = frozenset(self._online())
        gone = (self._known - now) | flapped
        back = now - (self._known - gone)
        self._known = now
        return Change(tuple(sorted(gone)), tuple(sorted(back)))

    def _drain(self) -> frozenset[int]:
        cores = set()
        while self._uevents is not None:
            try:
                message, sender = self._uevents.recvfrom(8192)
            except BlockingIOError:
                break
            except OSError:  # the queue overflowed (ENOBUFS): the list shows most of it
                continue
            core = parse_uevent(message)
            if core is not None and sender[0] == 0:  # 0 is the kernel; a process may write here too
                cores.add(core)
        return frozenset(cores)

    def close(self) -> None:
        if self._uevents is not None:
            self._uevents.close()
            self._uevents = None


def _open_uevents() -> socket.socket | None:
    with contextlib.suppress(OSError):
        opened = socket.socket(
            socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT
        )
        try:
            opened.bind((0, KERNEL_GROUP))
        except OSError:
            opened.close()
            raise
        return opened
    return None
