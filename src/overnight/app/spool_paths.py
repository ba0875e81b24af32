"""Paths of the spool of raw segments. Must not import numpy: the recorder imports this."""

from __future__ import annotations

import contextlib
import gzip
import pathlib
from collections.abc import Collection

from overnight import errors
from overnight.model import files

DONE = "ingested.txt"  # names of segments that are in the store


def spool_folder(home: pathlib.Path) -> pathlib.Path:
    return home / "spool"


def read_ingested(folder: pathlib.Path) -> set[str]:
    """Return the names of segments that are in the store."""
    try:
        return set((folder / DONE).read_text(errors="replace").split("\n"))
    except OSError as error:
        errors.raise_own(error)
        return set()


def kallsyms_file(folder: pathlib.Path, boot: str) -> pathlib.Path:
    return folder / f"kallsyms-{boot[:8]}.gz"


def save_kallsyms(folder: pathlib.Path, boot: str) -> None:
    """Save the kernel symbols of this boot; after a reboot the addresses differ (KASLR)."""
    path = kallsyms_file(folder, boot)
    if path.exists():
        return
    with contextlib.suppress(OSError):
        symbols = pathlib.Path("/proc/kallsyms").read_bytes()
        files.write_atomically(path, gzip.compress(symbols, 1))


def remove_kallsyms(folder: pathlib.Path, boots: Collection[str]) -> None:
    """Remove the kernel symbols of all other boots: no segment needs them any more."""
    kept = {kallsyms_file(folder, boot) for boot in boots}
    for path in set(folder.glob(kallsyms_file(folder, "*").name)) - kept:
        with contextlib.suppress(OSError):
            path.unlink()


def bytes_under(folder: pathlib.Path) -> int:
    """Return the disk space of all files in a folder; files may vanish meanwhile."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            status = path.lstat()
            total += status.st_blocks * 512
    return total
