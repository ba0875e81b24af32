"""Real faults for the time of a block; a kill -9 during one leaves nothing behind."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import pathlib
import subprocess
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any
from unittest import mock

from overnight import sources

CLONE_NEWNS = 0x20000


def on_small_disk(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test with a disk of 4 MiB on its `disk`, which only its thread and the threads that it starts see."""

    def run(**fixtures: Any) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.unshare(CLONE_NEWNS) == 0, os.strerror(ctypes.get_errno())
        options = ("-t", "tmpfs", "-o", "size=4m,mode=0700", "overnight-test")
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
        subprocess.run(["mount", *options, fixtures["disk"]], check=True)
        test(**fixtures)

    @functools.wraps(test)
    def run_in_thread(**fixtures: Any) -> None:
        with futures.ThreadPoolExecutor(1) as pool:
            pool.submit(run, **fixtures).result()

    return run_in_thread


@contextlib.contextmanager
def full_disk(disk: pathlib.Path, left: int = 0) -> Iterator[None]:
    """Fill a disk to its last byte, or but for some."""
    filler = disk / "filler"
    with filler.open("ab", buffering=0) as file:
        for size in (65536, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))
        file.truncate(file.tell() - left)
    try:
        yield
    finally:
        filler.unlink()


@contextlib.contextmanager
def read_only_disk(disk: pathlib.Path) -> Iterator[None]:
    """Make a disk of `on_small_disk` read-only, but for files that are open."""
    subprocess.run(["mount", "--bind", disk, disk], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", disk], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", disk], check=True)


@contextlib.contextmanager
def no_files_on_this_host() -> Iterator[None]:
    """Let os.open fail as on a host without a free file: the real limit would stop the whole machine."""
    full = OSError(errno.ENFILE, os.strerror(errno.ENFILE))
    with mock.patch.object(os, "open", side_effect=full):
        yield


@contextlib.contextmanager
def no_memory() -> Iterator[None]:
    """Let every source run out of memory; where a real limit strikes is not predictable."""
    with mock.patch.object(sources.KeptFile, "_whole", side_effect=MemoryError):
        yield
