"""Where raw segments wait for ingest. Light: the recorder's process imports this, and no numpy."""

from __future__ import annotations

import contextlib
import gzip
import pathlib

__all__ = ["bytes_under", "kallsyms_file", "save_kallsyms", "spool_folder"]


def spool_folder(home: pathlib.Path) -> pathlib.Path:
    """Where raw segments wait."""
    return home / "spool"


def kallsyms_file(folder: pathlib.Path, boot: str) -> pathlib.Path:
    """Where the kernel's symbols of a boot are kept."""
    return folder / f"kallsyms-{boot[:8]}.gz"


def save_kallsyms(folder: pathlib.Path, boot: str) -> None:
    """Keep the kernel's symbols of this boot: after a reboot they are elsewhere (KASLR)."""
    path = kallsyms_file(folder, boot)
    if path.exists():
        return
    with contextlib.suppress(OSError):
        fresh = path.with_suffix(".new")
        fresh.write_bytes(gzip.compress(pathlib.Path("/proc/kallsyms").read_bytes(), 1))
        fresh.replace(path)


def bytes_under(folder: pathlib.Path) -> int:
    """What all files in a folder take on the disk; files may vanish meanwhile."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            status = path.lstat()
            total += status.st_blocks * 512
    return total
