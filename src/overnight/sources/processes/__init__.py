"""Which processes use the cores each second, and which unit or container each belongs to."""

from __future__ import annotations

import functools
import pathlib

from overnight import sources
from overnight.sources.processes import affinity, membership, table, threads

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


def open_affinity(root: pathlib.Path) -> sources.Reader:
    return affinity.Affinity(_shared(root), root).read


COLUMNS = ("utime", "stime", "rss", "core", "major_faults", "state", "policy", "rt_priority")
STATES = ("all", "running", "blocked", "zombies")
THREAD = ("utime", "stime", "core", "policy", "rt_priority")
SIGNALS = (
    sources.Signal("processes", 1.0, "process", COLUMNS, open_processes),
    sources.Signal("process-states", 5.0, "", STATES, open_states),
    sources.Signal("rt-threads", 1.0, "thread", THREAD, open_real_time),
    sources.Signal("affinity", 5.0, "process", ("allowed", "lowest"), open_affinity),
)
