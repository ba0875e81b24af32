"""CPU time and memory of this process and of its helper processes."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import resource
from collections.abc import Iterable

ROOT = pathlib.Path("/")


@dataclasses.dataclass(frozen=True)
class Usage:
    cpu_seconds: float
    rss_bytes: int


def parse_stat(text: str, ticks: int, page: int) -> Usage:
    """Parse /proc/PID/stat; the name in it may contain spaces and brackets.

    >>> line = "7 (a) b) S 1 7 7 0 -1 0 0 0 0 0 150 50 0 0 20 0 1 0 99 0 25 0"
    >>> parse_stat(line, 100, 4096)
    Usage(cpu_seconds=2.0, rss_bytes=102400)
    """
    fields = text[text.rindex(")") + 1 :].split()
    return Usage((int(fields[11]) + int(fields[12])) / ticks, int(fields[21]) * page)


def read_usage(helpers: Iterable[int], root: pathlib.Path = ROOT) -> Usage:
    """Return the sum of this process, running helpers, and helpers that ended and were waited for."""
    ours = resource.getrusage(resource.RUSAGE_SELF)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = ours.ru_utime + ours.ru_stime + ended.ru_utime + ended.ru_stime
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    rss = 0
    for pid in (os.getpid(), *helpers):
        try:
            usage = parse_stat((root / f"proc/{pid}/stat").read_text(errors="replace"), ticks, page)
        except (OSError, ValueError, IndexError):
            continue
        rss += usage.rss_bytes
        cpu += usage.cpu_seconds if pid != os.getpid() else 0.0
    return Usage(cpu, rss)
