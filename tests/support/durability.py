"""Spy on a disk: what a power cut would lose below a folder, and in which order names appear and vanish.

Nothing is really synced. A sync remembers the data of a file, or the names in a folder; whatever differs from that
could be lost. The data is read back, so that it does not matter how it was written.
"""

from __future__ import annotations

import fnmatch
import os
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

SYNCS = ("fsync", "fdatasync")
PUBLISHES = ("rename", "replace", "link")
REMOVES = ("unlink", "remove", "rmdir")


class Disk:
    """The disk below `root`. What is there already is durable; paths that match `volatile` need not be.

    `steps` are the calls in order, with paths below `root`; `problems` are those in the wrong order.
    """

    def __init__(
        self, root: pathlib.Path, monkeypatch: pytest.MonkeyPatch, volatile: tuple[str, ...] = ()
    ) -> None:
        self.steps: list[tuple[str, str]] = []
        self.problems: list[str] = []
        self._root, self._volatile = root, volatile
        self._data: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}
        for path in (root, *root.rglob("*")):
            self._sync(path)
        for name in (*SYNCS, *PUBLISHES, *REMOVES, "mkdir", "symlink"):
            monkeypatch.setattr(os, name, self._spy(name, getattr(os, name)))

    def pending(self) -> list[str]:
        """Return the paths whose data, appearance or removal a power cut could undo."""
        return [path for path in self._find_pending(self._root) if not self._is_volatile(path)]

    def _find_pending(self, top: pathlib.Path) -> list[str]:
        found = set() if self._has_synced_data(top) else {top}
        for path in (top, *top.rglob("*")) if top.is_dir() else ():
            if path.is_dir() and not path.is_symlink():
                known = self._names.get(path.stat().st_ino, {})
                found |= {path / name for name, _ in known.items() ^ _names(path).items()}
            elif not self._has_synced_data(path):
                found.add(path)
        return sorted(map(self._short, found))

    def _has_synced_data(self, path: pathlib.Path) -> bool:
        if path.is_symlink() or not path.is_file():
            return True
        return self._data.get(path.stat().st_ino) == path.read_bytes()

    def _is_volatile(self, path: str) -> bool:
        return any(fnmatch.fnmatch(path, pattern) for pattern in self._volatile)

    def _short(self, path: pathlib.Path) -> str:
        return str(path.relative_to(self._root)) if path.is_relative_to(self._root) else str(path)

    def _sync(self, path: pathlib.Path) -> None:
        if path.is_dir():
            self._names[path.stat().st_ino] = _names(path)
        elif path.is_file():
            self._data[path.stat().st_ino] = path.read_bytes()

    def _spy(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if name in SYNCS:
                opened = pathlib.Path(f"/proc/self/fd/{arguments[0]}")
                self._sync(opened)
                self.steps.append((name, self._short(opened.readlink())))
                return None
            last = arguments[1 if name in (*PUBLISHES, "symlink") else 0]
            path = _absolute(last, named.get("dst_dir_fd", named.get("dir_fd")))
            if path.is_relative_to(self._root):
                self._check(name, _absolute(arguments[0], named.get("src_dir_fd")), path)
            result = real(*arguments, **named)
            self.steps.append((name, self._short(path)))
            if name == "mkdir":
                self._names.pop(path.stat().st_ino, None)
            return result

        return call

    def _check(self, name: str, source: pathlib.Path, path: pathlib.Path) -> None:
        short = self._short(path)
        if name in PUBLISHES:
            late = self._find_pending(source)
            if late and not self._is_volatile(short):
                self.problems.append(f"{short} appears before {late} is synced")
        elif name not in REMOVES or not os.path.lexists(path):
            return
        elif late := [other for other in self.pending() if other != short]:
            self.problems.append(f"{short} is removed before {late} is durable")
        # What loses its last name is forgotten: another file may get its inode.
        if os.path.lexists(path) and (status := path.lstat()).st_nlink == 1:
            self._data.pop(status.st_ino, None)


def _names(folder: pathlib.Path) -> dict[str, int]:
    with os.scandir(folder) as entries:
        return {entry.name: entry.inode() for entry in entries}


def _absolute(path: str | os.PathLike[str], folder: int | None) -> pathlib.Path:
    above = "" if folder is None else pathlib.Path(f"/proc/self/fd/{folder}").readlink()
    return pathlib.Path(above, path).absolute()
