"""An agent whose workers read files in a cgroup at its limit: for each page the kernel reclaims another."""

from __future__ import annotations

import os
import pathlib
import sys

PAGE = 4096
CHECK = 4 << 20  # bytes between two checks that the parent still runs


def read(path: str, parent: int) -> None:
    """Read the file page by page until the parent ends. It has no blocks, so no read waits for a disk."""
    file = os.open(path, os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
    size = os.fstat(file).st_size
    room = bytearray(PAGE)
    while True:
        for at in range(0, size, PAGE):
            if at % CHECK == 0 and os.getppid() != parent:
                return
            os.preadv(file, [room], at)


def main() -> None:
    """Arguments: its cgroup, then a file for each worker."""
    (pathlib.Path(sys.argv[1]) / "cgroup.procs").write_text("0")
    parent, own = os.getppid(), os.getpid()
    for path in sys.argv[3:]:
        if not os.fork():
            # A session each: with autogroup the kernel shares a core among sessions first, so every worker
            # gets a full share.
            os.setsid()
            read(path, own)
            return
    read(sys.argv[2], parent)


if __name__ == "__main__":
    main()
