"""Network namespaces connected by a veth pair."""

from __future__ import annotations

import ctypes
import os
import subprocess
from typing import TYPE_CHECKING

from overnight import errors
from overnight.undo import operations

if TYPE_CHECKING:
    from overnight.undo import journal

CLONE_NEWNET = 0x40000000

End = tuple[str, str, str]  # namespace, interface, IPv4 address


def connect(journal: journal.Journal, first: End, second: End) -> tuple[str, str]:
    """Create two namespaces with a veth pair between them; return their paths. Undone with the journal."""
    ends = (first, second)
    for namespace, _, _ in ends:
        journal.write("netns", namespace)
        run_ip("netns", "add", namespace)
    run_ip(
        "link", "add", first[1], "netns", first[0], "type", "veth",
        "peer", "name", second[1], "netns", second[0],
    )  # fmt: skip
    for namespace, interface, address in ends:
        run_ip("-n", namespace, "address", "add", f"{address}/30", "dev", interface)
        run_ip("-n", namespace, "link", "set", interface, "up")
    return str(operations.NETNS / first[0]), str(operations.NETNS / second[0])


def enter(path: str) -> None:
    """Move this thread into a network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(descriptor, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
    finally:
        os.close(descriptor)


def run_ip(*arguments: str) -> None:
    """Run `ip`; raises MissingToolError or CannotError."""
    try:
        done = subprocess.run(
            ["ip", *arguments], capture_output=True, text=True, timeout=30, check=False
        )
    except FileNotFoundError as error:
        raise errors.MissingToolError(
            "cannot create a network namespace",
            why="the program ip (iproute2) is not installed",
            todo="apt install iproute2, or dnf install iproute",
        ) from error
    if done.returncode:
        raise errors.CannotError(
            f"ip {' '.join(arguments)} failed",
            why=done.stderr.strip() or f"exit code {done.returncode}",
            todo="run it as root, on a kernel with network namespaces and veth",
        )
