"""Become the program of a scene: set core, limits, cgroup and network first."""

from __future__ import annotations

import ctypes
import fcntl
import os
import pathlib
import socket
import struct

from overnight.rehearsals import processes

CLONE_NEWNET = 0x40000000
SIOCSIFFLAGS, IFF_UP = 0x8914, 1


def main() -> None:
    settings = processes.begin()
    if settings["cgroup"]:
        pathlib.Path(settings["cgroup"], "cgroup.procs").write_text("0")
    if settings["network"]:
        _leave_network()
    os.nice(settings["nice"])
    os.execv(settings["command"][0], settings["command"])


def _leave_network() -> None:
    """Enter a new network namespace, which ends with the program, and enable its loopback interface."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "cannot create a network namespace")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


if __name__ == "__main__":
    main()
