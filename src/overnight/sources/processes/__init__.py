"""Which processes use the cores each second, and which unit or container each belongs to."""

from __future__ import annotations

import functools
import pathlib

from overnight import sources
from overnight.sources.processes import membership, table, threads

read_unit = membership.read_unit
unit_of = membership.unit_of


@functools.lru_cache(maxsize=4)
def _shared(root: pathlib.Path) -> table.Table:
    # The signals share one table, so that processes are read once.
    return table.Table(root)


def full_scan(root: pathlib.Path = sources.ROOT) -> None:
    """Make the next poll read every process, to name the process that saturates a core at once."""
    _shared(root).full_scan()


def open_processes(root: pathlib.Path) -> sources.Reader:
    return _shared(root).read


def open_states(root: pathlib.Path) -> sources.Reader:
    """Open a reader of `process-states`: the last state that `processes` saw of each."""
    return _shared(root).states


def open_real_time(root: pathlib.Path) -> sources.Reader:
    return threads.RealTime(_shared(root), root).read


SIGNALS = (
    sources.Signal(
        "processes",
        1.0,
        "process",
        (
            *sources.counters("utime", "stime", unit="ticks"),
            *sources.gauges("rss", unit="pages"),
            *sources.gauges("core"),
            *sources.counters("major_faults"),
            *sources.gauges("state", "policy", "rt_priority"),
        ),
        open_processes,
        "/proc/PID/stat of the 20 busiest and of blocked processes; state is the letter's code (68 is D), policy 1, 2 and 6 are real-time",
    ),
    sources.Signal(
        "process-states",
        5.0,
        "",
        sources.gauges("all", "running", "blocked", "zombies"),
        open_states,
        "/proc/PID/stat: number of processes, and how many are running, blocked (D) or zombies (Z)",
    ),
    sources.Signal(
        "rt-threads",
        1.0,
        "thread",
        (
            *sources.counters("utime", "stime", unit="ticks"),
            *sources.gauges("core", "policy", "rt_priority"),
        ),
        open_real_time,
        "/proc/PID/task/TID/stat of real-time threads (except the main thread) of processes that use half a core",
    ),
)
