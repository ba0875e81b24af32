"""An exclusive lock on a member's folder, which may be deleted under the lock."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
from collections.abc import Iterator


@contextlib.contextmanager
def locked(folder: pathlib.Path, *, make: bool = True, wait: bool = True) -> Iterator[bool]:
    """Lock a folder; yields False if it does not exist. Without `wait` raises BlockingIOError."""
    how = fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
    while True:
        if make:
            _make(folder)
        try:
            held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            if make:
                continue  # deleted since
            yield False
            return
        try:
            fcntl.flock(held, how)
            if _is_same(folder, held):  # else the last holder deleted it
                yield True
                return
        finally:
            os.close(held)


def _make(folder: pathlib.Path) -> None:
    """Create the folder and missing parents with mode 0700."""
    while True:
        try:
            os.mkdir(folder, 0o700)  # noqa: PTH102  Path.mkdir checks again, when it may be gone
            return
        except FileExistsError:
            return
        except FileNotFoundError:
            _make(folder.parent)


def _is_same(folder: pathlib.Path, held: int) -> bool:
    try:
        present, opened = folder.stat(), os.fstat(held)
    except FileNotFoundError:
        return False
    return (present.st_dev, present.st_ino) == (opened.st_dev, opened.st_ino)
