"""Reads files below a root safely: links cannot leave it, and only plain files of limited size are read.

An unpacked image may be hostile: `/etc/systemd -> ../../../../etc`, a fifo called `ecs.service`, a unit
of ten gigabytes. Each path is walked name by name with open descriptors. A link is resolved inside the
root, as after chroot(2): an absolute one starts at the root, and `..` at the root stays there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import stat
from collections.abc import Iterator
from typing import Literal

from overnight import errors

MAX_BYTES = 1 << 20
MAX_NAMES = 50_000  # entries of one folder; /usr/bin of a full desktop has 4,000
MAX_LINKS = 40  # like the kernel: more are a loop
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class NotPlainError(OSError):
    """The path is not a plain file but a folder, a fifo, a device or a socket."""


class TooLargeError(OSError):
    """The file is larger than the limit."""


def why(error: OSError) -> str:
    """Describe in a few words, without a path, why something could not be read."""
    if isinstance(error, NotPlainError | TooLargeError):
        return str(error)
    return (error.strerror or type(error).__name__).lower()


@dataclasses.dataclass(frozen=True)
class Entry:
    """One entry of a folder; a link is not followed."""

    kind: Literal["file", "folder", "link", "other"]
    size: int
    target: str = ""  # of a link, not resolved


@dataclasses.dataclass(frozen=True)
class _Place:
    """A name in an open folder; the name is "" for the root itself."""

    folder: int
    name: str
    path: str  # from the root, without links


def open_tree(root: pathlib.Path) -> Tree:
    """Return the tree below a root; raises CannotError."""
    tree = Tree(root)
    if not tree.is_folder("/"):
        raise errors.CannotError(
            f"{root} cannot be read",
            why="it is not a folder, or you may not enter it",
            todo="name the folder that the image is unpacked in",
        )
    return tree


class Tree:
    """Files below a root. Paths are absolute, as on the host itself."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root

    def read(self, path: str, limit: int = MAX_BYTES) -> bytes:
        """Read a plain file; raise OSError where there is none, or it is larger than the limit."""
        with self._walk(path) as place:
            # Do not open anything but a plain file: opening a device or a fifo can have effects.
            _check(os.stat(place.name or ".", dir_fd=place.folder, follow_symlinks=False))
            descriptor = os.open(place.name, FILE, dir_fd=place.folder)
        try:
            _check(os.fstat(descriptor))
            return _read(descriptor, limit)
        finally:
            os.close(descriptor)

    def text(self, path: str, limit: int = MAX_BYTES) -> str:
        """Read a plain file as text; bytes that are not UTF-8 are replaced."""
        return self.read(path, limit).decode("utf-8", "replace")

    def line(self, path: str) -> str:
        """Read a small file's stripped text; "" where it cannot be read."""
        try:
            return self.text(path, 4096).strip()
        except OSError:
            return ""

    def names(self, path: str) -> tuple[str, ...]:
        """List the sorted names in a folder; raise OSError where it is not one, or has too many."""
        with self._open_folder(path) as folder, os.scandir(folder) as entries:
            names = []
            for entry in entries:
                names.append(entry.name)
                if len(names) > MAX_NAMES:
                    raise TooLargeError(f"more than {MAX_NAMES} entries")
        return tuple(sorted(names))

    def entries(self, path: str) -> dict[str, Entry]:
        """List the entries of a folder, sorted by name."""
        entries = {}
        names = self.names(path)
        with self._open_folder(path) as folder:
            for name in names:
                with contextlib.suppress(OSError):  # it was removed meanwhile
                    entries[name] = _entry(folder, name)
        return entries

    def link(self, path: str) -> str | None:
        """Return a link's target, not resolved; None where there is no link."""
        try:
            with self._walk(path, follow=False) as place:
                return os.readlink(place.name, dir_fd=place.folder) if place.name else None
        except OSError:
            return None

    def resolve(self, path: str) -> str | None:
        """Resolve all links; the last name need not exist. None where it cannot be resolved."""
        try:
            with self._walk(path) as place:
                return place.path
        except OSError:
            return None

    def stat(self, path: str, *, follow: bool = True) -> os.stat_result | None:
        """Return the file's status, or None; links are followed inside the root."""
        try:
            with self._walk(path, follow=follow) as place:
                return os.stat(place.name or ".", dir_fd=place.folder, follow_symlinks=False)
        except OSError:
            return None

    def exists(self, path: str) -> bool:
        return self.stat(path) is not None

    def is_folder(self, path: str) -> bool:
        status = self.stat(path)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def is_null(self, path: str) -> bool:
        """Return whether it is a link to /dev/null, which masks a file; an image need not have /dev."""
        return "/dev/null" in (self.link(path), self.resolve(path))

    def is_executable(self, path: str) -> bool:
        status = self.stat(path)
        return status is not None and stat.S_ISREG(status.st_mode) and bool(status.st_mode & 0o111)

    def is_hidden(self, path: str) -> bool:
        """Return whether this user may not enter a folder on the way: the file may exist."""
        try:
            with self._walk(path):
                return False
        except OSError as error:
            return isinstance(error, PermissionError)

    @contextlib.contextmanager
    def folder(self, path: str) -> Iterator[int]:
        """Open a folder for changes, and sync it after them; create it and its parents if missing."""
        for step in pathlib.PurePosixPath(path).parents[::-1][1:]:
            self._make(str(step))
        self._make(path)
        with self._open_folder(path) as opened:
            yield opened
            os.fsync(opened)

    def _make(self, path: str) -> None:
        with self._walk(path) as place, contextlib.suppress(FileExistsError):
            if place.name:
                os.mkdir(place.name, 0o755, dir_fd=place.folder)
                with self._open_folder(str(pathlib.PurePosixPath(place.path).parent)) as above:
                    os.fsync(above)

    @contextlib.contextmanager
    def _open_folder(self, path: str) -> Iterator[int]:
        with self._walk(path) as place:
            descriptor = os.open(place.name or ".", FOLDER, dir_fd=place.folder)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _walk(self, path: str, *, follow: bool = True) -> Iterator[_Place]:
        """Find the folder and the last name of a path, with links resolved (the last one if `follow`)."""
        opened: list[tuple[int, str]] = [(os.open(self.root, os.O_PATH | os.O_DIRECTORY), "")]
        try:
            yield _descend(opened, path, follow)
        finally:
            for descriptor, _ in opened:
                os.close(descriptor)


def _descend(opened: list[tuple[int, str]], path: str, follow: bool) -> _Place:
    todo = path.split("/")[::-1]
    links = 0
    while todo:
        name = todo.pop()
        if name in ("", "."):
            continue
        if name == "..":
            if len(opened) > 1:
                os.close(opened.pop()[0])
            continue
        last = not any(rest not in ("", ".") for rest in todo)
        try:
            mode = os.stat(name, dir_fd=opened[-1][0], follow_symlinks=False).st_mode
        except FileNotFoundError:
            if last:
                return _place(opened, name)
            raise
        if stat.S_ISLNK(mode) and (follow or not last):
            links += 1
            if links > MAX_LINKS:
                raise OSError(40, "Too many levels of symbolic links")
            todo += _follow(opened, name)
        elif last:
            return _place(opened, name)
        else:
            flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW
            opened.append((os.open(name, flags, dir_fd=opened[-1][0]), name))
    # The path ends in a folder that is already open: `/`, `/etc/..`.
    if len(opened) == 1:
        return _Place(opened[0][0], "", "/")
    descriptor, name = opened.pop()
    os.close(descriptor)
    return _place(opened, name)


def _follow(opened: list[tuple[int, str]], name: str) -> list[str]:
    """Return the names in a link's target, last first; an absolute one restarts at the root."""
    target = os.readlink(name, dir_fd=opened[-1][0])
    if target.startswith("/"):
        while len(opened) > 1:
            os.close(opened.pop()[0])
    return target.split("/")[::-1]


def _place(opened: list[tuple[int, str]], name: str) -> _Place:
    path = "/".join([*(step for _, step in opened), name])
    return _Place(opened[-1][0], name, path)


def _entry(folder: int, name: str) -> Entry:
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        return Entry("link", 0, os.readlink(name, dir_fd=folder))
    if stat.S_ISREG(status.st_mode):
        return Entry("file", status.st_size)
    return Entry("folder" if stat.S_ISDIR(status.st_mode) else "other", 0)


def _check(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise NotPlainError("it is not a plain file")


def _read(descriptor: int, limit: int) -> bytes:
    # Files of /proc report size 0, so their size is known only after reading.
    parts = []
    left = limit + 1
    while left > 0 and (part := os.read(descriptor, min(left, 1 << 16))):
        parts.append(part)
        left -= len(part)
    if left <= 0:
        raise TooLargeError(f"larger than {limit} bytes")
    return b"".join(parts)
