"""Processes: who uses the cores each second, and which unit or container a process belongs to."""

from __future__ import annotations

import functools
import pathlib

from overnight import sources
from overnight.sources.processes import membership, table, threads

__all__ = ["SIGNALS", "full_scan", "parse_cgroup", "read_unit", "unit_of"]

parse_cgroup = membership.parse_cgroup
read_unit = membership.read_unit
unit_of = membership.unit_of


@functools.lru_cache(maxsize=4)
def _shared(root: pathlib.Path) -> table.Table:
    # Both signals are of one table: processes are read once for the two of them.
    return table.Table(root)


def full_scan(root: pathlib.Path = sources.ROOT) -> None:
    """Makes the next look read every process: when a core is pinned, who did it must not wait."""
    _shared(root).full_scan()


def open_processes(root: pathlib.Path) -> sources.Reader:
    """The look of `processes`."""
    return _shared(root).read


def open_states(root: pathlib.Path) -> sources.Reader:
    """The look of `process-states`: what the other look has seen last of each."""
    return _shared(root).states


def open_real_time(root: pathlib.Path) -> sources.Reader:
    """The look of `rt-threads`."""
    return threads.RealTime(_shared(root), root).read


SIGNALS = (
    sources.Signal(
        "processes",
        1.0,
        "process",
        (
            sources.Column("utime", unit="ticks"),
            sources.Column("stime", unit="ticks"),
            sources.Column("rss", "gauge", "pages"),
            sources.Column("core", "gauge"),
            sources.Column("major_faults"),
            sources.Column("state", "gauge"),
            sources.Column("policy", "gauge"),
            sources.Column("rt_priority", "gauge"),
        ),
        open_processes,
        "/proc/PID/stat of the 20 busiest and of those that are blocked; state is the letter's code (68 is D), policy 1, 2 and 6 are real-time",
    ),
    sources.Signal(
        "process-states",
        5.0,
        "",
        (
            sources.Column("all", "gauge"),
            sources.Column("running", "gauge"),
            sources.Column("blocked", "gauge"),
            sources.Column("zombies", "gauge"),
        ),
        open_states,
        "/proc/PID/stat: how many processes, and how many run, are blocked (D) or are dead and not waited for (Z)",
    ),
    sources.Signal(
        "rt-threads",
        1.0,
        "thread",
        (
            sources.Column("utime", unit="ticks"),
            sources.Column("stime", unit="ticks"),
            sources.Column("core", "gauge"),
            sources.Column("policy", "gauge"),
            sources.Column("rt_priority", "gauge"),
        ),
        open_real_time,
        "/proc/PID/task/TID/stat of real-time threads, not the first, of processes that use half of a core",
    ),
)
