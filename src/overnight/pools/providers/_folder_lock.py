"""One at a time in a folder of a member, which may be removed under the lock."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
from collections.abc import Iterator

__all__ = ["locked"]


@contextlib.contextmanager
def locked(folder: pathlib.Path, *, make: bool = True, wait: bool = True) -> Iterator[bool]:
    """One at a time in a folder, which may be removed under the lock. False: it is not there.

    Raises BlockingIOError where another is in it and `wait` is not wanted.
    """
    how = fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
    while True:
        if make:
            _make(folder)
        try:
            held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            if make:
                continue  # somebody has removed it since
            yield False
            return
        try:
            fcntl.flock(held, how)
            if _is(folder, held):  # else the one before us has removed it
                yield True
                return
        finally:
            os.close(held)


def _make(folder: pathlib.Path) -> None:
    """For root alone, from the first folder on that is missing."""
    while True:
        try:
            os.mkdir(folder, 0o700)  # noqa: PTH102  Path.mkdir looks again, when it may be gone
            return
        except FileExistsError:
            return
        except FileNotFoundError:
            _make(folder.parent)


def _is(folder: pathlib.Path, held: int) -> bool:
    try:
        found, ours = folder.stat(), os.fstat(held)
    except FileNotFoundError:
        return False
    return (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino)
