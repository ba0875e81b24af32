"""Names and limits of the ring's files."""

from __future__ import annotations

import pathlib
import re
import time
from typing import NamedTuple

from overnight import errors
from overnight.model import files as stored_files
from overnight.model.pins import Pins
from overnight.model.times import SECOND_US
from overnight.store import host_names

VERSION = 1
RING, OPEN = ".ring", ".open"
BLOCK_SECONDS = 600
FILE_SECONDS = 3600
# When wall and monotonic clock drift apart by more, a new file begins, so that names bound times.
STEP_US = 100_000
# Limit of a record, chunk or directory, packed or unpacked: a hostile file costs at most this memory.
MAX_BYTES = 64 << 20
# Numbers of a signal, and rows, in a block: 192 cores make 1,152,000 in ten minutes. Constant ones need no bytes.
MAX_NUMBERS = 1 << 23
NAME = re.compile(r"(\d{1,18})-([0-9a-f]{8})(\.ring|\.open)", re.ASCII)


class Name(NamedTuple):
    """The parts of a file's name: time of its first reading, boot, and kind."""

    stamp_us: int
    boot: str
    suffix: str

    def __str__(self) -> str:
        return f"{self.stamp_us}-{self.boot}{self.suffix}"


def parse_name(name: str) -> Name | None:
    """Parse a file's name; None: not a file of the ring.

    >>> parse_name("1794725459000000-1a2b3c4d.ring")
    Name(stamp_us=1794725459000000, boot='1a2b3c4d', suffix='.ring')
    """
    match = NAME.fullmatch(name)
    return Name(int(match[1]), match[2], match[3]) if match else None


def host_folder(home: pathlib.Path, host: str) -> pathlib.Path:
    return home / "signals" / host_names.folder_name(host)


def name_folder(folder: pathlib.Path, host: str) -> None:
    """Create a host's folder and write its name there: without it no reader finds the ring."""
    stored_files.make_folder(folder)
    name, raw = folder / "host", host.encode("utf-8", "surrogatepass")
    # Older versions did not sync it.
    if not name.exists() or name.read_bytes() != raw:
        stored_files.write_atomically(name, raw)


def ring_pins(home: pathlib.Path, host: str) -> Pins:
    return Pins(host_folder(home, host) / "pins")


def hosts(home: pathlib.Path) -> tuple[str, ...]:
    """Return every host that has a ring here."""
    names = []
    root = home / "signals"
    for folder in root.iterdir() if root.is_dir() else ():
        try:
            host = (folder / "host").read_bytes().decode("utf-8", "surrogatepass")
        except (OSError, ValueError) as error:
            errors.raise_own(error)
            continue
        if host_folder(home, host) == folder:
            names.append(host)
    return tuple(sorted(names))


def files(folder: pathlib.Path, suffix: str) -> list[tuple[Name, pathlib.Path]]:
    """Return the ring's files of one kind, oldest first."""
    paths = folder.iterdir() if folder.is_dir() else ()
    named = ((parse_name(path.name), path) for path in paths)
    return sorted((name, path) for name, path in named if name and name.suffix == suffix)


def month_of(time_us: int) -> str:
    """Return the month that an event's file is named after.

    >>> month_of(1794725459000000), month_of(-1), month_of(1 << 62)
    ('202611', '000000', '999999')
    """
    if time_us < 0:
        return "000000"
    if time_us >= 253_402_300_800_000_000:  # the year 10000
        return "999999"
    return time.strftime("%Y%m", time.gmtime(time_us // SECOND_US))
