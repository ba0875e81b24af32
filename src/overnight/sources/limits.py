"""How close the host is to kernel limits: connections, pids, threads, open files.

    /proc/sys/net/netfilter/nf_conntrack_count   12        of nf_conntrack_max
    /proc/loadavg                  0.47 1.29 1.51 1/224 29767   threads, of kernel.pid_max and threads-max
    /proc/sys/fs/file-nr           1453	0	2465780           used, free, maximum

Every thread has its own pid, so the threads count against both limits. The connections are those of this
process's network namespace, whatever the root.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable

from overnight import sources


def parse_threads(loadavg: bytes) -> int:
    """Parse the number of all threads of the host.

    >>> parse_threads(b"0.47 1.29 1.51 1/224 29767")
    224
    """
    _, _, _, threads, *_ = loadavg.split(None, 4)
    return int(threads.partition(b"/")[2])


def parse_files(data: bytes) -> tuple[int, int]:
    """Parse the number of open files and its limit.

    >>> parse_files(b"1453\\t3\\t2465780\\n")
    (1450, 2465780)
    """
    allocated, free, maximum = data.split()
    # "No limit" is the largest value of the kernel's long; it fits into 63 bits.
    return int(allocated) - int(free), int(maximum)


def open_limits(root: pathlib.Path = sources.ROOT) -> sources.Reader:
    """Open a reader of every limit that this kernel has; connections only where they are tracked."""
    sysctl = root / "proc/sys"
    load = sources.KeptFile(root / "proc/loadavg")
    pids = sources.KeptFile(sysctl / "kernel/pid_max")
    threads = sources.KeptFile(sysctl / "kernel/threads-max")
    files = sources.KeptFile(sysctl / "fs/file-nr")
    tracked = sources.KeptFile(sysctl / "net/netfilter/nf_conntrack_count")
    max_tracked = sources.KeptFile(sysctl / "net/netfilter/nf_conntrack_max")
    readers: dict[str, Callable[[], tuple[int, int]]] = {
        "pids": lambda: (parse_threads(load.read()), int(pids.read())),
        "threads": lambda: (parse_threads(load.read()), int(threads.read())),
        "files": lambda: parse_files(files.read()),
        "conntrack": lambda: (int(tracked.read()), int(max_tracked.read())),
    }
    return lambda: sources.read_each(readers, "no kernel limit can be read under /proc/sys")


SIGNALS = (sources.Signal("limits", 10.0, "limit", ("used", "maximum"), open_limits),)
