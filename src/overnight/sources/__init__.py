"""One module a kernel interface. Standard library only: this runs on every host.

`read_x(root)` does the I/O and `parse_x(text)` is pure. `root` defaults to `/`, so a fake tree
tests it, and a container can read its host's (`root=/host`). A source never imports another.

What the flight recorder looks at regularly is told by the module itself, in `SIGNALS`: a tuple of
`Signal` (integers) and `FactSignal` (words). A new one is found without any list to edit.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Literal

__all__ = [
    "ROOT",
    "Column",
    "Fact",
    "FactReader",
    "FactSignal",
    "Facts",
    "KeptFile",
    "NoDataError",
    "Reader",
    "Rows",
    "Signal",
    "clean",
    "hardware_interfaces",
    "list_folder",
    "read_once",
]

ROOT = pathlib.Path("/")

Rows = Mapping[str, tuple[int, ...]]
Reader = Callable[[], Rows]
Fact = Mapping[str, str | int | float | bool]
Facts = Mapping[str, Fact]
FactReader = Callable[[], Facts]


class NoDataError(Exception):
    """The host does not have this interface, and that is no fault: say so once, and go on."""


@dataclasses.dataclass(frozen=True)
class Column:
    """One integer of a row. A counter only rises (until its thing is born anew); a gauge is a level."""

    name: str
    kind: Literal["counter", "gauge"] = "counter"
    unit: str = ""  # "ticks", "us", "pages", …; "" counts things
    keep: float = 0.0  # seconds apart that the ring keeps it; 0: at each look


@dataclasses.dataclass(frozen=True)
class Signal:
    """Integers read every so often, a row for each key: a core, an interface, a cgroup.

    `open` takes the root and gives the look: what it keeps open between two looks is its own, for
    opening a file costs more than reading it. A look returns the numbers as the kernel tells them,
    rates and shares are derived on read. It raises NoDataError where there is nothing to read.
    """

    name: str
    every: float  # seconds
    key: str  # what a row is about: "core", "interface", …; "" when there is one row, under ""
    columns: tuple[Column, ...]
    open: Callable[[pathlib.Path], Reader]
    about: str  # one line for docs/signals.md: file or call it comes from, and what it tells


@dataclasses.dataclass(frozen=True)
class FactSignal:
    """Words and states read every so often; only what changed is stored."""

    name: str
    every: float
    key: str
    open: Callable[[pathlib.Path], FactReader]
    about: str


# What the kernel answers where an interface is switched off, or its device has just gone.
_ABSENT = frozenset(
    (errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO, errno.EOPNOTSUPP, errno.ESRCH)
)


class KeptFile:
    """A file of /proc or /sys that stays open between looks: opening costs more than reading.

    One that went away with its device is opened anew when it is back. `room` is what one system call
    may bring: it need not be enough, but an allocation as large is made at every look.
    """

    __slots__ = ("_descriptor", "_path", "_room")

    def __init__(self, path: str | os.PathLike[str], room: int = 4096) -> None:
        self._path = os.fspath(path)
        self._room = room
        self._descriptor = -1

    def read(self) -> bytes:
        """All of it, as it is now; raises NoDataError where there is no such file."""
        try:
            if self._descriptor >= 0:
                try:
                    return self._whole()
                except OSError:
                    self.close()
            self._descriptor = os.open(self._path, os.O_RDONLY)
            return self._whole()
        except OSError as error:
            self.close()
            if error.errno in _ABSENT:
                raise NoDataError(f"{self._path}: {error.strerror}") from error
            raise

    def _whole(self) -> bytes:
        # A short answer is not the end: the kernel gives what fits into its own page of whole records
        # (seq_read_iter), so a file of many records is read on until nothing comes.
        room, descriptor = self._room, self._descriptor
        data = os.pread(descriptor, room, 0)
        if data and (more := os.pread(descriptor, room, len(data))):
            parts, at = [data], len(data)
            while more:
                parts.append(more)
                at += len(more)
                more = os.pread(descriptor, room, at)
            return b"".join(parts)
        return data

    def close(self) -> None:
        """Let go of the descriptor; the next read opens the file again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        # A look is dropped together with what it keeps; slots may be empty when opening failed.
        if getattr(self, "_descriptor", -1) >= 0:
            os.close(self._descriptor)


def read_once(path: str | os.PathLike[str], room: int = 4096) -> bytes | None:
    """The beginning of a small file, None where it cannot be had: for files that come and go."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        return os.read(descriptor, room)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def list_folder(folder: str) -> list[str]:
    """The names in a folder, sorted; none where it is not there."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries)
    except OSError:
        return []


def hardware_interfaces(root: pathlib.Path = ROOT) -> list[str]:
    """Network interfaces that have a device behind them, under the names their folders have.

    A host with containers has hundreds of others, which come and go with them.
    """
    folder = os.fspath(root / "sys/class/net")
    return [name for name in list_folder(folder) if os.access(f"{folder}/{name}/device", os.F_OK)]


def clean(name: bytes | str) -> str:
    """A name of the host's as a key: any bytes are allowed in one, also those that steer a terminal.

    >>> clean(b"eth0"), clean(b"e\\x1b[31m\\xff\\n"), len(clean(b"a" * 9000))
    ('eth0', 'e\\\\x1b[31m\\\\xff\\\\x0a', 255)
    """
    text = (name if isinstance(name, bytes) else os.fsencode(name)).decode(
        "utf-8", "backslashreplace"
    )
    if not text.isprintable():
        text = "".join(
            c if c.isprintable() else f"\\x{ord(c):02x}" if ord(c) < 256 else f"\\u{ord(c):04x}"
            for c in text
        )
    return text[:255]
