"""An agent whose workers read files in a cgroup at its limit: for each page the kernel reclaims another."""

from __future__ import annotations

import os
import pathlib
import sys
import time

PAGE = 4096
CHECK = 4 << 20  # bytes between two checks that the parent still runs


def read(path: str, parent: int, rate: float) -> None:
    """Read the file page by page until the parent ends, `rate` bytes a second; 0: as fast as possible.

    It has no blocks, so no read waits for a disk.
    """
    file = os.open(path, os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
    size = os.fstat(file).st_size
    room = bytearray(PAGE)
    due = time.monotonic()
    while True:
        for at in range(0, size, PAGE):
            if at % CHECK == 0:
                if os.getppid() != parent:
                    return
                if rate:  # what could not be read in time is dropped, as a scrape is
                    due = max(due + CHECK / rate, time.monotonic() - 1)
                    time.sleep(max(0.0, due - time.monotonic()))
            os.preadv(file, [room], at)


def main() -> None:
    """Arguments: its cgroup, bytes a second of each worker, then a file for each worker."""
    (pathlib.Path(sys.argv[1]) / "cgroup.procs").write_text("0")
    rate, files = float(sys.argv[2]), sys.argv[3:]
    parent, own = os.getppid(), os.getpid()
    for path in files[1:]:
        if not os.fork():
            # A session each: with autogroup the kernel shares a core among sessions first, so every worker
            # gets a full share.
            os.setsid()
            read(path, own, rate)
            return
    read(files[0], parent, rate)


if __name__ == "__main__":
    main()
