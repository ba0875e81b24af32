"""An agent that reads files again and again with several workers, as one that collects statistics does.

Its page cache is charged to a cgroup that is at its limit: the kernel must make room for each page.
"""

from __future__ import annotations

import os
import pathlib
import sys

PAGE = 4096
LOOK = 4 << 20  # bytes between two looks whether the parent is still there


def read(path: str, parent: int) -> None:
    """The file from begin to end, for ever, page by page: no page waits for a disk, for it has no blocks.

    Not longer than its parent is there: whoever ends the agent ends its workers.
    """
    file = os.open(path, os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
    size = os.fstat(file).st_size
    room = bytearray(PAGE)
    while True:
        for at in range(0, size, PAGE):
            if at % LOOK == 0 and os.getppid() != parent:
                return
            os.preadv(file, [room], at)


def main() -> None:
    """Words: its cgroup, then a file for each worker."""
    (pathlib.Path(sys.argv[1]) / "cgroup.procs").write_text("0")
    parent, own = os.getppid(), os.getpid()
    for path in sys.argv[3:]:
        if not os.fork():
            # A session each: where the kernel shares a core among sessions first (autogroup), every worker
            # gets as much as anybody else there.
            os.setsid()
            read(path, own)
            return
    read(sys.argv[2], parent)


if __name__ == "__main__":
    main()
