"""Cgroups that have a CPU quota, and how long they were throttled by it.

The file `cpu.stat`; v2 counts in microseconds, v1 in nanoseconds (`throttled_time`)::

    usage_usec 6823911
    nr_periods 8412
    nr_throttled 330
    throttled_usec 19481222

The quota is `cpu.max` (v2: `200000 100000`, or `max 100000` for none) or `cpu.cfs_quota_us` (v1: -1 for none).
Reading `cpu.stat` of v2 sums up the CPU time of all cores, so it is read only where there is a quota. No file
stays open: a cgroup may be removed at any time.
"""

from __future__ import annotations

import collections
import os
import pathlib
import time
from collections.abc import Callable

from overnight import sources
from overnight.model import cgroups

MAX_CGROUPS = 128
MAX_DIRECTORIES = 4096
# Quotas are looked for again after a minute, but at most for 0.02 % of the time.
SEARCH_SECONDS = 60.0
SEARCH_SHARE = 0.0002
QUOTA = {1: "cpu.cfs_quota_us", 2: "cpu.max"}


def parse_throttling(data: bytes) -> tuple[int, int, int] | None:
    """Parse periods, throttled periods and throttled microseconds; None where there is no quota.

    >>> parse_throttling(b"nr_periods 7\\nnr_throttled 2\\nthrottled_time 5999\\n")
    (7, 2, 5)
    """
    words = data.split()
    counters = dict(zip(words[::2], words[1::2], strict=False))
    if b"nr_periods" not in counters:
        return None
    us = counters.get(b"throttled_usec")
    throttled_us = int(counters.get(b"throttled_time", 0)) // 1000 if us is None else int(us)
    return int(counters[b"nr_periods"]), int(counters.get(b"nr_throttled", 0)), throttled_us


def has_quota(text: bytes | None) -> bool:
    """Return whether `cpu.max` or `cpu.cfs_quota_us` sets a quota.

    >>> [has_quota(text) for text in (b"200000 100000\\n", b"max 100000\\n", b"-1\\n", b"50000\\n", None)]
    [True, False, False, True, False]
    """
    return (text or b"max").split(None, 1)[:1] not in ([b"max"], [b"-1"], [])


def open_throttling(
    root: pathlib.Path = sources.ROOT, clock: Callable[[], float] = time.monotonic
) -> sources.Reader:
    """Open a reader of the cgroups with a quota, outer ones first; no rows where none has one."""
    layout = sources.read_cgroup_layout(root)
    if layout.cpu is None:
        raise sources.NoDataError("no cgroup hierarchy has the CPU controller")
    top = os.fspath(root / layout.cpu.relative_to("/"))
    limited: list[str] = []
    due = float("-inf")

    def read() -> sources.Rows:
        nonlocal due, limited
        began = clock()
        if began >= due:
            limited = _find_limited(top, QUOTA[layout.cpu_version])
            due = began + max(SEARCH_SECONDS, (clock() - began) / SEARCH_SHARE)
        rows: dict[str, tuple[int, ...]] = {}
        for path in limited:
            text = sources.read_once(f"{top}{path}/cpu.stat")
            if text is not None and (row := parse_throttling(text)) is not None:
                rows[cgroups.key_of(os.fsencode(path))] = row
        return rows

    return read


def _find_limited(top: str, quota: str) -> list[str]:
    """List the cgroups with a quota, in the order of their depth."""
    limited: list[str] = []
    waiting = collections.deque([""])
    directories = 0
    while waiting and directories < MAX_DIRECTORIES and len(limited) < MAX_CGROUPS:
        path = waiting.popleft()
        for child in sources.child_directories(top + path):
            directories += 1
            below = f"{path}/{child.name}"
            waiting.append(below)
            if has_quota(sources.read_once(f"{top}{below}/{quota}", 64)):
                limited.append(below)
    return limited[:MAX_CGROUPS]


COLUMNS = ("periods", "throttled", "throttled_us")
KEEP = {"throttled_us": 60.0}  # it does not compress
SIGNALS = (sources.Signal("cpu-throttling", 10.0, "cgroup", COLUMNS, open_throttling, KEEP),)
