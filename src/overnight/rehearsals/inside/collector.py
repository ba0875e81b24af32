"""An agent that reads files again and again with several workers, as one that collects statistics does.

Its page cache is charged to a cgroup that is at its limit: the kernel must make room for each page.
"""

from __future__ import annotations

import os
import pathlib
import sys

PAGE = 4096


def read(path: str) -> None:
    """The file from begin to end, for ever, page by page: no page waits for a disk, for it has no blocks."""
    file = os.open(path, os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
    size = os.fstat(file).st_size
    room = bytearray(PAGE)
    while True:
        for at in range(0, size, PAGE):
            os.preadv(file, [room], at)


def main() -> None:
    """Words: its cgroup, then a file for each worker."""
    (pathlib.Path(sys.argv[1]) / "cgroup.procs").write_text("0")
    for path in sys.argv[3:]:
        if not os.fork():
            # A session each: where the kernel shares a core among sessions first (autogroup), every worker
            # gets as much as anybody else there.
            os.setsid()
            read(path)
    read(sys.argv[2])


if __name__ == "__main__":
    main()
