"""CPU time and memory of this process and of its helper processes."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import resource
from collections.abc import Iterable

from overnight import sources
from overnight.sources.processes import table


@dataclasses.dataclass(frozen=True)
class Usage:
    cpu_seconds: float
    rss_bytes: int


def read_usage(helpers: Iterable[int], root: pathlib.Path = sources.ROOT) -> Usage:
    """Return the sum of this process, running helpers, and helpers that ended and were waited for."""
    ours = resource.getrusage(resource.RUSAGE_SELF)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = ours.ru_utime + ours.ru_stime + ended.ru_utime + ended.ru_stime
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    rss = 0
    for pid in (os.getpid(), *helpers):
        try:
            stat = table.parse_stat(sources.read_once(f"{root}/proc/{pid}/stat", 1024) or b"")
        except (OSError, ValueError, IndexError):
            continue
        _, _, _, user, system, _, pages, *_ = stat
        rss += pages * page
        cpu += (user + system) / ticks if pid != os.getpid() else 0.0
    return Usage(cpu, rss)
