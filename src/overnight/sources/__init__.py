"""Readers of kernel interfaces, one module each. Standard library only: they run on every host.

`read_x(root)` does the I/O and `parse_x(text)` is pure. `root` defaults to `/`; tests pass a fake
tree, and a container passes its host's mount (`root=/host`). A source never imports another.

A module lists what the flight recorder polls in `SIGNALS`: a tuple of `Signal` (integers) and
`FactSignal` (words). The recorder discovers them; there is no list to edit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import importlib
import os
import pathlib
import pkgutil
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, AnyStr

from overnight import errors
from overnight.model import cgroups

if TYPE_CHECKING:
    import subprocess

ROOT = pathlib.Path("/")

Rows = Mapping[str, tuple[int, ...]]
Reader = Callable[[], Rows]
Fact = Mapping[str, str | int | float | bool]
Facts = Mapping[str, Fact]
FactReader = Callable[[], Facts]


class NoDataError(Exception):
    """The host does not have this interface. That is not a failure: report it once and continue."""


@dataclasses.dataclass(frozen=True)
class Signal:
    """Integers that the recorder polls, one row per key: a core, an interface, a cgroup.

    `open` takes the root and returns the reader. A reader may keep files open between two polls,
    because opening a file costs more than reading it. It returns the kernel's own numbers (rates and
    shares are derived from the store later) and raises NoDataError where there is nothing to read.
    """

    name: str
    every: float  # seconds
    key: str  # what a row describes: "core", "interface", …; "" for a single row, stored under ""
    columns: tuple[str, ...]  # docs/signals.md has the unit and the meaning of each
    open: Callable[[pathlib.Path], Reader]
    # Least seconds between two values that the ring stores, by column; of the others it stores every one.
    keep: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class FactSignal:
    """Words and states that the recorder polls; only changes are stored."""

    name: str
    every: float
    key: str
    open: Callable[[pathlib.Path], FactReader]


def discover(package: types.ModuleType, name: str) -> Iterator[Any]:
    """Yield what the modules of a package list under a name."""
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        yield from getattr(importlib.import_module(module.name), name, ())


# Errors for an interface that is switched off, or whose device has just gone.
_ABSENT = frozenset(
    (errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO, errno.EOPNOTSUPP, errno.ESRCH)
)


class KeptFile:
    """A file of /proc or /sys that stays open between polls: opening costs more than reading.

    A file that went away with its device is reopened when it is back. `room` is the size of one read;
    a longer file takes more reads, but a buffer of this size is allocated at every poll.
    """

    __slots__ = ("_descriptor", "_path", "_room")

    def __init__(self, path: str | os.PathLike[str], room: int = 4096) -> None:
        self._descriptor = -1  # first: `__del__` runs even when the next line fails
        self._path = os.fspath(path)
        self._room = room

    def read(self) -> bytes:
        """Read the whole file; raise NoDataError where it does not exist."""
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
        # A short read is not the end: the kernel returns the whole records that fit into its own page
        # (seq_read_iter), so read on until a read returns nothing.
        parts, at = [], 0
        while part := os.pread(self._descriptor, self._room, at):
            parts.append(part)
            at += len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Close the descriptor; the next read opens the file again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.close()  # a reader is dropped together with its files


def read_once(path: str | os.PathLike[str], room: int = 4096) -> bytes | None:
    """Read the beginning of a file that may come and go; None where it cannot be read.

    Like everything here, it raises the OSError that is this process's own (`errors.is_own`).
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        errors.raise_own(error)
        return None
    try:
        return os.read(descriptor, room)
    except OSError as error:
        errors.raise_own(error)
        return None
    finally:
        os.close(descriptor)


def list_folder(folder: str) -> list[str]:
    """List the sorted names in a folder; an empty list where it cannot be read."""
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - polled: no Path per name
    except OSError as error:
        errors.raise_own(error)
        return []


def read_cgroup_layout(root: pathlib.Path) -> cgroups.Layout:
    """Read which cgroup hierarchies are mounted."""
    try:
        return cgroups.read_layout(root)
    except OSError as error:
        errors.raise_own(error)
        raise NoDataError(f"/proc/self/mountinfo: {error}") from error


def child_directories(path: AnyStr) -> Iterator[os.DirEntry[AnyStr]]:
    """List the child directories of a cgroup; none where it was removed.

    A cgroup has 30 files and few directories, and its link count tells how many: 931 directories take
    6 ms, against 26 ms when every entry is examined.
    """
    try:
        left = os.stat(path).st_nlink - 2  # noqa: PTH116 - half the time
        if left == 0:
            return
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield entry
                    left -= 1
                    if left == 0:  # never true where the file system does not count links
                        return
    except OSError as error:
        errors.raise_own(error)


def read_each(
    readers: Mapping[str, Callable[[], tuple[int, ...]]], problem: str
) -> dict[str, tuple[int, ...]]:
    """Read every row that this host has; raise NoDataError with the problem where it has none."""
    rows = {}
    for key, read in readers.items():
        with contextlib.suppress(NoDataError):
            rows[key] = read()
    if not rows:
        raise NoDataError(problem)
    return rows


def run_command(command: Sequence[str], timeout: float) -> subprocess.CompletedProcess[str]:
    """Run a program for its output; raise NoDataError where it is missing or does not answer."""
    import subprocess

    try:
        return subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, text=True, errors="replace",
            timeout=timeout, check=False,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise NoDataError(f"{command[0]} is not installed") from error
    except (subprocess.TimeoutExpired, OSError) as error:
        errors.raise_own(error)
        raise NoDataError(f"{command[0]} did not answer: {error}") from error


def parse_os_release(text: str) -> dict[str, str]:
    """Parse os-release(5) and other files of NAME=value or NAME: value.

    >>> parse_os_release('NAME="Debian GNU/Linux"\\nVERSION_ID=12\\n# no\\nbuild_name: server\\n')
    {'NAME': 'Debian GNU/Linux', 'VERSION_ID': '12', 'build_name': 'server'}
    """
    assignment = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]{0,63})\s*[=:]\s*(.*?)\s*$")
    matches = map(assignment.match, text.splitlines())
    return {match[1]: match[2].strip("\"'") for match in matches if match}


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Parse the kernel's list of cores.

    >>> parse_cpu_list("0-2,5\\n")
    (0, 1, 2, 5)
    """
    cores: list[int] = []
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            cores.extend(range(int(first), int(last or first) + 1))
    return tuple(cores)


def open_online(root: pathlib.Path) -> Callable[[], tuple[int, ...]]:
    """Open a reader of the cores that are online; it raises NoDataError where the kernel does not list them."""
    file = KeptFile(root / "sys/devices/system/cpu/online")
    return lambda: parse_cpu_list(file.read().decode("ascii"))


def hardware_interfaces(root: pathlib.Path = ROOT) -> list[str]:
    """List the network interfaces that have a device, by the names of their sysfs folders.

    A host with containers has hundreds of others, which come and go with the containers.
    """
    folder = os.fspath(root / "sys/class/net")
    return [name for name in list_folder(folder) if os.access(f"{folder}/{name}/device", os.F_OK)]


def clean(name: bytes | str) -> str:
    r"""Escape a name that the host chose, for use as a key; it may hold any bytes, also terminal codes.

    >>> clean(b"eth0"), clean(b"e\x1b[31m\xff\n"), len(clean(b"a" * 9000))
    ('eth0', 'e\\x1b[31m\\xff\\x0a', 255)
    """
    # Not model.text.printable: that writes \n where stored keys have \x0a.
    text = (name if isinstance(name, bytes) else os.fsencode(name)).decode(
        "utf-8", "backslashreplace"
    )
    if not text.isprintable():
        text = "".join(
            c if c.isprintable() else f"\\x{ord(c):02x}" if ord(c) < 256 else f"\\u{ord(c):04x}"
            for c in text
        )
    return text[:255]
